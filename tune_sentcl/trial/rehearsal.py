"""The rehearsal of a trainer: what a search knows of it before any trial, without training."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, is_dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from sentence_transformers.base.evaluation import BaseEvaluator
from transformers import TrainerCallback

from tune_sentcl.config import METHODS
from tune_sentcl.errors import BadInputError, Fault, PluginError
from tune_sentcl.model.checkpoints.tokenizer_files import quiet
from tune_sentcl.objective import is_less_better
from tune_sentcl.plugins import activate
from tune_sentcl.plugins.loading import plugin_named
from tune_sentcl.plugins.sources import Plugin, Source
from tune_sentcl.trial.trainers import (
    Rehearsal,
    check_losses,
    guarded,
    is_dense,
    make_trainer,
    metrics_of,
    own_random_state,
    source_of,
)

_ROWS = 10_000  # rows of a data set are hashed this many at a time
_TEXT = re.compile(r"\S+\s+\S")


class Leave(Exception):  # noqa: N818 - this is no error
    """Leaves `train()` once everything is ready for the first step."""


class _Ready(TrainerCallback):  # type: ignore[misc]
    """Notes the number of steps, checks the losses, and leaves before the first step."""

    steps = 0

    def __init__(self, trainer: Any, name: str) -> None:
        self._trainer, self._name = trainer, name

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self.steps = state.max_steps
        check_losses(self._trainer, self._name, more["optimizer"])
        raise Leave


@contextmanager
def _trainer(name: str, knobs: str, device: str = "cpu") -> Iterator[Any]:
    """A trainer made with these hyperparameters, as JSON, and the defaults of all others."""
    values = json.loads(knobs or "{}")
    config = METHODS[name].config.model_validate({"name": name, **values})
    with own_random_state(), TemporaryDirectory(prefix="tune_sentcl_") as folder:
        yield make_trainer(config, 0, device, Path(folder))


def train_quietly(trainer: Any, checkpoint: Path | None = None) -> None:
    """Train, from a checkpoint of a like trainer if one is given, until a callback ends it."""
    with quiet(), suppress(Leave):
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))


@cache
def fingerprint_here(name: str, knobs: str, code: str) -> str:
    """The `data` of a rehearsal, made once in this process for each version of the code."""
    with _trainer(name, knobs) as trainer:
        return _fingerprints(trainer, name)[0]


def rehearse(name: str, knobs: str = "") -> Rehearsal:
    """Rehearse a trainer in this process.

    The evaluator runs only if all hyperparameters have their defaults, on a GPU if there is one.
    Other calls may be made while trials use the GPU.

    Args:
        name: The trainer.
        knobs: The hyperparameters that differ from their defaults, as JSON.

    Raises:
        PluginError: The function, its trainer or its evaluator breaks a rule.
    """
    device = "cuda" if torch.cuda.is_available() and not knobs else "cpu"
    with _trainer(name, knobs, device) as trainer:
        data, version = _fingerprints(trainer, name)
        metrics = {} if knobs else metrics_of(trainer, name)
        ready = _Ready(trainer, name)
        trainer.add_callback(ready)
        guarded(name, partial(train_quietly, trainer))
        rows = ready.steps * rows_a_step(trainer)
        weights = sum(weight.nbytes for weight in trainer.model.parameters())
        bounded = (key for key, v in metrics.items() if not (abs(v) > 1 or is_less_better(key)))
        return Rehearsal(
            data,
            version,
            ready.steps,
            rows,
            len(texts_of(trainer, name)),
            tuple(metrics),
            tuple(bounded),
            weights,
            is_dense(trainer),
            _chained(trainer, name, metrics),
            knobs,
        )


def _chained(trainer: Any, name: str, metrics: Mapping[str, float]) -> tuple[str, ...]:
    """The metrics of several evaluators if the last one is also their common score; else none.

    Raises:
        PluginError: Two evaluators give their numbers the same names, so that one set is lost.
    """
    parts = getattr(trainer.evaluator, "evaluators", ())
    named = [one for part in parts if (one := getattr(part, "primary_metric", None))]
    if len({*named}) < len(named):
        rule = f"its evaluators must give different metrics, and several give {named[-1]}: name "
        raise source_of(name).failure("", f"{rule}each by name=")
    is_last = bool(named) and metrics.get("sequential_score") == metrics.get(named[-1])
    return tuple(named) if is_last else ()


def rows_a_step(trainer: Any) -> int:
    """The rows of a step."""
    return int(trainer.args.train_batch_size * trainer.args.gradient_accumulation_steps)


def texts_of(trainer: Any, name: str) -> list[str]:
    """The distinct texts of several words that an evaluator holds."""
    held = (value for value in _held_by(trainer, name) if isinstance(value, str))
    return list(dict.fromkeys(text for text in held if _TEXT.match(text)))


def _datasets(trainer: Any) -> dict[str, Any]:
    data = trainer.train_dataset
    return dict(data) if isinstance(data, dict) else {"": data}


def _fingerprints(trainer: Any, name: str) -> tuple[str, str]:
    """Hashes of training rows with the evaluator's texts, and of these texts alone.

    The fingerprint that `datasets` keeps depends on the times of cache files, which differ
    between machines.
    """
    of_evaluator = hashlib.sha256()
    for value in _held_by(trainer, name):
        of_evaluator.update(json.dumps([type(value).__name__, str(value)]).encode())
    version = of_evaluator.hexdigest()[:16]
    of_rows = hashlib.sha256(version.encode())
    for key, rows in _datasets(trainer).items():
        if not len(rows):
            raise source_of(name).failure("", "its train_dataset has no rows")
        of_rows.update(json.dumps([key, len(rows), rows.column_names]).encode())
        for batch in rows.with_format("arrow").iter(_ROWS):
            of_rows.update(json.dumps(batch.to_pydict(), default=repr).encode())
    return of_rows.hexdigest()[:16], version


def _held_by(trainer: Any, name: str) -> Iterator[str | int | float]:
    return _held(trainer.evaluator, METHODS[name].implementation.__module__)


def _held(
    value: Any, module: str, seen: frozenset[int] = frozenset()
) -> Iterator[str | int | float]:
    """The texts and numbers that an evaluator holds, in order, without those of its models.

    Args:
        value: The evaluator, or a part of it.
        module: The plugin's module, whose classes hold parts too.
        seen: The ids of the objects that hold the value.
    """
    if isinstance(value, str | int | float):
        yield value
        return
    if id(value) not in seen:
        for part in _parts(value, module):
            yield from _held(part, module, seen | {id(value)})


def _parts(value: Any, module: str) -> Iterable[Any]:
    if isinstance(value, torch.nn.Module | type):
        return ()
    if isinstance(value, Dataset | pd.DataFrame):
        value = value.to_dict()
    if isinstance(value, np.ndarray | torch.Tensor):
        return [value.tolist()]
    if isinstance(value, dict):
        return chain.from_iterable(value.items())
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, Sequence):  # a column of `datasets` too
        return value
    is_own = is_dataclass(value) or type(value).__module__ == module
    if is_own or isinstance(value, BaseEvaluator) or type(value).__name__ == "InputExample":
        return vars(value).values() if hasattr(value, "__dict__") else ()
    return ()


def rehearse_apart(name: str, knobs: str = "") -> Rehearsal:
    """Rehearse a trainer in a process of its own, which frees what the function loads.

    Args:
        name: The trainer.
        knobs: As for `rehearse`.

    Raises:
        PluginError: As for `rehearse`; or the process ends without a result.
    """
    plugin = plugin_named(METHODS[name].plugin, METHODS[name].fingerprint)
    sources = {
        module: [source.path, source.code.decode("latin-1"), source.is_package]
        for module, source in plugin.sources.items()
    }
    own = [plugin.name, plugin.fingerprint, plugin.module, sources]
    with TemporaryDirectory(prefix="tune_sentcl_") as folder:
        result = Path(folder, "rehearsal.json")
        ended = subprocess.run(
            [
                sys.executable,
                "-c",
                f"import {__name__} as own; own.main()",
                name,
                knobs,
                str(result),
            ],
            input=json.dumps(own),
            text=True,
            stdout=sys.stderr,
            stderr=subprocess.PIPE,
        )
        found = json.loads(result.read_text(encoding="utf-8")) if result.exists() else None
    if found is None:
        last = (ended.stderr.strip().splitlines() or [""])[-1]
        rule = (
            f"its trial call before the search ended with code {ended.returncode} ({last[-200:]})"
        )
        where = f"{plugin.name}: trainer {name}"
        raise PluginError(
            Fault(where, rule=rule, move="Call the function in a script of its own.")
        )
    if "faults" in found:
        raise PluginError([Fault(**fault) for fault in found["faults"]])
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in found.items()
    }
    return Rehearsal(**values)


def main() -> None:
    """Rehearse the plugin on stdin: the process of `rehearse_apart`."""
    name, knobs, result = sys.argv[1:]
    label, fingerprint, module, sources = json.load(sys.stdin)
    code = {key: Source(p, text.encode("latin-1"), top) for key, (p, text, top) in sources.items()}
    activate([Plugin(label, fingerprint, module, code)])
    try:
        found: dict[str, Any] = asdict(rehearse(name, knobs))
    except BadInputError as error:
        found = {"faults": [asdict(fault) for fault in error.faults]}
    Path(result).write_text(json.dumps(found), encoding="utf-8")
