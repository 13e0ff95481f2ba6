"""Writes configurations to an Optuna journal for optuna-dashboard; no search reads it."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
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

from tune_sentcl.config import varied
from tune_sentcl.history import Configuration
from tune_sentcl.space import Space
from tune_sentcl.store.provenance import mask_text
from tune_sentcl.tuning.sampler.sampling import frozen_trial


class JournalMirror:
    """Writes each configuration to an Optuna journal when it begins, and its end at last.

    The journal is written anew by each run of the search, and holds one trial per configuration.
    A sampled configuration may go on after each of its stages, so it is shown as running, with the
    scores of its stages, until the search closes. After its first error the mirror warns once and
    stops; the search goes on.
    """

    def __init__(
        self,
        path: Path,
        space: Space,
        objectives: Sequence[str],
        configurations: Mapping[str, Configuration],
        note: Callable[[str], None],
    ) -> None:
        """Write a new journal with the configurations that have a result.

        Args:
            path: The journal.
            space: The space of the search; its name is the study's.
            objectives: The names of the objectives.
            configurations: Those of the search, which it goes on to fill.
            note: Receives a message about an error.
        """
        self._path, self._space, self._objectives, self._note = path, space, objectives, note
        self._found = configurations
        self._failed = False
        self._ids: dict[str, int] = {}  # of running trials in the journal
        self._seen: dict[str, set[int]] = {}
        self._axes = _grid_axes(space)
        self._attempt(self._open)

    def begin(self, name: str) -> None:
        """Show a configuration as running, unless it is shown already."""
        self._attempt(lambda: self._begin(name))

    def point(self, name: str) -> None:
        """Show the scores of a configuration's stages so far."""
        self._attempt(lambda: self._point(name))

    def end(self, name: str) -> None:
        """Show how a configuration has ended, if it has a result."""
        self._attempt(lambda: self._end(name))

    def _open(self) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._path.unlink(missing_ok=True)  # of a link this removes the link only
        self._storage = JournalStorage(_Backend(self._path))
        directions = [StudyDirection.MAXIMIZE] * len(self._objectives)
        study = optuna.create_study(
            study_name=self._space.name, directions=directions, storage=self._storage
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names(list(self._objectives))
        self._study_id = self._storage.get_study_id_from_name(self._space.name)
        for name, one in self._found.items():
            if one.results:
                self._begin(name)
                self._point(name)

    def _begin(self, name: str) -> None:
        if name not in self._ids:
            trial = self._trial(self._found[name])
            trial.user_attrs = {"configuration": name}
            self._ids[name] = self._storage.create_new_trial(self._study_id, trial)

    def _point(self, name: str) -> None:
        stages = [r.stages for r in self._found[name].results.values() if r.stages]
        for share, score in (stages[0] if stages and len(self._objectives) == 1 else {}).items():
            percent, seen = round(100 * share), self._seen.setdefault(name, set())
            if percent not in seen:
                seen.add(percent)
                self._storage.set_trial_intermediate_value(self._ids[name], percent, score)

    def _end(self, name: str) -> None:
        one = self._found[name]
        if name not in self._ids or not one.results:
            return
        means = [one.mean(one.scores(number), number) for number in range(len(self._objectives))]
        statuses = {result.status for result in one.results.values()}
        state, values = TrialState.COMPLETE, [mean for mean in means if mean is not None]
        if "failed" in statuses or (len(values) < len(means) and "finished" in statuses):
            state = TrialState.FAIL
        elif "finished" not in statuses:
            state = TrialState.PRUNED
        values_or_none = values if state == TrialState.COMPLETE else None
        self._storage.set_trial_state_values(self._ids.pop(name), state, values_or_none)

    def _trial(self, one: Configuration) -> FrozenTrial:
        """A running trial: of the ranges, else one whose params differ between grid points."""
        params = self._space.params_of(one.values)
        found = None if params is None else frozen_trial(self._space, params, TrialState.RUNNING)
        if found is not None:
            return found
        values = {key: one.values[key] for key in self._axes if one.values.get(key) is not None}
        return optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params={key: _plain(value) for key, value in values.items()},
            distributions={key: self._axes[key] for key in values},
        )

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

    The search is the only writer, and each run writes the journal anew.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        with self._path.open("ab") as file:
            file.write(text.encode())


def _grid_axes(space: Space) -> dict[str, BaseDistribution]:
    """The knobs that differ between grid points, each from its lowest to its highest value."""
    points = [config.dotted() for config in space.configurations]
    found: dict[str, BaseDistribution] = {}
    for key in varied(points):
        values = [point[key] for point in points if point.get(key) is not None]
        if key != "seed" and len(set(map(str, values))) > 1:
            found[key] = _axis(values)
    return found


def _axis(values: Sequence[Any]) -> BaseDistribution:
    kinds = {type(value) for value in values}
    if kinds == {int}:
        return IntDistribution(min(values), max(values))
    if kinds <= {int, float}:
        return FloatDistribution(min(values), max(values))
    return CategoricalDistribution(list(dict.fromkeys(map(_plain, values))))


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | bool) else mask_text(str(value))
