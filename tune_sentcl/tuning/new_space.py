"""A first space for the user's own rows: `tune-sentcl init`."""

import math
import shlex
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import numpy as np

from tune_sentcl.config import DataConfig, Rows
from tune_sentcl.config.data_names import own_source
from tune_sentcl.data.rows.corpus import Corpus
from tune_sentcl.data.rows.hold_out import ROWS, TASK, hold_out
from tune_sentcl.data.rows.load import load_rows
from tune_sentcl.data.rows.own_file import load_file
from tune_sentcl.data.rows.row_checks import overlaps, problems
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.data.tasks.own_task import counted, objectives_of
from tune_sentcl.errors import ConfigError, DataError, Fault
from tune_sentcl.model.checkpoints.checkpoint import Checkpoint, resolve_checkpoint
from tune_sentcl.objective import default_among
from tune_sentcl.store.disk import atomic_folder

_SAMPLE = 20_000
"""Texts whose tokens are counted; so many take a few seconds."""

_TEMPERATURE = "{ low = 0.01, high = 0.1, log = true, prior = 0.05 }    # 0.05: Gao et al. 2021"


@dataclass(frozen=True)
class _Recipe:
    """The methods for rows of one kind.

    Attributes:
        methods: The methods that are tried.
        ranges: The ranges of their knobs, as TOML.
        order: `data.order`.
    """

    methods: tuple[str, ...]
    ranges: Mapping[str, str] = field(default_factory=dict)
    order: str = "distinct"


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
"""By kind of rows."""


@dataclass(frozen=True)
class NewSpace:
    """A written space.

    Attributes:
        notes: What was read and decided, one sentence each.
        command: The search to run next.
    """

    notes: tuple[str, ...]
    command: str


def new_space(
    path: Path, rows: Path, *, columns: str = "", own: Sequence[str] = (), encoder: str = "minilm"
) -> NewSpace:
    """Look at a file of training rows, and write a space that can be searched at once.

    Without an evaluation task, a tenth of the rows is held out for dev and a tenth for test. Rows
    with a blank text are left out.

    Args:
        path: The TOML file to write. Held-out rows are written beside it.
        rows: The file of the rows.
        columns: Roles of its columns, as `data.columns`; empty: by their names, or by what they
            hold.
        own: Evaluation tasks, entries of `evaluation.own`.
        encoder: The checkpoint to train.

    Raises:
        ConfigError: The space exists, or its name does not end in .toml.
        DataError: The rows or a task cannot be read, or there is no task.
        CheckpointError: The encoder cannot be read.
    """
    folder = path.with_suffix("")
    if path.exists() or path.suffix != ".toml" or (not own and folder.exists()):
        rule = f"must be a new file whose name ends in .toml, and {folder} must not exist"
        raise ConfigError(Fault("OUT", "", str(path), rule, "Choose another name."))
    if any(" + " in str(name) for name in (path, rows)):
        rule = "must not contain ' + ', which separates sources"
        raise ConfigError(Fault("init", "", f"{path}, {rows}", rule, "Rename it."))
    path.parent.mkdir(parents=True, exist_ok=True)
    corpus, columns, apart = load_file(rows, columns)
    kind = corpus.kind
    if not own and kind in ("labeled_pairs", "sentences"):
        rule = f"{kind.replace('_', ' ')} need an evaluation task"
        move = "Give --dev FILE or --own NAME=PATH; docs/evaluation.md has the layouts."
        raise DataError(Fault(str(rows), "", "", rule, move))
    with nullcontext() if own else atomic_folder(folder) as scratch:
        # Too few rows are refused before torch is imported, and a bad encoder leaves no folder.
        sizes = (len(corpus), 0, 0) if scratch is None else hold_out(corpus, scratch, apart)
        notes = [*_described(rows, columns, corpus), *_lengths(corpus, encoder), *problems(corpus)]
    source, blanks, trained = rows, corpus.dropped, corpus
    if not own:
        own = (f"held-out={folder / TASK}",)
        source, columns, blanks = folder / ROWS, "", 0
        trained = load_rows(kind, DataConfig(source=str(source)), None)
        notes.append(
            f"held out, with no text in common with the {len(trained):,} rows left to train on: "
            f"{sizes[1]:,} rows as dev and {sizes[2]:,} as test, in {folder / TASK}"
            + f" ({' and '.join(sorted(apart))} by the column split)"
            * bool(apart)
        )
        if "row" in corpus.table.column_names:
            notes.append("lists of positives: each positive is a row of its own now")
    tasks = [task for entry in own for task in read_own(own_source(entry))]
    notes += [f"{task.name} {task.split}: {counted(task)}" for task in tasks]
    notes += [f"{one}; a search refuses them" for one in overlaps(trained, tasks)]
    objective = default_among([one for task in tasks for one in objectives_of(task)])
    if objective is None:
        rule, move = "none of the tasks has a dev score", "Give a task with a dev split."
        raise DataError(Fault("--own", "", ", ".join(own), rule, move))
    values = {
        "rows": rows.name,
        "encoder": encoder,
        "source": str(source),
        "columns": columns,
        "blanks": blanks,
        "own": list(own),
        **_sizes(len(trained), encoder),
        **vars(_RECIPES[kind]),
    }
    template = Path(__file__).with_suffix(".toml.jinja").read_text(encoding="utf-8")
    text = jinja2.Template(template, undefined=jinja2.StrictUndefined).render(values)
    path.write_text(text + "\n", encoding="utf-8")
    study = Path("studies") / path.stem
    words = ["tune-sentcl", "search", str(path), "--objective", str(objective)]
    words += ["--budget", "20", "--confirm", "3", "--study", str(study)]
    return NewSpace(tuple(notes), shlex.join(words))


