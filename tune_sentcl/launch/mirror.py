"""A copy of what the sampler knows, for optuna-dashboard; nothing depends on it."""

import copy
import json
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

Told = tuple[str, FrozenTrial]
"""An ended trial and the id of the configuration that it stands for."""
_Log = dict[str, Any]

_CONFIGURATION = "configuration"
_NOTED = {"user_attr", "system_attr"}  # what a dashboard's user may have written beside the trials
# What a disk refuses, and what Optuna does with a trial or a journal that it does not take.
_TROUBLE = (OSError, ValueError, TypeError, LookupError, RuntimeError)


class JournalMirror:
    """Appends configurations to an Optuna journal, as they begin and as they are told.

    Laws: the journal holds one created trial a configuration; it is continued where all that it
    holds is told or will be, and else written anew; trouble with it is said once, and ends
    nothing.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        objectives: Sequence[str],
        told: Iterable[Told],
        note: Callable[[str], None],
        waiting: Collection[str] = (),
    ) -> None:
        """Bring the journal up to what is told.

        A driver that was killed leaves a journal that lags behind, perhaps with half a line at
        its end, and Optuna's lock. The study's own lock says that no other driver is there.

        Args:
            path: The journal's file.
            name: The Optuna study's name.
            objectives: Names of the values that a trial has, all maximized.
            told: The trials so far.
            note: Takes the one line that says what went wrong.
            waiting: The configurations that are sure to be told in this run.
        """
        self._path, self._note = path, note
        self._silent = False
        self._created, self._open = 0, dict[str, int]()  # trials there, and which have not ended
        self._attempt(lambda: self._take_up(name, objectives, dict(told), waiting))

    def begin(self, configuration: str, trial: FrozenTrial | None) -> None:
        """Append one configuration that is under way, unless it is there; None cannot be shown."""
        if trial is not None and configuration not in self._open:
            self._attempt(lambda: self._begin(configuration, trial))

    def add(self, configuration: str, trial: FrozenTrial) -> None:
        """Append one told configuration, or that it has ended."""
        self._attempt(lambda: self._append(self._told(configuration, trial)))

    def _begin(self, configuration: str, trial: FrozenTrial) -> None:
        self._append([_line(self._writer, configuration, trial)])
        self._open[configuration] = self._created
        self._created += 1

    def _told(self, configuration: str, trial: FrozenTrial) -> Iterator[bytes]:
        number = self._open.pop(configuration, None)
        if number is None:
            yield _line(self._writer, configuration, trial)
            self._created += 1
        else:
            yield from map(_encoded, self._writer.ending(number, trial))

    def _take_up(
        self,
        name: str,
        objectives: Sequence[str],
        told: dict[str, FrozenTrial],
        waiting: Collection[str],
    ) -> None:
        self._writer = _Writer(name, objectives)
        file = self._path.name
        whole, lock = (self._path.with_name(f"{file}{ending}") for ending in (".new", ".lock"))
        for stale in (whole, lock, *self._path.parent.glob(f"{file}.lock*.rename")):
            stale.unlink(missing_ok=True)
        held = _held(self._path, self._writer.head, told)
        if held is not None and held.under_way.keys() <= {*told, *waiting}:
            self._created, self._open = held.created, held.under_way
            lacking = [one for one in told.items() if one[0] not in held.ended]
            self._append(line for one in lacking for line in self._told(*one))
            return
        self._created = len(told)
        with whole.open("xb") as out:  # through no link
            out.writelines(map(_encoded, self._writer.head))
            out.writelines(_line(self._writer, *one) for one in told.items())
        whole.replace(self._path)

    def _append(self, lines: Iterable[bytes]) -> None:
        with self._path.open("ab") as file:  # opened anew: a lost journal is no reason to stop
            file.writelines(lines)

    def _attempt(self, action: Callable[[], None]) -> None:
        if self._silent:
            return
        try:
            action()
        except _TROUBLE as error:
            self._silent = True
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            self._note(f"{self._path} is not kept up from here on ({reason}).")


class _Writer(BaseJournalBackend):
    """Has Optuna word the lines of a journal, one trial at a time.

    A storage replays and keeps every trial of its journal. This one is shown the study's creation
    alone, again for every trial.
    """

    def __init__(self, name: str, objectives: Sequence[str]) -> None:
        self._name = name
        self.head: list[_Log] = []
        self._logs = self.head
        directions = [StudyDirection.MAXIMIZE] * len(objectives)
        study = optuna.create_study(
            study_name=name, directions=directions, storage=JournalStorage(self)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names(list(objectives))

    def worded(self, trial: FrozenTrial) -> _Log:
        self._logs = list(self.head)
        storage = JournalStorage(self)
        storage.create_new_trial(storage.get_study_id_from_name(self._name), trial)
        return self._logs[-1]

    def ending(self, number: int, trial: FrozenTrial) -> list[_Log]:
        """What a trial that began as the n-th of the journal has come to."""
        begun = copy.copy(trial)
        begun.state, begun.values, begun.intermediate_values = TrialState.RUNNING, None, {}
        begun.system_attrs, begun.datetime_complete = {}, None
        self._logs = list(self.head)
        storage = JournalStorage(self)
        there = storage.create_new_trial(storage.get_study_id_from_name(self._name), begun)
        before = len(self._logs)
        for step, value in trial.intermediate_values.items():
            storage.set_trial_intermediate_value(there, step, value)
        storage.set_trial_state_values(there, trial.state, trial.values)
        return [{**log, "trial_id": number} for log in self._logs[before:]]

    def read_logs(self, log_number_from: int) -> list[_Log]:
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[_Log]) -> None:
        # As read from a file: what the storage has written is text by then.
        self._logs.extend(json.loads(json.dumps(logs)))


def _line(writer: _Writer, configuration: str, trial: FrozenTrial) -> bytes:
    shown = copy.copy(trial)
    shown.user_attrs = {**trial.user_attrs, _CONFIGURATION: configuration}
    shown.system_attrs = {}  # the sampler's own notes
    return _encoded(writer.worded(shown))


def _encoded(log: _Log) -> bytes:
    return json.dumps(log, separators=(",", ":")).encode() + b"\n"


@dataclass
class _Held:
    """What a journal holds: how many trials, those that have ended, and the others' numbers."""

    created: int = 0
    ended: set[str] = field(default_factory=set)
    under_way: dict[str, int] = field(default_factory=dict)


