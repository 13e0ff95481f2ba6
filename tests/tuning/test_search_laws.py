"""The laws of a search, on real studies, against a model in plain Python.

Searches with other suites, objectives, seeds, samplers and numbers of checkpoints follow each
other over one study; trials fail, are stopped or lose their worker; a driver dies between any two
writes. Whatever happened, a number stays, nothing is trained unasked or twice, the sampler and its
mirror know all that was run, a trial is stopped where a plain restatement of the rungs says so,
and one that has lost its worker is tried up to twice more. What a trial had left to go on from is
where it goes on, and lies there no longer than somebody may ask for it.
"""

import random
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from optuna.trial import TrialState
from restated_ladder import Search
from restated_rungs import Point, restated
from search_samples import checkpoints, lambda_space, mirrored, temporary_files
from stand_in import Fate, Left, StandIn, planted_scores
from stops import Stopped, bury
from stops import writes as stopped_after

from tune_sentcl.analysis import configurations
from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import ObjectiveError
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.launch import run_prepared
from tune_sentcl.objective import early_stopping_objective, parse_objectives
from tune_sentcl.store.reading.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.trial.inputs import measures_of
from tune_sentcl.tuning.prepare import PreparedSearch, prepare
from tune_sentcl.tuning.search_options import SearchOptions
from tune_sentcl.tuning.search_run import confirmation_search

LAMBDAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
RANGES = f"method.lambda = {{ choices = {list(LAMBDAS)} }}"
KEYS = ("data", "suite", "task", "split", "metric", "protocol", "subset", "aggregation")
Key = tuple[Any, ...]
Measured = tuple[str, str, str]
"""A task, what was measured of it apart (the split of an STS task), and the protocol."""

STS = {"evaluation.suites": ["sts"]}
TRANSFER = {"evaluation.suites": ["sts", "transfer"]}
TRAINED = {"evaluation.suites": ["sts"], "evaluation.protocols": ["cosine", "relatedness"]}
DEV, SICK, CLASSES = "STS-B:spearman:dev", "SICK-R:pearson:dev", "SST2:accuracy:dev"
ASKED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    (STS, ()),
    (STS, (SICK,)),
    (STS, (DEV, SICK)),
    (TRANSFER, ()),
    (TRANSFER, (CLASSES,)),
    (TRAINED, ("STS-B:pearson:dev:relatedness",)),
]


@dataclass
class Truth:
    """What must be so of one trial."""

    config: TrialConfig
    status: str
    trainings: int
    numbers: dict[Key, float] = field(default_factory=dict)
    reasons: set[Measured] = field(default_factory=set)


@dataclass(frozen=True)
class Ask:
    """One command."""

    overrides: dict[str, Any]
    objectives: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    keep: int = 1
    sampler: Any = "random"
    trials: int = 0
    retrain: bool = False
    scheduler: Any = "none"
    budget: float | None = None
    confirm: int = 0
    max_failures: int = 99
    saves: bool = False
    learns: bool = False


