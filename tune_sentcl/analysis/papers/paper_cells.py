"""Translate each number that the papers print into a configuration and its scores.

`paper_results` holds the numbers; the spaces under `search_spaces/` hold the configurations.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tune_sentcl.analysis.conversion import lines_of
from tune_sentcl.analysis.papers.paper_results import (
    Paper,
    paper_errata,
    paper_results,
    paper_table,
)
from tune_sentcl.config import TrialConfig, Values
from tune_sentcl.space import spaces_of

OTHER_SYSTEMS = frozenset(
    ("bert-flow", "is-bert", "bsl", "ct", "consert", "sg-opt", "mirror-bert", "declutr")
)
"""Methods whose numbers the papers copy; no method here trains them."""

AVERAGE = "avg"
"""The task name of a printed average."""

_METHODS: dict[str, dict[str, Any]] = {
    "sbert-ce": {"method.name": "sbert"},
    "ce-augment": {"method.name": "augment"},
    "scl": {"method.name": "scl"},
    "simcse": {"method.name": "simcse"},
    "conisi": {"method.name": "conisi"},
    "clsr": {"method.name": "clsr"},
    "base": {"method.name": "none", "method.whitening": False},
    "glove-avg": {"method.name": "none", "method.whitening": False},
    "whitening": {"method.name": "none", "method.whitening": True},
    "plm-first-last-avg": {"method.name": "none", "method.whitening": False},
}
_KEYS = {
    "lambda": "method.lambda",
    "temperature": "method.temperature",
    "num_positives": "method.num_positives",
    "num_negatives": "method.num_negatives",
    "strategy": "method.strategy",
    "batch_size": "optimizer.batch_size",
    "base_model": "encoder.checkpoint",
    "pooling": "encoder.pooling",
    "train_data": "data.source",
}
_VALUES = {
    "sbert-base-nli-mean": "sentence-transformers/bert-base-nli-mean-tokens",
    "sbert-large-nli-mean": "sentence-transformers/bert-large-nli-mean-tokens",
    "glove": "glove.840B.300d.txt",
    "first-last-avg": "static_last",  # what these rows really measured
    "SNLI": "snli",
    "NLI": "nli",
    "STS-B": "sts-b",
    "wiki1m": "wiki",
}
_PROTOCOLS = {
    ("SCL", "sts"): "cosine",
    ("SCL", "transfer"): "senteval-5fold",
    ("ConIsI", "sts"): "cosine",
    ("CLSR", "sts"): "cosine",
}
_OTHERWISE = {
    ("SCL", "MR"): "scl-paper-compat",  # the paper's copy of these files was truncated
    ("SCL", "SUBJ"): "scl-paper-compat",
    ("CLSR", "STS-B"): "relatedness",  # SentEval's trained task
}
_AGGREGATIONS = {"SCL": "wmean", "ConIsI": "all", "CLSR": "wmean"}
_YEARS = ("STS12", "STS13", "STS14", "STS15", "STS16")
_AVERAGED = {
    ("SCL", "sts"): _YEARS,
    ("SCL", "transfer"): ("MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC"),
    ("ConIsI", "sts"): (*_YEARS, "STS-B", "SICK-R"),
    ("CLSR", "sts"): (*_YEARS, "STS-B"),
}


class Number(NamedTuple):
    """One score of a whole task, by the columns of the scores table."""

    task: str
    split: str
    metric: str
    protocol: str
    aggregation: str | None


@dataclass(frozen=True)
class PaperRow:
    """A row of a paper's table: one model.

    Attributes:
        paper: The paper's short name.
        table: For example `Table 2`.
        name: The model's name in the paper; with the training data if the name occurs twice.
        method: As in `paper_results`.
        said: What the paper states, as dotted knobs; empty for `OTHER_SYSTEMS`.
        presets: The matching configurations in the spaces of its table; empty for
            `OTHER_SYSTEMS`.
    """

    paper: str
    table: str
    name: str
    method: str
    said: Values = field(hash=False)
    presets: tuple[TrialConfig, ...]


@dataclass(frozen=True)
class PaperCell:
    """One printed number.

    row: The model.
    task: As in `paper_results`; `avg` for an average.
    printed: The number, times 100.
    right: The mean of the scores beside it, for an average that the paper computed wrongly;
        else the printed number.
    numbers: The scores whose mean it is.
    errata: The errors found in it.
    """

    row: PaperRow
    task: str
    printed: float
    right: float
    numbers: tuple[Number, ...]
    errata: tuple[str, ...]


def paper_cells(paper: Paper, table: int | None = None) -> list[PaperCell]:
    """List every number that a paper prints, in the order of its tables; or of one table only.

    Raises:
        ConfigError: The table does not exist or has no scores.
    """
    lines = lines_of(paper_table(paper, table))
    rows = _rows(paper, lines)
    errata = [_Erratum.read(line) for line in lines_of(paper_errata(paper))]
    cells = []
    for line in lines:
        row, task, printed = rows[_model(line)], line["task"], line["score"]
        found = [e for e in errata if e.concerns(row.table, line["model"], task)]
        exact = (e.mean for e in found if e.mean is not None and task == AVERAGE)
        numbers = _numbers(paper, line["metric_suite"], task)
        texts = tuple(e.text for e in found)
        cells.append(PaperCell(row, task, printed, next(exact, printed), numbers, texts))
    return cells


def errata_without_cells(paper: Paper, cells: Iterable[PaperCell]) -> list[str]:
    """The errata of a paper that concern none of these cells."""
    attached = {text for cell in cells for text in cell.errata}
    texts = [_Erratum.read(line).text for line in lines_of(paper_errata(paper))]
    return [text for text in texts if text not in attached]


@functools.cache
def named_values(paper: Paper, key: str) -> frozenset[Any]:
    """The values of a knob that the rows of a paper name."""
    models = paper_results(paper).drop(columns=["score", "task"]).drop_duplicates()
    return frozenset(said[key] for said in map(_said, lines_of(models)) if key in said)


def _model(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return line["table"], line["model"], line.get("train_data")


def _rows(paper: str, lines: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], PaperRow]:
    """The rows of some tables, by table, model and training data."""
    presets = _presets(paper)
    models = {_model(line): line for line in lines}
    names = Counter(key[:2] for key in models)
    rows = {}
    for (table, name, data), line in models.items():
        said = _said(line)
        rows[table, name, data] = PaperRow(
            paper=paper,
            table=table,
            name=f"{name}, {data}" if names[table, name] > 1 else name,
            method=line["method"],
            said=said,
            presets=tuple(
                preset
                for preset, values in presets.get(table, ())
                if said and said.items() <= values.items()
            ),
        )
    return rows


@functools.cache
def _presets(paper: str) -> dict[str, list[tuple[TrialConfig, Values]]]:
    """The configurations of a paper's spaces, by table."""
    found: dict[str, list[tuple[TrialConfig, Values]]] = {}
    for space in spaces_of(paper):
        for table in space.tables:
            rows = found.setdefault(table.removeprefix(f"{paper} "), [])
            rows += [(config, config.dotted()) for config in space.configurations]
    return found