def _held(path: Path, head: Sequence[_Log], told: Mapping[str, FrozenTrial]) -> _Held | None:
    """What a journal holds; None where it cannot be continued."""
    if path.is_symlink():  # to another's file
        return None
    expected, trials = iter(head), list[_Log]()
    try:
        for log in _logs(path):
            first = next(expected, None)
            if first is not None:
                fits = _unsigned(log) == _unsigned(first)
            else:
                fits = _replayed(log, trials)
            if not fits:
                return None
        found = _compared(trials, told)
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return None  # not there, torn, not Optuna's, or a configuration that is not told
    return found if next(expected, None) is None else None


def _replayed(log: _Log, trials: list[_Log]) -> bool:
    """Take what a line says over into the trials; whether it is such a line as belongs here."""
    if "params" in log:
        trials.append(log)
    elif "intermediate_value" in log:
        trials[log["trial_id"]]["intermediate_values"][log["step"]] = log["intermediate_value"]
    elif "state" in log:
        trials[log["trial_id"]] |= {"state": log["state"], "value": None, "values": log["values"]}
    else:
        return bool(_NOTED & log.keys())
    return True


def _compared(trials: Sequence[_Log], told: Mapping[str, FrozenTrial]) -> _Held | None:
    found = _Held(len(trials))
    for number, log in enumerate(trials):
        name = log["user_attrs"][_CONFIGURATION]
        if name in found.ended or name in found.under_way:
            return None
        if log["state"] == TrialState.RUNNING:
            found.under_way[name] = number
        elif _same(log, told[name]):
            found.ended.add(name)
        else:
            return None
    return found


def _logs(path: Path) -> Iterator[_Log]:
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                raise ValueError("a torn line")
            yield json.loads(line)


def _unsigned(log: _Log) -> _Log:
    return {key: value for key, value in log.items() if key != "worker_id"}


def _same(log: _Log, trial: FrozenTrial) -> bool:
    values = log["values"] if log["value"] is None else [log["value"]]
    ranges = {key: _distribution(text) for key, text in log["distributions"].items()}
    params = {key: ranges[key].to_external_repr(value) for key, value in log["params"].items()}
    curve = {int(step): value for step, value in log["intermediate_values"].items()}
    found = (log["state"], values, ranges, params, curve)
    return found == (
        trial.state,
        trial.values,
        trial.distributions,
        trial.params,
        trial.intermediate_values,
    )


@lru_cache(maxsize=1024)
def _distribution(text: str) -> BaseDistribution:
    return json_to_distribution(text)
