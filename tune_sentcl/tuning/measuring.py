"""Add tasks and scores to a study: `tune-sentcl measure`."""

import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from tune_sentcl.config import TrialConfig, parse_dotted, shown
from tune_sentcl.errors import ConfigError, Fault, StudyError
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.history import Action, Assignment, History
from tune_sentcl.plugins import Plugin
from tune_sentcl.results.standings import Standings
from tune_sentcl.score import Measurement
from tune_sentcl.space import Space
from tune_sentcl.store.driver import StudyDriver
from tune_sentcl.store.manifest import SearchRecord
from tune_sentcl.store.study import Study
from tune_sentcl.trial.inputs import measures_of
from tune_sentcl.tuning.first_checks import first_checks
from tune_sentcl.tuning.keeping import Keeping
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import MEASURED, Question, ask, stored_config, united_measures
from tune_sentcl.tuning.queue import Queue, read_history
from tune_sentcl.tuning.search import Launcher, SearchOutcome, drive, limits_of, watched
from tune_sentcl.watch.terminal import RichWatcher

_PREFIX = "evaluation."


@dataclass(frozen=True)
class Request:
    """A request of `measure`.

    Attributes:
        settings: Dotted keys of `evaluation` that add tasks and scores.
        best: Which trials without kept weights to train again. None: no trial. 0: those of winner,
            baseline and runner-up. N: those of the N best
            configurations.
        plugins: The plugins of the study's methods and tasks.
    """

    settings: Mapping[str, Any]
    best: int | None = None
    plugins: tuple[Plugin, ...] = ()


def measure_study(
    path: str,
    request: Request,
    data: str | Path | None,
    options: SearchOptions,
    launcher: Launcher,
    watcher: RichWatcher,
) -> SearchOutcome:
    """Score every kept model of a study by the study's scores and by further ones.

    After an interruption, a repeated call scores the trials that still lack a score.

    Args:
        path: The study.
        request: The scores to add, and the trials to train again.
        data: The data root; None takes TUNE_SENTCL_DATA.
        options: Resources and limits.
        launcher: The launcher of the trials.
        watcher: Receives messages and events.

    Raises:
        BadInputError: A setting, a task or the study is wrong.
    """
    study = Study.read(path)
    search, rows = study.manifest.search, _finished(study)
    if not rows or search is None:
        rule, move = "has no finished trial to score", "Search first."
        raise StudyError(Fault(path, rule=rule, move=move))
    recorded = study.manifest.measured or reduce(united_measures, map(_own_measures, rows))
    measured = _extended(recorded, request.settings, _config(rows[0], recorded))
    configs = {
        name: _config(row, measured)
        for name, row in {row["configuration"]: row for row in rows}.items()
    }
    options = replace(
        options,
        samples=0,
        budget=None,
        confirm=0,
        learn_from=(),
        objectives=search.objectives,
        stage_objective=search.stage_objective or None,
        allow_test_objective=True,
        allow_overlap=True,  # the search has already checked for rows that are also in a task
        keep=sys.maxsize,
    )
    seeds = {row["seed"] for row in rows}
    space = _space(study, configs.values(), seeds, request.plugins)
    first_checks(space, options, path)
    question = ask(space, data, space.seeds, options, path, watcher=watcher, extends=True)
    history = read_history(question, study)
    wanted = {name: _wanted(config, question) for name, config in configs.items()}
    lacking = [r for r in rows if history.lacks(r["trial_id"], wanted[r["configuration"]])]
    present = [row for row in lacking if _is_same(row, configs, question)]
    if changed := len(lacking) - len(present):
        why = "the data, the checkpoint or the plugin of these trials has changed since they began"
        watcher.say(f"{changed} trials that lack a score are not scored, because {why}")
    actions = _actions(study, present, history.weights, request.best, watcher)
    origins = {row["trial_id"]: row["origin"] for row in rows}
    queue = _Measurements(question, history, search, actions, origins)
    limits = limits_of(options)
    with (
        launcher(question, path) as launch,
        StudyDriver.open(path, space=space, command=sys.argv, say=watcher.say) as driver,
    ):
        _refuse_changed(driver.study, study, rows)
        driver.record(measured=measured)
        keeping = _KeepAll(driver, queue, question)
        with watched(question, queue, driver, path, limits, keeping=keeping) as session:
            drive(session, launch)
    left = queue.total - queue.done
    if session.stop_reason:
        more = f"{left} of {queue.total} trials are left; repeat the command to continue"
        watcher.say(f"{session.stop_reason}: {more}")
    return SearchOutcome(
        study=path,
        trials=len(actions),
        ran=session.ended,
        failures=session.failures - session.timed_out,
        timed_out=session.timed_out,
        exhausted=False,
        ended_by=session.stop_reason or "",
        to_run=left + session.failures,
        untried=left,
    )


def _actions(
    study: Study,
    lacking: Sequence[Mapping[str, Any]],
    kept: Collection[str],
    best: int | None,
    watcher: RichWatcher,
) -> dict[str, Action]:
    """The action for each trial that lacks a score; it also reports trials that are left out."""
    actions: dict[str, Action] = {
        r["trial_id"]: "measure" for r in lacking if r["trial_id"] in kept
    }
    without = [row for row in lacking if row["trial_id"] not in actions]
    names = () if best is None else _best(study, best)
    again = [row for row in without if row["configuration"] in names]
    actions |= {row["trial_id"]: "train" for row in again}
    if best is not None:
        watcher.say(f"{len(again)} trials of {len(names)} configurations are trained again")
    if left := len(without) - len(again):
        text = f"{left} trials lack a score, and their weights were not kept"
        way = "; with --train, those of the best configurations are trained again" * (best is None)
        watcher.say(text + way)
    return actions


