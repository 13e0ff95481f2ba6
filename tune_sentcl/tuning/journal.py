"""Write ended configurations to an Optuna journal for optuna-dashboard; no search reads it."""

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tune_sentcl.config import varied
from tune_sentcl.history import Configuration
from tune_sentcl.objective import objective_named
from tune_sentcl.space import Space
from tune_sentcl.tuning.sampler import distributions


class JournalMirror:
    """Appends ended configurations to a journal; the first call of `add` starts a new journal.

    After its first error it warns once through `note` and stops; the search continues.
    """

    def __init__(
        self, path: Path, space: Space, objectives: Sequence[str], note: Callable[[str], None]
    ) -> None:
        self._path, self._space, self._objectives, self._note = path, space, objectives, note
        self._study: optuna.Study | None = None
        self._added: set[str] = set()
        self._failed = False
        points = [config.dotted() for config in space.configurations]
        axes = {key: [p[key] for p in points if p.get(key) is not None] for key in varied(points)}
        self._axes = {k: _axis(v) for k, v in axes.items() if len(set(map(str, v))) > 1}

    def add(self, ended: Iterable[Configuration]) -> None:
        """Append the configurations that have a result and are not in the journal."""
        if self._failed:
            return
        try:
            self._study = study = self._study or self._new_study()
            for configuration in ended:
                if configuration.results and configuration.name not in self._added:
                    self._added.add(configuration.name)
                    study.add_trial(self._trial(configuration))
        except Exception as error:  # noqa: BLE001 - the disk and Optuna raise many types
            self._failed = True
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            self._note(f"{self._path} gets no further trials: {reason}.")

    def _new_study(self) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._path.unlink(missing_ok=True)  # if the path is a link, only the link is removed
        storage = optuna.storages.JournalStorage(_Backend(str(self._path)))
        costs = [objective_named(name).is_cost for name in self._objectives]
        both = StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE
        name, sides = self._space.name, [both[is_cost] for is_cost in costs]
        study = optuna.create_study(study_name=name, directions=sides, storage=storage)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names(list(self._objectives))
        return study

    def _trial(self, configuration: Configuration) -> FrozenTrial:
        """A trial of the journal: hyperparameters (in ranges, or varied in the grid), results."""
        params = self._space.params_of(configuration.values)
        axes = distributions(self._space, params) if params else None
        if params is None or axes is None:
            axes = {k: v for k, v in self._axes.items() if configuration.values.get(k) is not None}
            params = {key: _plain(configuration.values[key]) for key in axes}
        statuses = {result.status for result in configuration.results.values()}
        means = [
            configuration.mean(configuration.scores(n), n) for n in range(len(self._objectives))
        ]
        values = [value for value in means if value is not None]
        state = TrialState.COMPLETE if "finished" in statuses else TrialState.PRUNED
        if "failed" in statuses or ("finished" in statuses and len(values) < len(means)):
            state = TrialState.FAIL
        points = next((r.stages for r in configuration.results.values() if r.stages), {})
        return optuna.trial.create_trial(
            state=state,
            values=values if state == TrialState.COMPLETE else None,
            params=params,
            distributions=axes,
            user_attrs={"configuration": configuration.name},
            intermediate_values={round(100 * s): points[s] for s in points if len(means) == 1},
        )


class _Backend(JournalFileBackend):
    """Appends without fsync and without Optuna's lock (up to 30 s), because one process writes."""

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        with Path(self._file_path).open("ab") as file:
            file.write("".join(json.dumps(log) + "\n" for log in logs).encode())


def _axis(values: Sequence[Any]) -> IntDistribution | FloatDistribution | CategoricalDistribution:
    kinds = {type(value) for value in values}
    if kinds <= {int, float}:
        number = IntDistribution if kinds == {int} else FloatDistribution
        return number(min(values), max(values))
    return CategoricalDistribution(list(dict.fromkeys(map(_plain, values))))


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | bool) else str(value)
