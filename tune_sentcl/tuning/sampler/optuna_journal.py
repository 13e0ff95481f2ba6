"""Writes a search's trials to an Optuna journal for optuna-dashboard; no search reads it."""

import copy
import json
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tune_sentcl.config import TrialConfig, varied
from tune_sentcl.space import Space
from tune_sentcl.store.provenance import mask_text

ReportedTrial = tuple[str, FrozenTrial]
"""The id of a configuration and its trial as reported to the sampler."""
_compared = attrgetter("state", "values", "params", "distributions", "intermediate_values")


class JournalMirror:
    """Writes each configuration to an Optuna journal when it begins and when it ends.

    Laws: the journal holds one trial per configuration. An existing journal is continued if each
    of its trials has been reported or will be reported in this run; otherwise it is replaced.
    After its first error the mirror warns once and stops; the search goes on.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        objectives: Sequence[str],
        trials: Iterable[ReportedTrial],
        note: Callable[[str], None],
        waiting: Collection[str] = (),
    ) -> None:
        """Bring the journal up to date with `trials`; this run will report `waiting` too."""
        self._path, self._note = path, note
        self._failed = False
        self._running = dict[str, int]()  # trial ids in the journal, by configuration
        self._attempt(lambda: self._open(name, list(objectives), dict(trials), waiting))

    def begin(self, configuration: str, trial: FrozenTrial | None) -> None:
        """Add a running configuration, unless the journal has it; a trial of None is skipped."""
        if trial is not None and configuration not in self._running:
            self._attempt(lambda: self._add(configuration, trial))

    def add(self, configuration: str, trial: FrozenTrial) -> None:
        """Add an ended configuration, or end the running one."""
        self._attempt(lambda: self._add(configuration, trial))

    def _add(self, configuration: str, trial: FrozenTrial) -> None:
        running = self._running.pop(configuration, None)
        if running is not None:
            for step, value in trial.intermediate_values.items():
                self._storage.set_trial_intermediate_value(running, step, value)
            self._storage.set_trial_state_values(running, trial.state, trial.values)
            return
        shown = copy.copy(trial)
        shown.user_attrs = {**trial.user_attrs, "configuration": configuration}
        shown.system_attrs = {}  # internal data of the sampler
        number = self._storage.create_new_trial(self._study_id, shown)
        if not trial.state.is_finished():
            self._running[configuration] = number

    def _open(
        self,
        name: str,
        objectives: list[str],
        trials: dict[str, FrozenTrial],
        waiting: Collection[str],
    ) -> None:
        try:
            ended = self._continued(name, objectives, trials, waiting)
        except Exception:  # noqa: BLE001 - the file is missing, damaged or another search's
            ended = set()
            self._running.clear()
            self._path.unlink(missing_ok=True)  # of a link this removes the link only
            self._storage = JournalStorage(_Backend(self._path))
            directions = [StudyDirection.MAXIMIZE] * len(objectives)
            study = optuna.create_study(
                study_name=name, directions=directions, storage=self._storage
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                study.set_metric_names(objectives)
        self._study_id = self._storage.get_study_id_from_name(name)
        for configuration, trial in trials.items():
            if configuration not in ended:
                self._add(configuration, trial)

    def _continued(
        self,
        name: str,
        objectives: list[str],
        trials: Mapping[str, FrozenTrial],
        waiting: Collection[str],
    ) -> set[str]:
        """Load a journal and return its ended configurations; raise if it cannot be continued."""
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            is_intact = file.read() == b"\n" and not self._path.is_symlink()
        self._storage = JournalStorage(_Backend(self._path))
        study = optuna.load_study(study_name=name, storage=self._storage)
        listed = study.get_trials(deepcopy=False)
        journal_trials = {trial.user_attrs["configuration"]: trial for trial in listed}
        running = {one for one, trial in journal_trials.items() if not trial.state.is_finished()}
        ended = journal_trials.keys() - running
        if (
            not (
                is_intact
                and study.metric_names == objectives
                and len(journal_trials) == len(listed)
            )
            or not running <= {*trials, *waiting}
            or not all(_compared(journal_trials[one]) == _compared(trials[one]) for one in ended)
        ):
            raise ValueError("the journal holds other trials")
        number_to_id = self._storage.get_trial_id_from_study_id_trial_number
        study_id = self._storage.get_study_id_from_name(name)
        self._running = {
            one: number_to_id(study_id, journal_trials[one].number) for one in running
        }
        return ended

    def _attempt(self, action: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001 - the disk and Optuna raise many types
            self._failed = True
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            self._note(f"{self._path} gets no further trials: {reason}.")


class _Backend(JournalFileBackend):
    """Appends without Optuna's lock, which may wait 30 s, and without fsync.

    The search is the only writer, and a journal that lost lines is written again.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        with self._path.open("ab") as file:
            file.write(text.encode())


class GridAxes:
    """Makes Optuna trials for grid points outside the ranges; no sampler learns from them.

    Their params are the knobs that differ between grid points. Each knob ranges from its lowest to
    its highest value.
    """

    def __init__(self, space: Space) -> None:
        points = [config.dotted() for config in space.configurations]
        self._axes: dict[str, BaseDistribution] = {}
        for key in varied(points):
            values = [point[key] for point in points if point.get(key) is not None]
            if key != "seed" and len(set(map(str, values))) > 1:
                self._axes[key] = _axis(values)

    def trial(
        self,
        config: TrialConfig,
        state: TrialState,
        values: Sequence[float] | None,
        intermediate_values: Mapping[int, float],
        user_attrs: Mapping[str, Any],
    ) -> FrozenTrial:
        """A grid trial for the journal; the arguments are those of `sampling.frozen_trial`."""
        point = config.dotted()
        params = {key: _plain(point[key]) for key in self._axes if point.get(key) is not None}
        return optuna.trial.create_trial(
            state=state,
            values=values,
            params=params,
            distributions={key: self._axes[key] for key in params},
            intermediate_values=dict(intermediate_values),
            user_attrs=dict(user_attrs),
        )


def _axis(values: Sequence[Any]) -> BaseDistribution:
    kinds = {type(value) for value in values}
    if kinds == {int}:
        return IntDistribution(min(values), max(values))
    if kinds <= {int, float}:
        return FloatDistribution(min(values), max(values))
    return CategoricalDistribution(list(dict.fromkeys(map(_plain, values))))


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | bool) else mask_text(str(value))
