"""Tasks that MTEB or a plugin scores."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tune_sentcl.data.tasks.own_task import ForeignTask, mteb_task
from tune_sentcl.errors import DataError, Fault, TuneSentclError, first_line
from tune_sentcl.evaluate.encode import Encode
from tune_sentcl.plugins import EXTENSIONS
from tune_sentcl.score import Score
from tune_sentcl.shapes import EmbeddingMatrix

_BATCH = 1024
"""The number of texts that MTEB passes in one call; the encoder batches them itself."""
_NUMBERS = (float, int, np.floating, np.integer)


def score_mteb(encode: Encode, task: ForeignTask) -> Score:
    """A task's main score x 100; `n` counts texts.

    The score is the mean over MTEB's splits of the mean over languages.

    Raises:
        DataError: MTEB cannot load the task's data, or cannot evaluate it.
    """
    from mteb import evaluate

    model = _Model(encode)
    theirs = mteb_task(task.task).filter_eval_splits(list(task.theirs))
    try:
        result = evaluate(
            model,
            theirs,
            cache=None,
            co2_tracker=False,
            show_progress_bar=False,
            encode_kwargs={"batch_size": _BATCH, "show_progress_bar": False},
        )
        scores = result.task_results[0].scores
        means = [
            np.mean([entry["main_score"] for entry in scores[split]]) for split in task.theirs
        ]
    except (OSError, ValueError, KeyError, TypeError, ImportError, RuntimeError) as error:
        rule = f"MTEB cannot score the task ({first_line(error)})"
        move = "Without a network, the task's data must be in the cache of `datasets`."
        raise DataError(
            Fault("evaluation.own", value=f"mteb:{task.task}", rule=rule, move=move)
        ) from error
    value = 100 * float(np.mean(means))
    return Score(
        "mteb",
        task.name,
        task.split,
        task.metrics[0],
        "mteb",
        task.data,
        value,
        model.texts,
        version=task.version,
    )


class _Model:
    """MTEB's `EncoderProtocol` for an `Encode` function; it counts the texts."""

    def __init__(self, encode: Encode) -> None:
        from mteb.models import ModelMeta

        self._encode = encode
        self.mteb_model_meta: Any = ModelMeta.create_empty()
        self.texts = 0

    def encode(
        self, inputs: Iterable[Any], *, prompt_type: Any = None, **_: Any
    ) -> EmbeddingMatrix:
        texts = [text for batch in inputs for text in batch["text"]]
        self.texts += len(texts)
        if prompt_type is None:
            return self._encode(texts)
        return self._encode(texts, prompt=prompt_type.value)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        from mteb.similarity_functions import cos_sim

        return cos_sim(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        from mteb.similarity_functions import pairwise_cos_sim

        return pairwise_cos_sim(embeddings1, embeddings2)


def score_foreign(encode: Encode, task: ForeignTask) -> list[Score]:
    """The scores x 100 of a task that MTEB or a plugin scores; `n` counts the encoded texts.

    Raises:
        DataError: MTEB cannot load the task's data, or cannot evaluate it.
        PluginError: The plugin raises an error, or does not return a number from 0 to 1 for each
            of its metrics.
    """
    if task.protocol == "mteb":
        return [score_mteb(encode, task)]
    plugin, count = EXTENSIONS["task", task.task], 0

    def counted(texts: Iterable[str], **prompt: str) -> EmbeddingMatrix:
        nonlocal count
        given = list(texts)
        count += len(given)
        return encode(given, **prompt)

    try:
        values = plugin.value(counted, task.split)
    except TuneSentclError:
        raise
    except (Exception, SystemExit) as error:
        raise plugin.failure(task.split, error) from error
    found = [values.get(m) if isinstance(values, Mapping) else None for m in task.metrics]
    numbers = [float(v) for v in found if isinstance(v, _NUMBERS) and 0 <= v <= 1]
    if len(numbers) < len(found):
        rule = f"must return a dict with a number from 0 to 1 for {' and '.join(task.metrics)}"
        raise plugin.failure(task.split, f"{rule}, but returned {first_line(repr(values))}")
    of, by = ("own", task.name, task.split), ("plugin", task.data)
    scored = zip(task.metrics, numbers, strict=True)
    return [Score(*of, m, *by, 100 * v, count, version=task.version) for m, v in scored]
