"""Write a first search space for the user's examples."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tune_sentcl.config import DataConfig, Rows
from tune_sentcl.config.data_names import own_source
from tune_sentcl.data.rows.corpus import Corpus, make_corpus
from tune_sentcl.data.rows.load import load_rows
from tune_sentcl.data.rows.row_checks import overlaps, problems, without
from tune_sentcl.data.rows.sources import open_source
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.data.tasks.own_task import OwnTask, objectives_of
from tune_sentcl.errors import ConfigError, DataError, Fault
from tune_sentcl.init.own_rows import ROWS, TASK, hold_out, load_file, scripts
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint, resolve_checkpoint
from tune_sentcl.objective import default_among
from tune_sentcl.store.disk import atomic_folder

_SAMPLE = 20_000
"""How many texts are tokenized to measure lengths, which takes a few seconds."""

_TEMPERATURE = "{ low = 0.01, high = 0.1, log = true, prior = 0.05 }    # 0.05: Gao et al. 2021"


@dataclass(frozen=True)
class _Recipe:
    """The methods for rows of one kind.

    Attributes:
        methods: The methods that the search space tries.
        ranges: The ranges of their hyperparameters, as TOML.
        order: `data.order`.
    """

    methods: tuple[str, ...]
    ranges: Mapping[str, str]
    order: str = "distinct"


_MANY_PAIRS = 1_000
"""A search over more pairs than that also samples the number of mined negatives."""

_MINED = {
    "data.mined": "{ choices = [0, 1, 2, 4, 8], prior = 4 }",
    "data.mined_margin": "{ low = 0.0, high = 0.2, prior = 0.05 }    # Moreira et al. 2024",
}

_RECIPES: dict[Rows, _Recipe] = {
    "graded_pairs": _Recipe(("cosent", "angle"), {"method.temperature": _TEMPERATURE}),
    "labeled_pairs": _Recipe(
        ("scl",),
        {"method.lambda": "{ low = 0.0, high = 1.0, prior = 0.3 }    # Liao 2021"},
        "shuffled_groups",
    ),
    "triplets": _Recipe(
        ("mnr",),
        {
            "method.temperature": _TEMPERATURE,
            "method.symmetric": "{ choices = [false, true], prior = false }",
        },
    ),
    "sentences": _Recipe(("simcse",), {"method.temperature": _TEMPERATURE}),
}
"""The recipe for each kind of rows."""


def new_space(
    path: Path,
    rows: Path,
    *,
    columns: str = "",
    own: Sequence[str] = (),
    encoder: str = "minilm",
    clean: bool = False,
) -> tuple[list[str], str]:
    """Look at a file of training rows, and write a search space for it.

    Without an evaluation task, a tenth of the rows is held out for dev and a tenth for test. Rows
    with a blank text are left out.

    Args:
        path: The TOML file to write. Held-out rows and cleaned rows are written beside it.
        rows: The file of the rows.
        columns: Roles of its columns, as `data.columns`; empty: roles are found by the columns'
            names, or by their content.
        own: Evaluation tasks, entries of `evaluation.own`.
        encoder: The base model.
        clean: Whether to leave out rows that repeat another one, that have equal texts, or that
            are also in an evaluation task.

    Returns:
        The facts and decisions, one sentence each, and the score to maximize.

    Raises:
        ConfigError: The space exists, or its name does not end in .toml.
        DataError: The rows or a task cannot be read, or there is no task.
        CheckpointError: The encoder cannot be read.
    """
    folder, writes_rows = path.with_suffix(""), clean or not own
    _check_names(path, rows, folder if writes_rows else None)
    corpus, columns, apart = load_file(rows, columns)
    kind = corpus.kind
    if not own and kind in ("labeled_pairs", "sentences"):
        rule = f"{kind.replace('_', ' ')} need an evaluation task"
        move = "Give --dev FILE or --own NAME=PATH; docs/evaluation.md has the layouts."
        raise DataError(Fault(str(rows), rule=rule, move=move))
    tasks = [task for entry in own for task in read_own(own_source(entry))]
    notes, useless = _useless_rows(corpus, tasks, clean=clean)
    notes = [*_described(rows, columns, corpus), *notes]
    source, blanks = rows, corpus.dropped
    corpus = without(corpus, useless) if clean else corpus
    if writes_rows:
        source, columns, blanks = folder / ROWS, "", 0
        notes += _write_rows(corpus, folder, encoder, None if own else apart)
        corpus = load_rows(kind, DataConfig(source=str(source)), None)
    else:
        notes += _lengths(corpus, encoder)
    if not own:
        own = (f"held-out={folder / TASK}",)
        tasks = list(read_own(own_source(own[0])))
    notes += [f"{task.name} {task.split}: {task.size}" for task in tasks]
    scores = [score for task in tasks for score in objectives_of(task)]
    objective = default_among(scores)
    if objective is None:
        rule, move = "none of the tasks has a dev score", "Give a task with a dev split."
        raise DataError(Fault("--own", value=", ".join(own), rule=rule, move=move))
    recipe = _RECIPES[kind]
    mines = kind == "triplets" and not corpus.negatives() and len(corpus) > _MANY_PAIRS
    if mines:
        notes.append(
            f"more than {_MANY_PAIRS:,} pairs: the search also samples numbers of hard negatives, "
            f"which {encoder} mines"
        )
    values = {
        "rows": rows.name,
        "encoder": encoder,
        "source": str(source),
        "columns": columns,
        "blanks": blanks,
        "own": list(own),
        # Training a classifier takes too long for a score that is measured during a trial.
        "is_scored": any(score.is_cheap and score.split == "dev" for score in scores),
        **_sizes(len(corpus), encoder),
        **vars(recipe),
        "ranges": {**recipe.ranges, **(_MINED if mines else {})},
        "mines": mines,
    }
    template = Path(__file__).with_suffix(".toml.jinja").read_text(encoding="utf-8")
    text = jinja2.Template(template, undefined=jinja2.StrictUndefined).render(values)
    path.write_text(text + "\n", encoding="utf-8")
    return notes, str(objective)


def _check_names(path: Path, rows: Path, folder: Path | None) -> None:
    """Refuse bad names for a search space, and a folder for its rows that already exists."""
    if path.exists() or path.suffix != ".toml" or (folder and folder.exists()):
        rule = "must be a new file whose name ends in .toml"
        rule += f", and {folder} must not exist" if folder else ""
        raise ConfigError(Fault("OUT", value=str(path), rule=rule, move="Choose another name."))
    if any(" + " in str(name) for name in (path, rows)):
        rule = "must not contain ' + ', which separates sources"
        raise ConfigError(
            Fault("init", value=f"{path}, {rows}", rule=rule, move="Rename that file.")
        )
    path.parent.mkdir(parents=True, exist_ok=True)


def _useless_rows(
    corpus: Corpus, tasks: Sequence[OwnTask], *, clean: bool
) -> tuple[list[str], list[npt.NDArray[np.bool_]]]:
    """Texts about the faults of rows, and masks of the rows that `--clean` drops."""
    notes, masks = [], []
    for problem in problems(corpus):
        done = "; these rows are dropped" if clean else "; --clean drops these rows"
        notes.append(f"{problem}{done * problem.is_useless}")
        masks += [problem.mask] * problem.is_useless
    for overlap in overlaps(corpus, tasks):
        done = (
            "these rows are dropped"
            if clean
            else "a search refuses these rows, --clean drops them"
        )
        notes.append(f"{overlap}; {done}")
        masks.append(overlap.mask)
    return notes, masks


def _write_rows(
    corpus: Corpus, folder: Path, encoder: str, apart: Mapping[str, Corpus] | None
) -> list[str]:
    """Write the training rows and the held-out rows, and describe them.

    `apart` holds the rows of the file's own splits; None: no rows are held out.
    """
    # The order is random, so that the first rows of a sorted file are typical of all rows.
    order = np.random.default_rng(0).permutation(len(corpus))
    corpus = make_corpus(corpus.kind, corpus.table.take(pa.array(order)), corpus.source)
    with atomic_folder(folder) as scratch:
        if apart is not None:
            train, dev, test = hold_out(corpus, scratch, apart)
            written = (
                f"{dev:,} examples for dev and {test:,} for test are held out in "
                f"{folder / TASK}; they share no text with the {train:,} examples that "
                "remain for training"
            )
            written += f" (the column split gives {' and '.join(sorted(apart))})" * bool(apart)
        else:
            pq.write_table(corpus.table, scratch / ROWS)
            written = (
                f"the {len(corpus):,} examples that remain for training are in {folder / ROWS}"
            )
        # Too few rows are refused above, before `_lengths` imports torch. If it cannot load the
        # encoder, no folder is left behind.
        notes = [*_lengths(corpus, encoder), written]
    if "row" in corpus.table.column_names:
        notes.append("each positive of a list has become a row of its own")
    return notes


def _described(rows: Path, columns: str, corpus: Corpus) -> Iterator[str]:
    mapped = f", columns {columns.replace(',', ', ')}" if columns else ""
    yield f"{rows}: {len(corpus):,} rows, read as {corpus.shown_kind}{mapped}"
    yield from corpus.notes
    if corpus.dropped:
        yield f"rows with a blank text are left out: {corpus.dropped:,}"
    config = DataConfig(source=str(rows), columns=columns, blanks="drop")
    yield from scripts(*open_source(corpus.kind, config, None))


def _lengths(corpus: Corpus, encoder: str) -> Iterator[str]:
    """Sentences on the lengths of the texts in tokens, and how many are truncated."""
    # These imports are not at the top, because they load torch.
    from tune_sentcl.model.checkpoints.tokenizer_files import quiet
    from tune_sentcl.model.encoder import load_encoder
    from tune_sentcl.model.tokenizing import token_ids

    loaded = load_encoder(resolve_checkpoint(encoder), "auto", "auto", "cpu")
    texts = corpus.sentences()[:_SAMPLE]
    with quiet():
        ids = token_ids(loaded.tokenizer, 10**6, texts)
    lengths = np.array([len(text) for text in ids])
    among = "" if len(texts) < _SAMPLE else f" of the first {_SAMPLE:,} texts"
    yield f"tokens per text{among}: {int(np.median(lengths))} (median), {lengths.max()} at most"
    limit = loaded.max_length
    if cut := int((lengths > limit).sum()):
        yield f"texts that {encoder} cuts off after {limit} tokens: {cut:,} of {len(texts):,}"


def _sizes(rows: int, encoder: str) -> dict[str, object]:
    """Batch sizes, epochs and learning rate for a number of rows and an encoder."""
    epochs = 5 if rows < 1_000 else 3 if rows < 5_000 else 2 if rows < 50_000 else 1
    allowed = [size for size in (16, 32, 64) if 8 * size <= rows] or [max(2, rows // 8)]
    steps = epochs * math.ceil(rows / allowed[-1])
    return {
        "batch_sizes": allowed,
        "epochs": epochs,
        "steps": f"{steps:,}",
        "every": max(1, steps // 10),
        **_rate(resolve_checkpoint(encoder)),
    }


def _rate(checkpoint: Checkpoint) -> dict[str, object]:
    """The learning rate, and its source."""
    if checkpoint.is_static:
        usual = "0.2 is sentence-transformers' value for new static vectors"
        return {"lr": 0.2 if checkpoint.is_new_static else 0.01, "usual": usual}
    usual = "2e-5 to 5e-5 is usual (Devlin et al. 2019)"
    return {"lr": 5e-5 if (checkpoint.width or 0) <= 384 else 2e-5, "usual": usual}