def _finished(study: Study) -> list[dict[str, Any]]:
    names = ["trial_id", "configuration", "seed", "origin", "status", "config"]
    rows = study.trials(names).to_pylist()
    return [row for row in rows if row["status"] == "finished"]


def _refuse_changed(now: Study, before: Study, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise StudyError if another command has written to a study since it was read."""
    if (now.manifest.measured, _finished(now)) != (before.manifest.measured, rows):
        rule = "another command has changed this study in the meantime"
        raise StudyError(Fault(now.files.where, rule=rule, move="Repeat the command."))


def _config(row: Mapping[str, Any], measured: Mapping[str, Any]) -> TrialConfig:
    return stored_config(row["config"], f"trial {row['trial_id']}", measured)


def _extended(
    recorded: Mapping[str, Any], settings: Mapping[str, Any], config: TrialConfig
) -> dict[str, Any]:
    """The values of `MEASURED` of a study, extended by the settings.

    Raises:
        ConfigError: A setting is not in `MEASURED`, or its value is wrong.
    """
    faults = []
    for key, value in settings.items():
        if not key.startswith(_PREFIX) or key.removeprefix(_PREFIX) not in MEASURED:
            rule = "does not set what is scored"
            names = ", ".join(f"{_PREFIX}{name}" for name in MEASURED)
            faults.append(
                Fault("--set", key=key, value=shown(value), rule=rule, move=f"Set one of {names}.")
            )
    if faults:
        raise ConfigError(faults)
    added = {key.removeprefix(_PREFIX): value for key, value in settings.items()}
    # A list is checked together with the study's own, because most tasks alone make no valid
    # search.
    lists = {name: value for name, value in added.items() if isinstance(value, list | tuple)}
    whole = {**added, **{name: united_measures(recorded, lists)[name] for name in lists}}
    values = {f"{_PREFIX}{name}": value for name, value in whole.items()}
    asked = parse_dotted({**config.dotted(), **values}, "--set").evaluation
    return united_measures(recorded, {name: getattr(asked, name) for name in added})


def _own_measures(row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `MEASURED` from a trial's config, for a study that has not recorded them."""
    evaluation = _config(row, {}).evaluation
    return {name: getattr(evaluation, name) for name in MEASURED}


def _space(
    study: Study, configs: Iterable[TrialConfig], seeds: Iterable[int], plugins: Any
) -> Space:
    """The configurations of a study as a search space without ranges."""
    return Space(
        name=study.manifest.space,
        paper="",
        tables=(),
        summary="trials that are scored again",
        configurations=tuple(configs),
        base={},
        ranges=(),
        seeds=tuple(sorted(seeds)),
        text=study.manifest.space_texts[-1],
        source=study.files.where,
        plugins=tuple(plugins),
    )


def _wanted(config: TrialConfig, question: Question) -> frozenset[Measurement]:
    """The measurements that the trials of a configuration should have."""
    inputs = question.namer.inputs(config.dotted())
    return frozenset(expected_measurements(inputs.sets, measures_of(config)))


def _is_same(
    row: Mapping[str, Any], configs: Mapping[str, TrialConfig], question: Question
) -> bool:
    """Whether a trial's inputs are the same as when it began."""
    values = configs[row["configuration"]].dotted()
    return question.namer.trial_ids(values, [row["seed"]]) == [row["trial_id"]]


def _best(study: Study, best: int) -> list[str]:
    """The best configurations; for 0, winner, baseline and runner-up."""
    configurations = Standings.read(study)
    if not best:
        return list(configurations.contenders())
    return [each.name for each in configurations.scored()[:best]]


class _Measurements(Queue):
    """A queue of finished trials to score or train again."""

    def __init__(
        self,
        question: Question,
        history: History,
        record: SearchRecord,
        actions: Mapping[str, Action],
        origins: Mapping[str, Any],
    ) -> None:
        self._actions, self._origins = dict(actions), origins
        super().__init__(question, history, record)
        self._queue, self._again = deque(actions), set(actions)

    def _hand_out(self, trial_id: str, until: float) -> Assignment:
        self.running.add(trial_id)
        return self._assignment(trial_id)

    def _assignment(self, trial_id: str) -> Assignment:
        assignment = self.configurations.assignment(trial_id)
        origin, action = self._origins[trial_id], self._actions[trial_id]
        return replace(assignment, origin=origin, action=action)

    def assignments(self) -> Iterator[Assignment]:
        """The trials to score or train again, each with the origin that the study has recorded."""
        return map(self._assignment, self._actions)

    def _grid_runs(self) -> dict[str, bool]:
        return {trial_id: trial_id not in self._again for trial_id in self._actions}


class _KeepAll(Keeping):
    """Keeps all weights, and deletes states as during a search."""

    def keep_best_checkpoints(self) -> None:
        """Keep all weights."""

    def drop_states(self, *, complete: bool) -> None:
        """Delete the states that a running search would delete."""
        super().drop_states(complete=False)
