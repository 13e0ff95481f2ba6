"""What an encoder is scored on: the sets that the chosen suites and protocols need."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self

from tune_sentcl.config import ProtocolName, SuiteName
from tune_sentcl.config.data_names import own_sources
from tune_sentcl.data.root import existing_root
from tune_sentcl.data.task import StsSplit, StsTask, TransferTask
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.data.tasks.own_task import (
    OwnTask,
    objectives_of,
    queries_of,
    texts_of,
    with_cutoffs,
)
from tune_sentcl.data.tasks.sts_data import load_sts, read_task
from tune_sentcl.data.tasks.transfer_data import TASKS, read_transfer, read_truncated
from tune_sentcl.data.toy.toy_sets import toy_rated, toy_transfer
from tune_sentcl.errors import DataError
from tune_sentcl.objective import DEFAULT, Objective

RATED = ("STS-B", "SICK-R")
"""The tasks that `relatedness` trains a regression on."""

TRUNCATED = ("MR", "SUBJ")
"""The tasks whose files the SCL paper had only the beginning of."""

_Group = Literal["transfer", "rated", "truncated"]


@dataclass(frozen=True)
class RatedTask:
    """STS-B or SICK-R with the splits that a regression is trained, stopped and tested on."""

    train: StsTask
    dev: StsTask
    test: StsTask


@dataclass(frozen=True)
class Unread:
    """A task that could not be read, and for which of the groups below."""

    group: _Group
    task: str
    error: DataError


@dataclass(frozen=True)
class EvaluationSets:
    """Sets to score on; those that could not be read are named beside them.

    Attributes:
        data: Whose they are: `toy`, or `root` for the data root.
        sts: For the protocol `cosine`.
        transfer: For `logreg-10fold`, `senteval-10fold` and `senteval-5fold`.
        rated: For `relatedness`.
        truncated: For `scl-paper-compat`.
        unread: What was asked for and is not here.
        own: The user's own, each for the protocol of its kind.
    """

    data: Literal["toy", "root"]
    sts: tuple[StsTask, ...] = ()
    transfer: tuple[TransferTask, ...] = ()
    rated: tuple[RatedTask, ...] = ()
    truncated: tuple[TransferTask, ...] = ()
    unread: tuple[Unread, ...] = ()
    own: tuple[OwnTask, ...] = ()

    @property
    def graded(self) -> tuple[StsTask, ...]:
        """Every task by cosine, the user's own behind the others."""
        return (*self.sts, *(task for task in self.own if isinstance(task, StsTask)))

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """What can steer a search: STS-B dev, where it is here, and every score of one's own."""
        benchmark = any((t.name, t.split) == (DEFAULT.task, DEFAULT.split) for t in self.sts)
        own = chain.from_iterable(map(objectives_of, self.own))
        return (*([DEFAULT] if benchmark else []), *own)

    def with_cutoffs(self, cutoffs: Iterable[int], objectives: Iterable[Objective]) -> Self:
        """The same, with retrieval scored as `own_task.with_cutoffs` says."""
        own = tuple(with_cutoffs(task, cutoffs, objectives) for task in self.own)
        return replace(self, own=own)

    def sentences(self) -> Iterator[str]:
        """Every sentence, repeats included."""
        yield from self.texts()
        yield from self.queries()

    def queries(self) -> Iterator[str]:
        """Those that ask, in retrieval."""
        for mine in self.own:
            yield from queries_of(mine)

    def texts(self) -> Iterator[str]:
        """Every other sentence, repeats included."""
        rated = (task for one in self.rated for task in (one.train, one.dev, one.test))
        for task in (*self.sts, *rated):
            for subset in task.subsets:
                yield from subset.sentences1
                yield from subset.sentences2
        for transfer in (*self.transfer, *self.truncated):
            for part in transfer.parts:
                yield from part.first
                yield from part.second or ()
        for mine in self.own:
            yield from texts_of(mine)


def load_sets(
    data: Literal["toy", "root"],
    root: Path | None,
    suites: Collection[SuiteName],
    protocols: Collection[ProtocolName],
    own: Sequence[str] = (),
) -> EvaluationSets:
    """Read what suites and protocols need; a task that cannot be read keeps no other one back.

    But for the user's own, which are all wanted.

    Args:
        data: Toy sets, or those under the data root.
        root: The data root; only `"root"` reads it, and only for a suite.
        suites: Which sets of tasks.
        protocols: How they will be scored; each counts for the suite that has it.
        own: Entries of `evaluation.own`.

    Raises:
        DataError: There is no data root, or an STS file or one of the user's own is missing or
            damaged.
    """
    if data == "root" and suites:
        root = existing_root(root, "the evaluation")
    wanted = set(protocols)
    readers: list[tuple[_Group, str, Callable[[], Any]]] = []
    if "sts" in suites and "relatedness" in wanted:
        readers += [("rated", name, partial(_rated, data, root, name)) for name in RATED]
    if "transfer" in suites and wanted - {"cosine", "relatedness", "scl-paper-compat"}:
        readers += [("transfer", name, partial(_transfer, data, root, name)) for name in TASKS]
    if "transfer" in suites and "scl-paper-compat" in wanted and data == "root":
        readers += [("truncated", name, partial(_truncated, root, name)) for name in TRUNCATED]
    found: dict[str, list[Any]] = {"rated": [], "transfer": [], "truncated": []}
    unread: list[Unread] = []
    for group, name, read in readers:
        try:
            found[group].append(read())
        except DataError as error:
            unread.append(Unread(group, name, error))
    sts = load_sts(data, root) if "sts" in suites else ()
    sets = {group: tuple(tasks) for group, tasks in found.items()}
    mine = tuple(task for source in own_sources(own) for task in read_own(source, data))
    return EvaluationSets(data, sts, **sets, unread=tuple(unread), own=mine)


def _transfer(data: Literal["toy", "root"], root: Path | None, name: str) -> TransferTask:
    if data == "toy":
        return next(task for task in toy_transfer() if task.name == name)
    return read_transfer(existing_root(root, "the transfer tasks"), name)


def _truncated(root: Path | None, name: str) -> TransferTask:
    return read_truncated(existing_root(root, "the transfer tasks"), name)


def _rated(data: Literal["toy", "root"], root: Path | None, name: str) -> RatedTask:
    if data == "toy":
        return RatedTask(*toy_rated(name))
    folder = existing_root(root, "the trained STS evaluation")
    splits: tuple[StsSplit, ...] = ("train", "dev", "test")
    return RatedTask(*(read_task(folder, name, split) for split in splits))