def _said(line: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs that a printed row states."""
    if line["method"] in OTHER_SYSTEMS:
        return {}
    renamed = {_KEYS[k]: v for k, v in line.items() if k in _KEYS}
    said = {key: _VALUES.get(value, value) for key, value in renamed.items()}
    if line["method"] in ("sbert-ce", "ce-augment"):  # they have no contrastive loss
        said = {k: v for k, v in said.items() if k not in ("method.lambda", "method.temperature")}
    if line["method"] == "sbert-ce":
        said = {k: v for k, v in said.items() if not k.startswith("method.num_")}
    if line["paper"] == "SCL" and line["method"] != "glove-avg":
        said["encoder.pooling"] = "mean_without_cls"  # the paper says mean
    for key in ("method.num_positives", "method.num_negatives"):
        if said.get(key, "all") != "all":
            said[key] = int(said[key])
    return {**said, **_METHODS[line["method"]]}


def _numbers(paper: str, suite: str, task: str) -> tuple[Number, ...]:
    if suite == "stsb_dev":
        return (Number("STS-B", "dev", "spearman", "cosine", None),)
    tasks = _AVERAGED[paper, suite] if task == AVERAGE else (task,)
    return tuple(_number(paper, suite, one) for one in tasks)


def _number(paper: str, suite: str, task: str) -> Number:
    protocol = _OTHERWISE.get((paper, task), _PROTOCOLS[paper, suite])
    metric = "accuracy" if suite == "transfer" else "spearman"
    aggregation = _AGGREGATIONS[paper] if task in _YEARS else None
    return Number(task, "test", metric, protocol, aggregation)


@dataclass(frozen=True)
class _Erratum:
    """A line of `paper_errata`, with the cells that it concerns.

    Attributes:
        tables: The names of its tables.
        models: The models' names; prefixes of names if `whole` is false.
        whole: Whether `models` holds whole names.
        task: A task, or the wrong column of the whole row.
        mean: The correct average, if the paper computed it wrongly.
        text: The finding in one text.
    """

    tables: frozenset[str]
    models: tuple[str, ...]
    whole: bool
    task: str
    mean: float | None
    text: str

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> "_Erratum":
        numbers = re.findall(r"\d+", line["table"]) if line["table"].startswith("Table") else []
        model, right = line["model"], line["corrected_or_recomputed"]
        stem, _, other = model.partition(",")[0].partition("/")
        models = (stem, stem[: -len(other)] + other) if other else (stem,)
        every = model in ("all rows", "both rows")
        return cls(
            tables=frozenset(f"Table {number}" for number in numbers),
            models=("",) if every else models,
            whole=not every and model == stem,
            task=line["task"],
            mean=float(right) if re.fullmatch(r"\d+\.\d+", right) else None,
            text=f"{line['table']}, {model}, {line['task']}: printed {line['printed']} "
            f"-> {right}: {line['evidence']}",
        )

    def concerns(self, table: str, model: str, task: str) -> bool:
        """Whether it concerns a cell."""
        named = model in self.models if self.whole else model.startswith(self.models)
        return (
            table in self.tables and named and self.task in (task, "name", "lambda", "train_data")
        )