def _described(rows: Path, columns: str, corpus: Corpus) -> Iterator[str]:
    mapped = f", columns {columns.replace(',', ', ')}" if columns else ""
    yield f"{rows}: {len(corpus):,} rows, read as {corpus.shown_kind}{mapped}"
    yield from corpus.notes
    if corpus.dropped:
        yield f"rows with a blank text, which are left out: {corpus.dropped:,}"
    letters = Counter(
        unicodedata.name(letter, "").partition(" ")[0].capitalize()
        for text in corpus.sentences()[:1000]
        for letter in set(text)
        if letter.isalpha()
    )
    total = sum(letters.values())
    shares = [f"{name} {n / total:.0%}" for name, n in letters.most_common(3) if 20 * n > total]
    yield f"scripts: {', '.join(shares) or 'none'}"


def _lengths(corpus: Corpus, encoder: str) -> Iterator[str]:
    """The lengths of the texts in tokens, and how many are cut off."""
    from tune_sentcl.model.checkpoints.tokenizer_files import quiet  # they import torch
    from tune_sentcl.model.encoder import load_encoder
    from tune_sentcl.model.tokenizing import token_ids

    loaded = load_encoder(resolve_checkpoint(encoder), "auto", "auto", "cpu")
    texts = corpus.sentences()[:_SAMPLE]
    with quiet():
        ids = token_ids(loaded.tokenizer, 10**6, texts)
    lengths = np.array([len(text) for text in ids])
    among = "" if len(texts) < _SAMPLE else f" of the first {_SAMPLE:,} texts"
    yield (
        f"tokens per text{among}: {int(np.median(lengths))} in the median, {lengths.max()} at most"
    )
    limit = loaded.max_length
    if cut := int((lengths > limit).sum()):
        yield f"texts that {encoder} cuts off after {limit} tokens: {cut:,} of {len(texts):,}"


def _sizes(rows: int, encoder: str) -> dict[str, object]:
    """Batch sizes, epochs and learning rate for a number of rows and an encoder."""
    checkpoint = resolve_checkpoint(encoder)
    epochs = 5 if rows < 1_000 else 3 if rows < 5_000 else 2 if rows < 50_000 else 1
    allowed = [size for size in (16, 32, 64) if 8 * size <= rows] or [max(2, rows // 8)]
    steps = epochs * math.ceil(rows / allowed[-1])
    return {
        "batch_sizes": allowed,
        "epochs": epochs,
        "steps": f"{steps:,}",
        "every": max(1, steps // 10),
        **_rate(checkpoint),
    }


def _rate(checkpoint: Checkpoint) -> dict[str, object]:
    """The learning rate, and where it comes from."""
    if checkpoint.is_static:
        usual = "0.2 is sentence-transformers' for new static vectors"
        return {"lr": 0.2 if checkpoint.is_new_static else 0.01, "usual": usual}
    usual = "2e-5 to 5e-5 is usual (Devlin et al. 2019)"
    return {"lr": 5e-5 if (checkpoint.width or 0) <= 384 else 2e-5, "usual": usual}
