"""A copy of what the sampler knows, for optuna-dashboard; nothing depends on it."""

import copy
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

Told = tuple[str, FrozenTrial]
"""An ended trial and the id of the configuration that it stands for."""
_Log = dict[str, Any]

_CONFIGURATION = "configuration"
_NOTED = {"user_attr", "system_attr"}  # what a dashboard's user may have written beside the trials
# What a disk refuses, and what Optuna does with a trial or a journal that it does not take.
_TROUBLE = (OSError, ValueError, TypeError, LookupError, RuntimeError)


class JournalMirror:
    """Appends told configurations to an Optuna journal; it holds only ended ones.

    Laws: the journal holds one created trial a configuration; it is continued where all that it
    holds is told, and else written anew; trouble with it is said once, and ends nothing.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        objectives: Sequence[str],
        told: Iterable[Told],
        note: Callable[[str], None],
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
        """
        self._path, self._note = path, note
        self._silent = False
        self._attempt(lambda: self._open(name, objectives, dict(told)))

    def add(self, configuration: str, trial: FrozenTrial) -> None:
        """Append one told configuration."""
        self._attempt(lambda: self._append([_line(self._writer, configuration, trial)]))

    def _open(self, name: str, objectives: Sequence[str], told: dict[str, FrozenTrial]) -> None:
        self._writer = _Writer(name, objectives)
        file = self._path.name
        whole, lock = (self._path.with_name(f"{file}{ending}") for ending in (".new", ".lock"))
        for stale in (whole, lock, *self._path.parent.glob(f"{file}.lock*.rename")):
            stale.unlink(missing_ok=True)
        missing = _missing(self._path, self._writer.head, told)
        if missing is not None:
            self._append(_line(self._writer, *one) for one in missing.items())
            return
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


def _missing(
    path: Path, head: Sequence[_Log], told: dict[str, FrozenTrial]
) -> dict[str, FrozenTrial] | None:
    """What a journal lacks of what is told; None where it cannot be continued."""
    if path.is_symlink():  # to another's file
        return None
    missing, expected = dict(told), iter(head)
    try:
        for log in _logs(path):
            first = next(expected, None)
            if first is not None:
                fits = _unsigned(log) == _unsigned(first)
            elif "params" in log:
                fits = _same(log, missing.pop(log["user_attrs"][_CONFIGURATION]))
            else:
                fits = bool(_NOTED & log.keys())
            if not fits:
                return None
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return None  # not there, torn, not Optuna's, or a configuration that is not told
    return missing if next(expected, None) is None else None


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
