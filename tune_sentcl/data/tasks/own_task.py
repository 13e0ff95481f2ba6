"""What each kind of a user's own yardstick holds, and which scores it gives."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tune_sentcl.data.task import ClassifiedRows, StsTask
from tune_sentcl.objective import DEFAULT_CUTOFFS, RETRIEVAL, Objective, metric_cutoff

OwnSplit = Literal["dev", "test"]


@dataclass(frozen=True)
class LabeledTask:
    """Sentences with a class each, which a linear classifier learns.

    Attributes:
        name: The user's.
        split: The split that is measured; where rows to learn from are set apart, the last one.
        rows: Those to learn from; where nothing else is set apart, folds of them are scored.
        dev: Rows that choose the regularization, or None.
        test: Rows that choose nothing, or None.
        folds: A number a row, where the user has dealt the folds; else None.
        data: As a `Score` has it.
        version: Likewise.
    """

    name: str
    split: OwnSplit
    rows: ClassifiedRows
    dev: ClassifiedRows | None = None
    test: ClassifiedRows | None = None
    folds: tuple[int, ...] | None = None
    data: Literal["toy", "root"] = "root"
    version: str = ""

    @property
    def parts(self) -> tuple[ClassifiedRows, ...]:
        """The rows that are set apart from each other."""
        return tuple(part for part in (self.rows, self.dev, self.test) if part is not None)

    @property
    def offers(self) -> tuple[tuple[str, OwnSplit], ...]:
        """Metrics and splits that it gives, in their order."""
        if self.dev is None and self.test is None:
            return ("accuracy", self.split), ("macro_f1", self.split)
        dev: list[tuple[str, OwnSplit]] = [("accuracy", "dev")]
        dev += [("macro_f1", "dev")] if self.dev is not None else []
        test: list[tuple[str, OwnSplit]] = [("accuracy", "test"), ("macro_f1", "test")]
        return tuple(dev + test if self.test is not None else dev)


@dataclass(frozen=True)
class RetrievalTask:
    """Queries, documents, and which of these people judged relevant.

    Attributes:
        name: The user's.
        split: Whose judgments.
        document_ids: Falling, as `trec_eval` puts documents of equal score.
        documents: Their texts, in that order.
        queries: The texts of the queries that have judgments.
        relevance: Of each query the judged documents' ids and grades; above 0 is relevant. They
            may name documents that are not there, which no search can find.
        data: As a `Score` has it.
        version: Likewise.
        metrics: What is measured, such as `recall@5`.
    """

    name: str
    split: OwnSplit
    document_ids: tuple[str, ...]
    documents: tuple[str, ...]
    queries: tuple[str, ...]
    relevance: tuple[Mapping[str, int], ...]
    data: Literal["toy", "root"] = "root"
    version: str = ""
    metrics: tuple[str, ...] = DEFAULT_CUTOFFS

    @property
    def offers(self) -> tuple[tuple[str, OwnSplit], ...]:
        """Metrics and splits that it gives, in their order."""
        return tuple((metric, self.split) for metric in self.metrics)


@dataclass(frozen=True)
class MtebTask:
    """A task of MTEB on one of its splits; its data is MTEB's to load.

    Attributes:
        name: The user's, or MTEB's.
        split: What it counts as here.
        theirs: What MTEB calls it; several, where MTEB evaluates several that count as this.
        metric: The name of its main score.
        task: Its name in MTEB.
        data: As a `Score` has it.
        version: The revision of its data, and MTEB's version.
    """

    name: str
    split: OwnSplit
    theirs: tuple[str, ...]
    metric: str
    task: str
    data: Literal["toy", "root"] = "root"
    version: str = ""


OwnTask = StsTask | LabeledTask | RetrievalTask | MtebTask


OwnProtocol = Literal["cosine", "logreg-10fold", "retrieval", "mteb"]


def protocol_of(task: OwnTask) -> OwnProtocol:
    """How a task is scored."""
    match task:
        case StsTask():
            return "cosine"
        case LabeledTask():
            return "logreg-10fold"
        case RetrievalTask():
            return "retrieval"
        case MtebTask():
            return "mteb"


def with_cutoffs(
    task: OwnTask, cutoffs: Iterable[int], objectives: Iterable[Objective]
) -> OwnTask:
    """A task that is also scored at some cut-offs, if it is retrieval.

    Args:
        task: The task.
        cutoffs: Where every metric is wanted.
        objectives: Which bring a metric each; those of other tasks do not count.
    """
    if not isinstance(task, RetrievalTask):
        return task
    more = [f"{name}@{cutoff}" for cutoff in cutoffs for name in RETRIEVAL]
    named = (o for o in objectives if (o.task, o.protocol) == (task.name, "retrieval"))
    more += [objective.metric for objective in named if metric_cutoff(objective.metric)]
    return replace(task, metrics=tuple(dict.fromkeys((*task.metrics, *more))))


def objectives_of(task: OwnTask) -> Iterator[Objective]:
    """Every score that a task gives, in their order."""
    for metric, split in _offers(task):
        yield Objective(task.name, metric, split, protocol_of(task))


def _offers(task: OwnTask) -> tuple[tuple[str, str], ...]:
    match task:
        case StsTask():
            return ("spearman", task.split), ("pearson", task.split)
        case LabeledTask() | RetrievalTask():
            return task.offers
        case MtebTask():
            return ((task.metric, task.split),)


def queries_of(task: OwnTask) -> Iterator[str]:
    """The sentences of a task that ask, of which an encoder may want to know that they do."""
    if isinstance(task, RetrievalTask):
        yield from task.queries


def texts_of(task: OwnTask) -> Iterator[str]:
    """Every other sentence, repeats included; none of MTEB's, which brings its own."""
    match task:
        case StsTask():
            for subset in task.subsets:
                yield from subset.sentences1
                yield from subset.sentences2
        case LabeledTask():
            for part in task.parts:
                yield from part.first
        case RetrievalTask():
            yield from task.documents
        case MtebTask():
            pass


def row_count(task: OwnTask) -> int:
    """How many rows there are to score: pairs, sentences or queries; 0 where MTEB knows."""
    match task:
        case StsTask():
            return len(task)
        case LabeledTask():
            return sum(map(len, task.parts))
        case RetrievalTask():
            return len(task.queries)
        case MtebTask():
            return 0


def counted(task: OwnTask) -> str:
    """What a task holds, for people."""
    match task:
        case StsTask():
            return f"{len(task):,} pairs"
        case LabeledTask():
            rows = " + ".join(f"{len(part):,}" for part in task.parts)
            return f"{rows} sentences in {len(set(task.rows.labels))} classes"
        case RetrievalTask():
            return f"{len(task.queries):,} queries, {len(task.documents):,} documents"
        case MtebTask():
            return f"{' and '.join(task.theirs)}, {task.version}"
