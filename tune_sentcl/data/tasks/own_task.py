"""The kinds of own evaluation tasks, and the scores that each gives."""

import difflib
import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tune_sentcl.config.data_names import OwnSource
from tune_sentcl.data.task import ClassifiedRows, Prompt, StsTask
from tune_sentcl.errors import DataError, Fault, ResourceError, first_line
from tune_sentcl.objective import DEFAULT_CUTOFFS, RETRIEVAL, Objective, metric_cutoff
from tune_sentcl.plugins import EXTENSIONS

OwnSplit = Literal["dev", "test"]


@dataclass(frozen=True)
class LabeledTask:
    """Sentences with a class each, for a linear classifier.

    Attributes:
        name: The user's name for it.
        split: The split that is scored; with separate dev or test rows, the last of them.
        rows: Training rows; if there are no dev and test rows, folds of them are scored.
        dev: Rows that select the regularization, or None.
        test: Rows that are only scored, or None.
        data: See `Score`.
        version: See `Score`.
    """

    name: str
    split: OwnSplit
    rows: ClassifiedRows
    dev: ClassifiedRows | None = None
    test: ClassifiedRows | None = None
    data: Literal["toy", "root"] = "root"
    version: str = ""

    @property
    def parts(self) -> tuple[ClassifiedRows, ...]:
        """The splits that exist."""
        return tuple(part for part in (self.rows, self.dev, self.test) if part is not None)

    @property
    def offers(self) -> tuple[tuple[str, OwnSplit], ...]:
        """The metrics and splits that it gives, in order."""
        if self.dev is None and self.test is None:
            return ("accuracy", self.split), ("macro_f1", self.split)
        dev: list[tuple[str, OwnSplit]] = [("accuracy", "dev")]
        dev += [("macro_f1", "dev")] if self.dev is not None else []
        test: list[tuple[str, OwnSplit]] = [("accuracy", "test"), ("macro_f1", "test")]
        return tuple(dev + test if self.test is not None else dev)


@dataclass(frozen=True)
class RetrievalTask:
    """Queries, documents, and relevance judgments.

    Attributes:
        name: The user's name for it.
        split: The split of the judgments.
        document_ids: The ids of documents with text, in descending order, as `trec_eval` orders
            documents of equal score; then likewise of documents without text, which rank last.
        documents: The texts of the documents with text, in the order of their ids.
        queries: The texts of the judged queries.
        relevance: For each query, the judged documents' ids and grades; above 0 is relevant.
        left_out: For each query, the document with the query's own id, or None. BEIR and mteb
            leave it out of that query's ranking.
        data: See `Score`.
        version: See `Score`.
        metrics: The metrics, such as `recall@5`.
        untitled: The texts of documents with a title, without it, by their ids.
    """

    name: str
    split: OwnSplit
    document_ids: tuple[str, ...]
    documents: tuple[str, ...]
    queries: tuple[str, ...]
    relevance: tuple[Mapping[str, int], ...]
    left_out: tuple[str | None, ...]
    data: Literal["toy", "root"] = "root"
    version: str = ""
    metrics: tuple[str, ...] = DEFAULT_CUTOFFS
    untitled: Mapping[str, str] = field(default_factory=dict)

    @property
    def offers(self) -> tuple[tuple[str, OwnSplit], ...]:
        """The metrics and splits that it gives, in order."""
        return tuple((metric, self.split) for metric in self.metrics)


@dataclass(frozen=True)
class ForeignTask:
    """A task on one split, whose data and metrics MTEB or a plugin holds.

    Attributes:
        name: The user's name for it, or theirs.
        split: The split that it counts as here.
        theirs: The names of MTEB's splits that count as this split.
        metrics: The names of MTEB's main score, or of the plugin's metrics.
        task: Its name in MTEB or the plugin.
        protocol: Who scores it.
        data: See `Score`.
        version: The revision of its data, and MTEB's version; or the plugin's fingerprint.
    """

    name: str
    split: OwnSplit
    theirs: tuple[str, ...]
    metrics: tuple[str, ...]
    task: str
    protocol: Literal["mteb", "plugin"] = "mteb"
    data: Literal["toy", "root"] = "root"
    version: str = ""


_DEV = ("dev", "val")  # prefixes: also validation and validation.full


def mteb_task(name: str) -> Any:
    """A task of the installed `mteb`, its data not loaded.

    Raises:
        ResourceError: `mteb` is not installed.
        DataError: MTEB has no such task.
    """
    try:
        from mteb import get_task  # slow to import
    except ModuleNotFoundError as error:
        rule, move = "its package is not installed", "Run: pip install 'tune-sentcl[mteb]'."
        raise ResourceError(Fault("evaluation.own", "", f"mteb:{name}", rule, move)) from error
    try:
        return get_task(name)
    except KeyError as error:
        move = "Check its name with `mteb available-tasks`."
        fault = Fault("evaluation.own", "", f"mteb:{name}", first_line(error), move)
        raise DataError(fault) from None