class World:
    """A study, the commands that are run over it, and what must then be true."""

    def __init__(self, folder: Path) -> None:
        self.study = folder / "study"
        fixed = "evaluation.every = 1\noptimizer.epochs = 4"
        self.space = lambda_space(folder / "space", 0.2, 0.5, ranges=RANGES, fixed=fixed)
        self.truth: dict[str, Truth] = {}
        self.states: dict[str, Left] = {}
        self.loader = InputLoader(None)
        self.planted: dict[tuple[Any, ...], dict[Key, float]] = {}
        self.known = self.older_study(folder / "older")

    def older_study(self, study: Path) -> tuple[float, ...]:
        """A study to learn from; the configurations with which a search then begins."""
        space = lambda_space(study.with_name("theirs"), 0.1, 0.3, 0.4, 0.6, ranges=RANGES)
        options = SearchOptions(launcher="local", gpus_per_trial=0.0)
        run_prepared(prepare(space, None, (0,), options), str(study), StandIn(study))
        found = Study.read(study).trials().to_pylist()
        found.sort(key=lambda row: row["objective"])
        return tuple(row["method.lambda"] for row in found[2:])

    def prepare(self, ask: Ask) -> PreparedSearch:
        older = str(self.study.with_name("older"))
        options = SearchOptions(
            learn_from=(older,) if ask.learns else (),
            trials=ask.trials,
            budget=ask.budget,
            sampler=ask.sampler if ask.trials or ask.budget else "grid",
            objectives=ask.objectives,
            keep=ask.keep,
            retrain=ask.retrain,
            scheduler=ask.scheduler,
            confirm=ask.confirm,
            max_failures=ask.max_failures,
            launcher="local",
            gpus_per_trial=0.0,
        )
        return prepare(self.space.with_overrides(ask.overrides), None, ask.seeds, options)

    def search(
        self,
        ask: Ask,
        fate: Callable[[TrialConfig], Fate] = lambda config: "finish",
        broken: frozenset[str] = frozenset(),
        writes: int | None = None,
        points: int | None = None,
    ) -> None:
        """Run a command to its end, or to a death of its driver; then check everything.

        Args:
            ask: The command.
            fate: How its trials end.
            broken: Tasks that cannot be scored.
            writes: After so many writes the driver dies; None: never.
            points: After so many evaluation points; None: never.
        """
        prepared = self.prepare(ask)
        keep = ask.keep > 0
        stand_in = StandIn(
            self.study, fate, broken, keep, curve=learns, points=points, saves=ask.saves
        )
        seen = self.stored_points(prepared)
        weights = self.weights()
        failed = self.failed_before()
        refused = ended = False
        try:
            with stopped_after(self.study, writes):
                outcome = run_prepared(prepared, str(self.study), stand_in)
            ended = not outcome.ended_by
            assert bool(outcome.ended_by) == gives_up(stand_in.ends, failed, ask.max_failures)
        except Stopped:
            bury(self.study)
        except ObjectiveError:
            refused = True
        self.check_actions(prepared, ask, stand_in, weights)
        self.check_order(prepared, stand_in, failed)
        self.check_budget(prepared, ask)
        self.check_rows()
        self.check_rungs(prepared, seen, stand_in)
        self.check_states(prepared, stand_in, ended=ended and not ask.confirm)
        if refused:
            assert not ask.retrain and self.lacking(prepared, ask, weights)
        if ended:
            # A search does not know beforehand which further seeds it will ask for.
            later = set() if ask.scheduler == "none" else self.further(prepared)
            assert not self.lacking(prepared, ask, weights | later) or ask.retrain
            self.check_rest(prepared, ask, stand_in, weights, broken)
            self.check_seeds(prepared, ask)
            self.confirm(prepared, ask, fate)

    def weights(self) -> set[str]:
        """The trials with weights; a driver may have died before it named them by the trial."""
        there = (self.study / "study.json").is_file()
        rows = Study.read(self.study).trials().to_pylist() if there else []
        labels = {f"{row['trial_id']}.{row['attempt_files']}": row["trial_id"] for row in rows}
        return {labels.get(name, name) for name in checkpoints(self.study)}

    def check_actions(
        self, prepared: PreparedSearch, ask: Ask, stand_in: StandIn, weights: set[str]
    ) -> None:
        """Law 2: nothing is trained unasked, nothing twice in a run, nothing without need."""
        configs = {a.trial_id: a.config for a in prepared.proposals.assignments()}
        names = [name for name, _ in stand_in.handed if name not in stand_in.lost]
        assert len(set(names)) == len(names)
        assert all(names.count(name) <= 3 for name in stand_in.lost)
        for name, action in stand_in.handed:
            before = self.truth[name].status if name in self.truth else None
            expected = {None: {"train"}, "failed": {"train"}, "pruned": set()}
            allowed = expected.get(before, {"measure"} if name in weights else {"retrain"})
            assert action in allowed
            assert action != "retrain" or ask.retrain
            if action != "train":
                truth = self.truth[name]
                asked = set(map(measured, self.asked_numbers(configs[name], frozenset())))
                lacking = asked - set(map(measured, truth.numbers))
                wanted = {(o.task, "", o.protocol) for o in prepared.objectives}
                wanted |= {(o.task, o.split, o.protocol) for o in prepared.objectives}
                needed = (lacking - truth.reasons) | (lacking & wanted)
                assert needed if action == "retrain" else lacking

    def failed_before(self) -> dict[str, str | None]:
        """The errors of the trials that failed last; None of those whose row is of before that."""
        if not (self.study / "study.json").is_file():
            return {}
        study = Study.read(self.study)
        found = {row["trial_id"]: row["error_type"] for row in study.trials().to_pylist()}
        search = study.manifest.search
        again = dict.fromkeys(search.failed_again if search else ())
        return {**{name: error for name, error in found.items() if error}, **again}

    def check_order(
        self, prepared: PreparedSearch, stand_in: StandIn, failed: Mapping[str, str | None]
    ) -> None:
        """What failed in an earlier run comes behind all else, but for workers that are lost.

        Its end decides on further seeds, and on what is left of a budget.
        """
        if prepared.options.budget is not None:
            return
        further = set() if prepared.options.scheduler == "none" else self.further(prepared)
        names = dict.fromkeys(name for name, _ in stand_in.handed if name not in further)
        assert sorted(names, key=failed.__contains__) == list(names)

    def further(self, prepared: PreparedSearch) -> set[str]:
        """The trials of sampled configurations with other seeds than the first."""
        first = prepared.proposals.sampling.seeds[0]
        trials = prepared.proposals.assignments()
        return {a.trial_id for a in trials if a.origin == "sampler" and a.config.seed != first}

    def check_budget(self, prepared: PreparedSearch, ask: Ask) -> None:
        """Nothing is drawn once the budget is spent; before the rows of this run are read."""
        sampled = [a for a in prepared.proposals.assignments() if a.origin == "sampler"]
        held = [a for a in sampled if a.trial_id in {*self.truth, *self.states}]
        ended = [self.truth[a.trial_id] for a in held if a.trial_id in self.truth]
        cost = sum(truth.status == "finished" for truth in ended)
        if ask.budget is not None and cost >= ask.budget:
            assert {a.configuration for a in sampled} == {a.configuration for a in held}

    def check_seeds(self, prepared: PreparedSearch, ask: Ask) -> None:
        """No further seed is due, as a restatement of the ladder says."""
        if ask.scheduler == "none" or ask.budget is not None:
            return
        seeds, (objective, *_) = prepared.proposals.sampling.seeds, prepared.objectives
        scores, trials = {}, list(prepared.proposals.assignments())
        for a in trials:
            truth = self.truth[a.trial_id]
            value = self.value(truth, objective) if truth.status == "finished" else None
            scores[a.configuration, seeds.index(a.config.seed)] = value
        grid = list({a.configuration for a in trials if a.origin == "grid"})
        search = Search(grid, [], len(seeds), 0, prepared.options.reduction)
        assert not search.next_trials(scores, [])

    def confirm(
        self, prepared: PreparedSearch, ask: Ask, fate: Callable[[TrialConfig], Fate]
    ) -> None:
        """What `show` ranks first runs again, beside its rivals; nothing else changes."""
        again = confirmation_search(prepared, str(self.study))
        (objective, *_) = prepared.objectives
        whole: dict[str, bool] = {}
        for row in Study.read(self.study).trials().to_pylist():
            truth = self.truth[row["trial_id"]]
            found = truth.status == "finished" and self.value(truth, objective) is not None
            if row["origin"] != "confirm":
                name = row["configuration"]
                whole[name] = whole.get(name, True) and found
        if again is None:
            assert not (ask.confirm and any(whole.values()))
            return
        shown = list(configurations(Study.read(self.study))["configuration"])
        assert again.confirmed[0] == shown[0] and whole[shown[0]]
        assert set(shown[:2]) <= set(again.confirmed) <= whole.keys()
        seeds = {row["seed"] for row in Study.read(self.study).trials().to_pylist()}
        assert len(again.space.configurations) == len(again.confirmed) <= 3
        assert min(again.space.seeds) >= 1000 and max(seeds - set(again.space.seeds)) < 1000
        stand_in = StandIn(self.study, fate, keep=False, curve=learns, saves=ask.saves)
        ended = not run_prepared(again, str(self.study), stand_in).ended_by
        self.check_rows()
        self.check_states(again, stand_in, ended=ended)

    def check_rows(self) -> None:
        """Law 1: a number stays; a finished trial stays finished; a row shows once."""
        kept = Study.read(self.study) if (self.study / "study.json").is_file() else None
        rows = kept.trials().to_pylist() if kept else []
        names = [row["trial_id"] for row in rows]
        assert len(set(names)) == len(names)
        assert set(self.truth) <= set(names)
        found: dict[str, dict[Key, float]] = {name: {} for name in names}
        reasons: dict[str, set[Measured]] = {name: set() for name in names}
        for score in kept.scores().to_pylist() if kept else []:
            key = (*(score[k] for k in KEYS), score["classifier_seed"])
            if score["value"] is not None:
                assert key not in found[score["trial_id"]]
                found[score["trial_id"]][key] = score["value"]
            else:
                assert score["reason"]
                reasons[score["trial_id"]].add(measured(key))
        for row in rows:
            config = TrialConfig.model_validate_json(row["config"])
            name = row["trial_id"]
            truth = Truth(config, row["status"], row["attempt"], found[name], reasons[name])
            before = self.truth.get(name)
            if before is not None and before.status == "finished":
                assert truth.status == "finished"
                assert truth.numbers.items() >= before.numbers.items()
            if before is not None:
                assert truth.trainings >= before.trainings
            if truth.status != "finished":
                assert not truth.numbers
            self.check_numbers(truth)
            self.truth[name] = truth

    def stored_points(self, prepared: PreparedSearch) -> list[Point]:
        """The points that the study holds of trials that have ended, each trial's in order."""
        if not (self.study / "study.json").is_file():
            return []
        name = early_stopping_objective(prepared.objectives[0]).curve
        study = Study.read(self.study)
        return [
            Point(p["trial_id"], p["samples"], p["value"])
            for p in sorted(study.curves().to_pylist(), key=lambda p: p["samples"])
            if p["metric"] == name
        ]

    def check_rungs(self, prepared: PreparedSearch, seen: list[Point], stand_in: StandIn) -> None:
        """Whatever ran before, a first seed is stopped where the points of all say so."""
        first, spacing = prepared.proposals.sampling.seeds[0], prepared.rung_spacing
        trials = list(prepared.proposals.assignments())
        known = self.known if prepared.options.learn_from else ()
        given = {a.trial_id for a in trials if a.config.dotted()["method.lambda"] in known}
        origins = {a.trial_id: a.origin for a in trials if a.config.seed == first}
        points = [point for point in seen if point.trial in origins]
        for point, going in stand_in.compared:
            origin = origins.get(point.trial)
            if going is not None:
                is_free = origin != "sampler" or point.trial in given
                assert going == (is_free or not spacing or restated(spacing, points, point))
            points += [] if origin is None else [point]

    def check_states(self, prepared: PreparedSearch, stand_in: StandIn, *, ended: bool) -> None:
        """Law 5: no work is done twice that a state is of, and no state outlives its use."""
        for what, name, (made, points) in stand_in.events:
            last_made, last = self.states.get(name, ("", 0))
            if what == "leaves":
                self.states[name] = (made, points)
            elif made == last_made:
                assert points in (last, last + 1)  # that of a driver that died may be whole
            elif not ended:  # one of other measurements may be whole too, in place of the last
                self.states.pop(name, None)
        study = Study.read(self.study) if (self.study / "study.json").is_file() else None
        there = study.states() if study else set()
        failed = {
            row["trial_id"]: row["error_type"]
            for row in (study.trials().to_pylist() if study else [])
            if row["status"] == "failed"
        }
        lost = {name for name in self.states if failed.get(name) == "WorkerDied"}
        interrupted = self.states.keys() - self.truth.keys()
        if ended or prepared.proposals.finished:  # a driver may die behind the end of a search
            interrupted = set()
        # What a death between two renames has hidden comes back when a driver opens the study.
        hidden = {path.name.split(".")[1] for path in self.study.glob("states/.*.replaced.*")}
        assert there | hidden >= lost | interrupted
        assert not ended or there <= failed.keys()
        self.states = {name: left for name, left in self.states.items() if name in there | hidden}

    def check_numbers(self, truth: Truth) -> None:
        """Every number is one that was planted for this very trial."""
        if truth.status == "finished":
            assert truth.numbers
        planted = self.all_numbers(truth.config)
        for key, value in truth.numbers.items():
            assert value == planted[key]

    def all_numbers(self, config: TrialConfig) -> dict[Key, float]:
        """Every number that there is of a trial."""
        trial = (config.dotted()["method.lambda"], config.seed)
        if trial not in self.planted:
            suites = {"suites": ("sts", "transfer")}
            protocols = {"protocols": ("cosine", "relatedness", "logreg-10fold")}
            evaluation = config.evaluation.model_copy(update={**suites, **protocols})
            whole = config.model_copy(update={"evaluation": evaluation})
            self.planted[trial] = self.asked_numbers(whole, frozenset())
        return self.planted[trial]

    def value(self, truth: Truth, objective: Any) -> float | None:
        """Law 3, in plain words: look the objective up among the numbers."""
        found = [
            value
            for key, value in truth.numbers.items()
            if key[2:6] == (objective.task, objective.split, objective.metric, objective.protocol)
            and key[0] == "toy"
        ]
        assert len(found) <= 1
        return found[0] if found else None

    def lacking(self, prepared: PreparedSearch, ask: Ask, weights: set[str]) -> bool:
        """Whether a trial that is asked for has no value of an objective and no weights."""
        objectives = parse_objectives(ask.objectives, allow_test=False)
        study = Study.read(self.study)
        reasons = {
            (s["trial_id"], s["task"], s["protocol"])
            for s in study.scores().to_pylist()
            if s["value"] is None
        }
        asked = {a.trial_id for a in prepared.proposals.assignments()}
        return any(
            self.value(truth, o) is None and (name, o.task, o.protocol) not in reasons
            for name, truth in self.truth.items()
            if name in asked - weights and truth.status == "finished"
            for o in objectives
        )

    def check_rest(
        self,
        prepared: PreparedSearch,
        ask: Ask,
        stand_in: StandIn,
        weights: set[str],
        broken: frozenset[str],
    ) -> None:
        """What an undisturbed end leaves."""
        assert temporary_files(self.study) == []
        handed_out = [name for name, _ in stand_in.handed]
        assert all(handed_out.count(name) in (2, 3) for name in stand_in.lost)
        for table in ("trials", "scores", "curves"):
            stems = {path.stem for path in (self.study / table).iterdir()} - {"all"}
            assert stems.isdisjoint(self.truth)  # a killed worker's files stay, its trial may run
        known = {a.trial_id: a for a in prepared.proposals.assignments()}
        assert known.keys() <= self.truth.keys()
        handed = dict(stand_in.handed)
        for name, assignment in known.items():
            truth = self.truth[name]
            if truth.status != "finished" or (name not in weights and name not in handed):
                continue
            for key, value in self.asked_numbers(assignment.config, broken).items():
                if name in handed or key[2] not in broken:
                    assert truth.numbers.get(key) == value or self.gave_up(truth, name, handed)
        self.check_sampler(prepared, ask)
        self.check_keep(ask, weights, stand_in.left)

    def gave_up(self, truth: Truth, name: str, handed: dict[str, str]) -> bool:
        """Whether a measurement of a trial failed as a whole in this run."""
        return handed.get(name) in ("measure", "retrain")

    def asked_numbers(self, config: TrialConfig, broken: frozenset[str]) -> dict[Key, float]:
        sets = self.loader.load(config).sets
        return {
            (*(getattr(s, k) for k in KEYS), s.classifier_seed): s.value or 0.0
            for m in expected_measurements(sets, measures_of(config))
            if m.task not in broken or m.protocol == "cosine"
            for s in planted_scores(config, m)
        }

    def check_sampler(self, prepared: PreparedSearch, ask: Ask) -> None:
        """Law 4: the sampler, its mirror and the study at rest say the same of every trial."""
        objectives = parse_objectives(ask.objectives, allow_test=False)
        groups: dict[str, list[Truth]] = {}
        for assignment in prepared.proposals.assignments():
            groups.setdefault(assignment.configuration, []).append(self.truth[assignment.trial_id])
        expected: dict[str, Any] = {}
        for name, truths in groups.items():
            states = {truth.status for truth in truths}
            values = [[self.value(truth, o) for truth in truths] for o in objectives]
            if "failed" in states:
                expected[name] = (TrialState.FAIL, None)
            elif "pruned" in states:
                expected[name] = (TrialState.PRUNED, None)
            elif any(None in column for column in values):
                expected[name] = (TrialState.FAIL, None)
            else:
                means = [statistics.fmean(column) for column in values]  # type: ignore[arg-type]
                expected[name] = (TrialState.COMPLETE, pytest.approx(means))
        told = list(prepared.proposals.sampler_study.reported())
        journal = mirrored(self.study)
        for trials in ([t for _, t in told], journal):
            found = {
                t.user_attrs["configuration"]: (
                    t.state,
                    t.values if t.state == TrialState.COMPLETE else None,
                )
                for t in trials
            }
            assert len(found) == len(trials)
            assert found == expected
        for row in Study.read(self.study).trials().to_pylist():
            truth = self.truth[row["trial_id"]]
            shown = [row["objective"], *(row[f"objective_{n}"] for n in range(2, 6))]
            wanted = [self.value(truth, o) for o in objectives]
            assert shown == wanted + [None] * (5 - len(wanted))

    def check_keep(self, ask: Ask, weights: set[str], left: set[str]) -> None:
        """The best checkpoints of those that there were stay, and no others.

        One of the configuration that ranked first may stay in place of the last of them.
        """
        (objective, *_) = parse_objectives(ask.objectives, allow_test=False)
        finished = {name for name, truth in self.truth.items() if truth.status == "finished"}
        there = (weights | left) & finished

        def worth(name: str) -> float:
            value = self.value(self.truth[name], objective)
            return -1.0 if value is None else value

        best = sorted(there, key=lambda name: (-worth(name), name))
        kept = checkpoints(self.study)
        assert kept <= there
        assert len(kept) == min(ask.keep, len(there))
        assert set(best[: max(0, ask.keep - 1)]) <= kept


