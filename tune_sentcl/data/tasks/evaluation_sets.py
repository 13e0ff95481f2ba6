"""Load the evaluation sets that the configured suites and protocols need."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self, get_args

from tune_sentcl.config import ProtocolName, SuiteName
from tune_sentcl.config.data_names import own_sources
from tune_sentcl.data.root import existing_root
from tune_sentcl.data.task import Prompt, StsSplit, StsTask, TransferTask
from tune_sentcl.data.tasks.own import read_own
from tune_sentcl.data.tasks.own_task import (
    OwnTask,
    objectives_of,
    with_cutoffs,
)
from tune_sentcl.data.tasks.sts_data import load_sts, read_task
from tune_sentcl.data.tasks.transfer_data import TASKS, read_transfer, read_truncated
from tune_sentcl.data.toy import toy_sts, toy_transfer
from tune_sentcl.errors import DataError
from tune_sentcl.objective import DEFAULT, Objective

RATED = ("STS-B", "SICK-R")
"""The tasks of the protocol `relatedness`, which trains a regression."""

TRUNCATED = ("MR", "SUBJ")
"""The tasks whose files were truncated in the SCL paper."""

_Group = Literal["transfer", "rated", "truncated"]


@dataclass(frozen=True)
class RatedTask:
    """STS-B or SICK-R with the splits for training, stopping and testing a regression."""

    train: StsTask
    dev: StsTask
    test: StsTask


@dataclass(frozen=True)
class Unread:
    """A task that could not be read, with its group."""

    group: _Group
    task: str
    error: DataError


@dataclass(frozen=True)
class EvaluationSets:
    """The sets to score on, and the tasks that could not be read.

    Attributes:
        data: `toy`, or `root` for the data root.
        sts: The tasks of the protocol `cosine`.
        transfer: The tasks of `logreg-10fold`, `senteval-10fold` and `senteval-5fold`.
        rated: The tasks of `relatedness`.
        truncated: The tasks of `scl-paper-compat`.
        unread: The tasks that were requested and could not be read.
        own: Custom tasks, each for the protocol of its kind.
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
        """Every task that is scored by cosine; custom tasks come last."""
        return (*self.sts, *(task for task in self.own if isinstance(task, StsTask)))

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Possible stage objectives: STS-B dev if loaded, and every score of custom tasks."""
        benchmark = any((t.name, t.split) == (DEFAULT.task, DEFAULT.split) for t in self.sts)
        own = chain.from_iterable(map(objectives_of, self.own))
        return (*([DEFAULT] if benchmark else []), *own)

    def with_cutoffs(self, cutoffs: Iterable[int], objectives: Iterable[Objective]) -> Self:
        """The same sets with added retrieval cut-offs; see `own_task.with_cutoffs`."""
        own = tuple(with_cutoffs(task, cutoffs, objectives) for task in self.own)
        return replace(self, own=own)

    def sentences(self) -> Iterator[str]:
        """Every sentence, including repeats."""
        for prompt in get_args(Prompt):
            yield from self.texts(prompt)

    def texts(self, prompt: Prompt = "text") -> Iterator[str]:
        """The sentences to embed with a prompt, including repeats."""
        if prompt == "text":
            yield from self._of_suites()
        for mine in self.own:
            yield from mine.texts(prompt)

    def _of_suites(self) -> Iterator[str]:
        rated = (
            task
            for rated_task in self.rated
            for task in (rated_task.train, rated_task.dev, rated_task.test)
        )
        for task in (*self.sts, *rated):
            for subset in task.subsets:
                yield from subset.sentences1
                yield from subset.sentences2
        for transfer in (*self.transfer, *self.truncated):
            for part in transfer.parts:
                yield from part.first
                yield from part.second or ()


def load_sets(
    data: Literal["toy", "root"],
    root: Path | None,
    suites: Collection[SuiteName],
    protocols: Collection[ProtocolName],
    own: Sequence[str] = (),
) -> EvaluationSets:
    """Read the sets that suites and protocols need.

    An STS file or a custom task that cannot be read is an error. Other tasks that cannot be read
    are listed in `unread`.

    Args:
        data: `toy` for the toy sets, `root` for the sets under the data root.
        root: The data root; used only if `data` is `root` and a suite is asked for.
        suites: The sets of tasks.
        protocols: The protocols; each applies to its suite.
        own: Entries of `evaluation.own`.

    Raises:
        DataError: The data root does not exist, or an STS file or a custom task is missing or
            damaged.
    """
    folder = existing_root(root, "the evaluation") if data == "root" and suites else Path()
    toy = data == "toy"
    rated = toy_sts if toy else partial(read_task, folder)
    transfer = toy_transfer if toy else partial(read_transfer, folder)
    wanted = set(protocols)
    readers: list[tuple[_Group, str, Callable[[], Any]]] = []
    if "sts" in suites and "relatedness" in wanted:
        readers += [("rated", name, partial(_rated, rated, name)) for name in RATED]
    if "transfer" in suites and wanted - {"cosine", "relatedness", "scl-paper-compat"}:
        readers += [("transfer", name, partial(transfer, name)) for name in TASKS]
    if "transfer" in suites and "scl-paper-compat" in wanted and not toy:
        readers += [
            ("truncated", name, partial(read_truncated, folder, name)) for name in TRUNCATED
        ]
    groups: dict[str, list[Any]] = {"rated": [], "transfer": [], "truncated": []}
    unread: list[Unread] = []
    for group, name, read in readers:
        try:
            groups[group].append(read())
        except DataError as error:
            unread.append(Unread(group, name, error))
    sts = load_sts(data, root) if "sts" in suites else ()
    sets = {group: tuple(tasks) for group, tasks in groups.items()}
    mine = tuple(task for source in own_sources(own) for task in read_own(source, data))
    return EvaluationSets(data, sts, **sets, unread=tuple(unread), own=mine)


def _rated(read: Callable[[str, StsSplit], StsTask], name: str) -> RatedTask:
    return RatedTask(read(name, "train"), read(name, "dev"), read(name, "test"))