def read_mteb(source: OwnSource, data: Literal["toy", "root"]) -> tuple[ForeignTask, ...]:
    """Look up a task; splits named `dev...` or `val...` count as `dev`, others as `test`.

    Raises:
        ResourceError: `mteb` is not installed.
        DataError: MTEB has no such task.
    """
    task = mteb_task(source.task)
    version = f"{task.metadata.revision}, mteb {importlib.metadata.version('mteb')}"
    theirs: dict[OwnSplit, tuple[str, ...]] = {}
    for split in task.eval_splits:
        ours: OwnSplit = "dev" if split.startswith(_DEV) else "test"
        theirs[ours] = (*theirs.get(ours, ()), split)
    of = (task.metadata.main_score,), source.task
    any_split = ForeignTask(source.name, "dev", (), *of, "mteb", data, version)
    return tuple(replace(any_split, split=s, theirs=theirs[s]) for s in sorted(theirs))


def read_plugin(source: OwnSource, data: Literal["toy", "root"]) -> tuple[ForeignTask, ...]:
    """Look up a plugin's task, for each of its splits; DataError if no loaded plugin has it."""
    found = EXTENSIONS.get(("task", source.plugin))
    if found is None:
        rule, name = "no loaded plugin defines this task", f"plugin:{source.plugin}"
        names = [task for kind, task in EXTENSIONS if kind == "task"]
        near = difflib.get_close_matches(str(source.plugin), names, 1)
        move = f"Did you mean plugin:{near[0]}?" if near else "Give its --plugin."
        raise DataError(Fault("evaluation.own", "", name, rule, move))
    of: Any = found.metrics, found.name, "plugin", data, found.fingerprint
    return tuple(ForeignTask(source.name, split, (), *of) for split in found.splits)


OwnTask = StsTask | LabeledTask | RetrievalTask | ForeignTask
QuickTask = StsTask | RetrievalTask | ForeignTask
"""The tasks that need no classifier."""
OwnProtocol = Literal["cosine", "logreg-10fold", "retrieval", "mteb", "plugin"]


def protocol_of(task: OwnTask) -> OwnProtocol:
    """The protocol that a task is scored by."""
    match task:
        case StsTask():
            return "cosine"
        case LabeledTask():
            return "logreg-10fold"
        case RetrievalTask():
            return "retrieval"
        case ForeignTask():
            return task.protocol


def with_cutoffs(
    task: OwnTask, cutoffs: Iterable[int], objectives: Iterable[Objective]
) -> OwnTask:
    """Add cut-offs to a retrieval task; other tasks are returned unchanged.

    Args:
        task: The task.
        cutoffs: Cut-offs at which every metric is added.
        objectives: Objectives whose metrics are added; objectives of other tasks are ignored.
    """
    if not isinstance(task, RetrievalTask):
        return task
    more = [f"{name}@{cutoff}" for cutoff in cutoffs for name in RETRIEVAL]
    named = (o for o in objectives if (o.task, o.protocol) == (task.name, "retrieval"))
    more += [objective.metric for objective in named if metric_cutoff(objective.metric)]
    return replace(task, metrics=tuple(dict.fromkeys((*task.metrics, *more))))


def objectives_of(task: OwnTask) -> Iterator[Objective]:
    """Every score that a task gives, in order."""
    for metric, split in _offers(task):
        yield Objective(task.name, metric, split, protocol_of(task))


def _offers(task: OwnTask) -> tuple[tuple[str, str], ...]:
    match task:
        case StsTask():
            return ("spearman", task.split), ("pearson", task.split)
        case LabeledTask() | RetrievalTask():
            return task.offers
        case ForeignTask():
            return tuple((metric, task.split) for metric in task.metrics)


def texts_of(task: OwnTask, prompt: Prompt = "text") -> Iterator[str]:
    """The sentences that are read with a prompt, except those of a `ForeignTask`."""
    match task, prompt:
        case RetrievalTask(), "query":
            yield from task.queries
        case RetrievalTask(), "document":
            yield from task.documents
        case StsTask(), "text":
            for subset in task.subsets:
                yield from subset.sentences1
                yield from subset.sentences2
        case LabeledTask(), "text":
            for part in task.parts:
                yield from part.first
        case _:
            pass


def row_count(task: OwnTask) -> int:
    """The number of pairs, sentences or queries to score; 0 for a `ForeignTask`."""
    match task:
        case StsTask():
            return len(task)
        case LabeledTask():
            return sum(map(len, task.parts))
        case RetrievalTask():
            return len(task.queries)
        case ForeignTask():
            return 0


def counted(task: OwnTask) -> str:
    """The size of a task as text."""
    match task:
        case StsTask():
            return f"{len(task):,} pairs"
        case LabeledTask():
            rows = " + ".join(f"{len(part):,}" for part in task.parts)
            return f"{rows} sentences in {len(set(task.rows.labels))} classes"
        case RetrievalTask():
            return f"{len(task.queries):,} queries, {len(task.document_ids):,} documents"
        case ForeignTask():
            return ", ".join((*task.theirs, task.version))


def remarks_on(task: OwnTask) -> Iterator[str]:
    """Notes for a reader of the task's scores: documents that are ranked specially."""
    if not isinstance(task, RetrievalTask):
        return
    if empty := len(task.document_ids) - len(task.documents):
        yield f"{task.name} has {empty:,} documents without text, which rank last"
    if own := [document for document in task.left_out if document is not None]:
        pairs = zip(task.left_out, task.relevance, strict=True)
        lost = sum(grades.get(document or "", 0) > 0 for document, grades in pairs)
        judged = f" ({lost:,} of them are judged relevant: rename ids that match by chance)"
        yield (
            f"{task.name} {task.split} leaves out of {len(own):,} rankings the document with the "
            f"query's own id, as BEIR does{judged if lost else ''}"
        )
