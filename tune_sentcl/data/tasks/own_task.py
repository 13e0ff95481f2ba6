"""The kinds of custom evaluation tasks, and the scores that each kind yields."""

import difflib
import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from tune_sentcl.config.data_names import OwnSource
from tune_sentcl.data.task import ClassifiedRows, Prompt, ScoredTask, StsTask
from tune_sentcl.errors import DataError, Fault, ResourceError, first_line
from tune_sentcl.objective import DEFAULT_CUTOFFS, RETRIEVAL, Objective, metric_cutoff
from tune_sentcl.plugins import EXTENSIONS

OwnSplit = Literal["dev", "test"]


@dataclass(frozen=True)
class LabeledTask(ScoredTask):
    """Sentences with a class each, which a linear classifier predicts.

    Attributes:
        name: The user's name for it.
        split: The split that is scored; with separate dev and test rows, test.
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
    protocol: ClassVar = "logreg-10fold"

    @property
    def parts(self) -> tuple[ClassifiedRows, ...]:
        """The splits that exist."""
        return tuple(part for part in (self.rows, self.dev, self.test) if part is not None)

    @property
    def offers(self) -> tuple[tuple[str, OwnSplit], ...]:
        """The metrics and splits that the task yields, in order."""
        if self.dev is None and self.test is None:
            return ("accuracy", self.split), ("macro_f1", self.split)
        dev: list[tuple[str, OwnSplit]] = [("accuracy", "dev")]
        dev += [("macro_f1", "dev")] if self.dev is not None else []
        test: list[tuple[str, OwnSplit]] = [("accuracy", "test"), ("macro_f1", "test")]
        return tuple(dev + test if self.test is not None else dev)

    @property
    def num_rows(self) -> int:
        """The number of sentences to score."""
        return sum(map(len, self.parts))

    @property
    def size(self) -> str:
        """Its numbers of rows and classes, as text."""
        rows = " + ".join(f"{len(part):,}" for part in self.parts)
        return f"{rows} sentences in {len(set(self.rows.labels))} classes"

    def texts(self, prompt: Prompt = "text") -> Iterator[str]:
        """The sentences to embed with a prompt."""
        for part in self.parts if prompt == "text" else ():
            yield from part.first


@dataclass(frozen=True)
class RetrievalTask(ScoredTask):
    """Queries, documents, and relevance judgments.

    Attributes:
        name: The user's name for it.
        split: The split of the judgments.
        document_ids: The ids of documents: first those with text, then those without, which rank
            last. Both parts are in descending order, as `trec_eval` orders documents of equal
            score.
        documents: The texts of the documents with text, in the order of their ids.
        queries: The texts of the judged queries.
        relevance: For each query, the judged documents' ids and grades; a grade above 0 means
            relevant.
        left_out: For each query, the document that has the query's id, or None. BEIR and mteb
            leave this document out of the query's ranking.
        data: See `Score`.
        version: See `Score`.
        metrics: The metrics, such as `recall@5`.
        untitled: By id, the texts of titled documents without their titles.
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
    protocol: ClassVar = "retrieval"

    @property
    def num_rows(self) -> int:
        """The number of queries to score."""
        return len(self.queries)

    @property
    def offers(self) -> tuple[tuple[str, OwnSplit], ...]:
        """The metrics and splits that the task yields, in order."""
        return tuple((metric, self.split) for metric in self.metrics)

    @property
    def size(self) -> str:
        """Its numbers of queries and documents, as text."""
        return f"{len(self.queries):,} queries, {len(self.document_ids):,} documents"

    def texts(self, prompt: Prompt = "text") -> Iterator[str]:
        """The texts to embed with a prompt."""
        texts = {"query": self.queries, "document": self.documents}
        yield from texts.get(prompt, ())

    def remarks(self) -> Iterator[str]:
        """Remarks on its scores, for the user: documents that are ranked in a special way."""
        if empty := len(self.document_ids) - len(self.documents):
            yield f"{self.name} has {empty:,} documents without text, which rank last"
        if own := [document for document in self.left_out if document is not None]:
            pairs = zip(self.left_out, self.relevance, strict=True)
            lost = sum(grades.get(document or "", 0) > 0 for document, grades in pairs)
            judged = f" ({lost:,} of them are judged relevant: rename ids that match by chance)"
            yield (
                f"{len(own):,} rankings of {self.name} {self.split} leave out the document with "
                f"the query's own id, as BEIR does{judged if lost else ''}"
            )


@dataclass(frozen=True)
class ForeignTask(ScoredTask):
    """A task on one split, whose data and metrics MTEB or a plugin holds.

    Attributes:
        name: The user's name of the task, or the name in MTEB or the plugin.
        split: The split that its scores get in the study.
        theirs: MTEB's names of the splits that are scored as `split`.
        metrics: The names of MTEB's main score, or of the plugin's metrics.
        task: Its name in MTEB or the plugin.
        protocol: The protocol that scores it.
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

    @property
    def offers(self) -> tuple[tuple[str, OwnSplit], ...]:
        """The metrics and splits that the task yields, in order."""
        return tuple((metric, self.split) for metric in self.metrics)

    @property
    def num_rows(self) -> int:
        """The number of rows, which is not known here: 0."""
        return 0

    @property
    def size(self) -> str:
        """Its data: MTEB's splits and the version, as text."""
        return ", ".join((*self.theirs, self.version))


_DEV = ("dev", "val")  # a split is a dev split if its name begins so, as `validation.full`


def mteb_task(name: str) -> Any:
    """A task of the installed `mteb`, without its data.

    Raises:
        ResourceError: `mteb` is not installed.
        DataError: MTEB has no such task.
    """
    try:
        # This import is not at the top, because it is slow.
        from mteb import get_task
    except ModuleNotFoundError as error:
        rule, move = "the package mteb is not installed", "Run: pip install 'tune-sentcl[mteb]'."
        raise ResourceError(
            Fault("evaluation.own", value=f"mteb:{name}", rule=rule, move=move)
        ) from error
    try:
        return get_task(name)
    except KeyError as error:
        move = "Check the task's name with `mteb available-tasks`."
        fault = Fault("evaluation.own", value=f"mteb:{name}", rule=first_line(error), move=move)
        raise DataError(fault) from None


def read_mteb(source: OwnSource, data: Literal["toy", "root"]) -> tuple[ForeignTask, ...]:
    """Look up an MTEB task; its splits `dev...` and `val...` count as `dev`, others as `test`.

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
    """Look up a plugin's task, for each of its splits.

    Raises:
        DataError: No loaded plugin defines the task.
    """
    found = EXTENSIONS.get(("task", source.plugin))
    if found is None:
        rule, name = "no loaded plugin defines this task", f"plugin:{source.plugin}"
        names = [task for kind, task in EXTENSIONS if kind == "task"]
        near = difflib.get_close_matches(str(source.plugin), names, 1)
        move = f"Did you mean plugin:{near[0]}?" if near else "Load its plugin by --plugin."
        raise DataError(Fault("evaluation.own", value=name, rule=rule, move=move))
    of: Any = found.metrics, found.name, "plugin", data, found.fingerprint
    return tuple(ForeignTask(source.name, split, (), *of) for split in found.splits)


OwnTask = StsTask | LabeledTask | RetrievalTask | ForeignTask
QuickTask = StsTask | RetrievalTask | ForeignTask
"""The tasks that need no classifier."""


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
    for metric, split in task.offers:
        yield Objective(task.name, metric, split, task.protocol)