def measured(key: Key) -> Measured:
    """What was measured to get a number."""
    task, split, protocol = key[2], key[3], key[5]
    return task, split if protocol == "cosine" else "", protocol


def learns(config: TrialConfig) -> list[tuple[int, float]]:
    """A planted curve, of points in steps of their own for every lambda."""
    knob = config.dotted()["method.lambda"]
    chance = random.Random(repr((knob, config.seed)))
    rows = sorted(chance.sample(range(10, 250, 10), 5))
    return [(seen, chance.randrange(6)) for seen in [*rows, 256]]


def gives_up(ends: list[tuple[str, str]], failed: Mapping[str, str | None], most: int) -> bool:
    """Whether so many of one error came in a row, with nothing that counts between them."""
    row: list[str] = []
    for name, end in ends:
        if end in ("finished", "pruned"):
            row = []
        elif end != "lost" and failed.get(name, "") not in (end, None):
            row = [*row, end] if end in row else [end]
        if len(row) >= most:
            return True
    return False


LAMBDA_SETS = st.frozensets(st.sampled_from(LAMBDAS), max_size=2)


class Searches(RuleBasedStateMachine):
    """Any commands in any order over one study."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.world = World(self.folder)

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule(
        asked=st.sampled_from(ASKED),
        seeds=st.sampled_from([(0, 1, 2), (0,), (0, 1), (1,), (2, 0)]),
        keep=st.integers(0, 2),
        sampler=st.sampled_from(["random", "tpe"]),
        trials=st.integers(0, 4),
        retrain=st.booleans(),
        scheduler=st.sampled_from(["asha", "race", "none"]),
        budget=st.sampled_from([None, None, 3.0, 8.0]),
        confirm=st.sampled_from([0, 0, 2]),
        max_failures=st.sampled_from([1, 2, 99]),
        saves=st.booleans(),
        learns=st.booleans(),
        fates=st.tuples(LAMBDA_SETS, LAMBDA_SETS, LAMBDA_SETS, LAMBDA_SETS),
        fated=st.sampled_from([(0, 1, 2), (0,), (1, 2)]),
        broken=st.sampled_from([frozenset(), frozenset({"SST2"}), frozenset({"STS-B", "MR"})]),
        writes=st.none() | st.integers(0, 60),
        points=st.none() | st.integers(0, 20),
    )
    def search(
        self,
        asked: tuple[dict[str, Any], tuple[str, ...]],
        seeds: tuple[int, ...],
        keep: int,
        sampler: str,
        trials: int,
        retrain: bool,
        scheduler: str,
        budget: float | None,
        confirm: int,
        max_failures: int,
        saves: bool,
        learns: bool,
        fates: tuple[frozenset[float], ...],
        fated: tuple[int, ...],
        broken: frozenset[str],
        writes: int | None,
        points: int | None,
    ) -> None:
        def fate(config: TrialConfig) -> Fate:
            lambda_ = config.dotted()["method.lambda"] if config.seed in fated else None
            kinds: list[Fate] = ["fail", "prune", "lose", "lose_once"]
            return next((k for k, s in zip(kinds, fates, strict=True) if lambda_ in s), "finish")

        ask = Ask(*asked, seeds, keep, sampler, trials, retrain, scheduler)
        ask = replace(ask, budget=budget, confirm=confirm, max_failures=max_failures, saves=saves)
        # The older study has no score of other objectives.
        can_learn = bool(trials or budget) and (not ask.objectives or ask.objectives[0] == DEV)
        ask = replace(ask, learns=learns and can_learn)
        self.world.search(ask, fate, broken, writes, points)


TestSearches = Searches.TestCase
TestSearches.settings = settings(
    max_examples=10,
    stateful_step_count=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
