"""The laws of a search, on real studies, against a model in plain Python.

Searches with other suites, objectives, seeds, samplers and numbers of checkpoints follow each
other over one study, and `measure` adds tasks to it; trials fail or lose their worker; a driver
dies between any two writes.
After each search, every score is still there, no trial is trained unasked or twice, the journal
shows every run, the stages hold the configurations that a plain restatement of halving lets go on,
and a trial that lost its worker is tried up to twice more. A trial continues from its saved state,
which is deleted once no trial can need it.
"""

import random
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from optuna.trial import TrialState
from planted_spaces import let_toys_have_all_stages
from restated_halving import Ended, waiting, with_seeds
from search_samples import (
    checkpoints,
    lambda_space,
    mirrored,
    run_planted,
    temporary_files,
)
from stand_in import Fate, Left, StandIn, by, pause_of, planted_scores
from stops import Stopped, bury
from stops import writes as stopped_after

from tune_sentcl.analysis import configurations
from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import ConfigError, ObjectiveError, StudyError
from tune_sentcl.evaluate.suites import expected_measurements
from tune_sentcl.objective import parse_objectives
from tune_sentcl.store.study import Study
from tune_sentcl.trial import InputLoader
from tune_sentcl.trial.inputs import measures_of
from tune_sentcl.tuning.measuring import Request, measure_study
from tune_sentcl.tuning.options import SearchOptions
from tune_sentcl.tuning.question import Question
from tune_sentcl.tuning.question import ask as question_of
from tune_sentcl.tuning.queue import Queue, read_queue
from tune_sentcl.tuning.search import confirmation_of, run_search
from tune_sentcl.tuning.stages import FAILED, Stages
from tune_sentcl.watch.terminal import terminal_watcher

LAMBDAS = tuple(number / 20 for number in range(1, 15))
GRID = (0.2, 0.5)
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
    numbers: dict[Key, float]
    reasons: set[Measured]
    error: str | None
    configuration: str
    stages: dict[tuple[str, float], float]
    """Its scores at the ends of stages, by the objective and the share of its training."""

    @property
    def is_sampled(self) -> bool:
        return self.config.dotted()["method.lambda"] not in GRID


@dataclass(frozen=True)
class Ask:
    """One command."""

    overrides: dict[str, Any]
    objectives: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    keep: int = 1
    sampler: Any = "random"
    trials: int = 0
    scheduler: Any = "none"
    budget: float | None = None
    confirm: int = 0
    max_failures: int = 99
    saves: bool = False
    learns: bool = False

    @property
    def stage_objective(self) -> str:
        """A classifier takes too long to rank stages."""
        return SICK if self.objectives[:1] == (SICK,) else DEV


class World:
    """A study, the commands that are run over it, and what must then be true."""

    def __init__(self, folder: Path) -> None:
        self.study = folder / "study"
        fixed = "evaluation.every = 1\noptimizer.epochs = 4"
        self.space = lambda_space(folder / "space", *GRID, ranges=RANGES, fixed=fixed)
        self.truth: dict[str, Truth] = {}
        self.states: dict[str, Left] = {}
        self.loader = InputLoader(None)
        self.planted: dict[tuple[Any, ...], dict[Key, float]] = {}
        older = lambda_space(folder / "theirs", 0.1, 0.3, 0.4, 0.6, ranges=RANGES)
        run_planted(older, folder / "older")

    def prepare(self, ask: Ask) -> Question:
        older = str(self.study.with_name("older"))
        options = SearchOptions(
            learn_from=(older,) if ask.learns else (),
            samples=ask.trials,
            budget=ask.budget,
            sampler=ask.sampler if ask.trials or ask.budget else "grid",
            objectives=ask.objectives,
            stage_objective=ask.stage_objective,
            keep=ask.keep,
            scheduler=ask.scheduler,
            confirm=ask.confirm,
            max_failures=ask.max_failures,
            launcher="local",
            gpus_per_trial=0.0,
        )
        space = self.space.with_overrides(ask.overrides)
        return question_of(space, None, ask.seeds, options, str(self.study))

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
        how: dict[str, Any] = {"curve": learns, "points": points, "saves": ask.saves}
        stand_in = StandIn(self.study, fate, broken, ask.keep > 0, **how)
        weights, failed, before = self.weights(), self.failed_before(), self.held()
        clashes, another = self.clashes(ask), self.is_of_another_rule(ask)
        lacking = self.lacking(ask)
        refused: type[Exception] | None = None
        question, ended = None, False
        try:
            question = self.prepare(ask)
            with stopped_after(self.study, writes):
                outcome = run_search(question, str(self.study), by(stand_in))
            ended = not outcome.ended_by
            assert bool(outcome.ended_by) == self.gives_up(self.queue(question), stand_in, failed)
        except Stopped:
            bury(self.study)
        except (ObjectiveError, ConfigError, StudyError) as error:
            refused = type(error)
            assert self.held() == before
        if refused or ended:
            assert (refused is ConfigError) == clashes
            assert (refused is StudyError) == (another and not clashes)
            assert (refused is ObjectiveError) == (lacking and not (another or clashes))
        if question is None or refused:
            return
        self.check_actions(stand_in)
        earlier = dict(self.truth)
        self.check_rows()
        if not ended and (clashes or another or lacking):
            return  # the driver died before it was refused
        queue = self.queue(question)
        self.check_stages(queue, stand_in, earlier, ended=ended)
        self.check_states(queue, stand_in, ended=ended and not ask.confirm)
        if ended:
            self.check_rest(queue, ask, stand_in, weights, broken)
            self.confirm(question, ask, fate)

    def queue(self, question: Question) -> Queue:
        """What a repetition of a command would find."""
        there = (self.study / "study.json").is_file()
        return read_queue(question, Study.read(self.study) if there else None)

    def measure(
        self,
        settings: dict[str, Any],
        best: int | None,
        fate: Callable[[TrialConfig], Fate],
        broken: frozenset[str],
        writes: int | None,
    ) -> None:
        """Law 7: `measure` adds scores to what has finished, and takes nothing away."""
        before, weights, left = dict(self.truth), self.weights(), set(self.states)
        if not (self.study / "study.json").is_file():
            return
        recorded = Study.read(self.study).manifest.measured
        stand_in = StandIn(self.study, fate, broken, curve=learns)
        options = SearchOptions(launcher="local", gpus_per_trial=0.0, max_failures=99)
        arguments = (str(self.study), Request(settings, best), None, options, by(stand_in))
        ended = False
        try:
            with stopped_after(self.study, writes):
                measure_study(*arguments, terminal_watcher(shown=False))
            ended = True
        except Stopped:
            bury(self.study)
        except StudyError:
            assert recorded is None or not any(t.status == "finished" for t in before.values())
        for name, action in stand_in.handed:
            assert before[name].status == "finished"
            assert action == ("measure" if name in weights else "train")
            assert action == "measure" or best is not None
        self.check_rows()
        assert {n: t.status for n, t in before.items()} == {
            n: t.status for n, t in self.truth.items()
        }
        assert self.weights() >= weights
        unfinished = {name for name in left if name not in before}
        assert Study.read(self.study).states() >= unfinished
        self.states = {
            n: s for n, s in self.states.items() if n in Study.read(self.study).states()
        }
        if not ended:
            return
        measured = Study.read(self.study).manifest.measured or {}
        assert all(set(measured[k.split(".")[1]]) >= set(v) for k, v in settings.items())
        finished = {name for name, end in stand_in.ends if end == "finished"}
        for name in finished:
            truth = self.truth[name]
            for key, value in self.asked_numbers(truth.config, broken).items():
                assert truth.numbers[key] == value

    def held(self) -> list[Any]:
        """What the study holds, to compare."""
        if not (self.study / "study.json").is_file():
            return []
        study = Study.read(self.study)
        tables = (study.trials(), study.scores(), study.curves())
        found = [sorted(map(repr, table.to_pylist())) for table in tables]
        return [*found, self.weights(), study.manifest.search]

    def clashes(self, ask: Ask) -> bool:
        """Whether a command gives two sizes, or differs from what the stages were sampled by."""
        there = (self.study / "study.json").is_file()
        search = Study.read(self.study).manifest.search if there else None
        samples = ask.trials > 0 or ask.budget is not None
        if self.asks_for_more(ask):
            return True
        if not samples or search is None or not search.halvings:
            return bool(ask.trials and ask.budget is not None)
        first = search.halvings[0]
        others = first.first_seed != ask.seeds[0] or ask.scheduler == "none"
        others = others or ask.stage_objective != first.objective
        others = others or ask.sampler != search.sampler
        return others or bool(ask.trials and ask.budget is not None)

    def asks_for_more(self, ask: Ask) -> bool:
        """Whether a command asks for scores that the study does not measure."""
        there = (self.study / "study.json").is_file()
        measured = Study.read(self.study).manifest.measured if there else None
        asked = self.space.with_overrides(ask.overrides).configurations[0].evaluation
        if not any(truth.status == "finished" for truth in self.truth.values()):
            return False  # nothing binds the study yet
        return measured is not None and not all(
            set(getattr(asked, name)) <= set(measured[name]) for name in ("suites", "protocols")
        )

    def is_of_another_rule(self, ask: Ask) -> bool:
        """Whether halvings are asked of a study with configurations that were sampled whole."""
        if not (ask.trials or ask.budget) or ask.scheduler == "none" or not self.held():
            return False
        search = Study.read(self.study).manifest.search
        return not (search and search.halvings) and any(t.is_sampled for t in self.truth.values())

    def weights(self) -> set[str]:
        """The trials with weights; a killed driver may have left others besides."""
        there = (self.study / "study.json").is_file()
        return Study.read(self.study).checkpoints() if there else set()

    def check_actions(self, stand_in: StandIn) -> None:
        """Law 2: nothing that has finished runs again, and nothing runs twice without need."""
        names = [name for name, _ in stand_in.handed]
        for name in set(names):
            pauses = sum(paused == name for paused, _, _ in stand_in.pauses)
            losses = stand_in.ends.count((name, "lost"))
            assert losses <= 3 and names.count(name) <= pauses + losses + (losses < 3)
        for name, action in stand_in.handed:
            before = self.truth.get(name)
            assert action == "train" and not (before and diverged(before))
            assert before is None or before.status != "finished"

    def failed_before(self) -> dict[str, str | None]:
        """The errors of the trials that failed last."""
        if not (self.study / "study.json").is_file():
            return {}
        rows = Study.read(self.study).trials().to_pylist()
        return {row["trial_id"]: row["error_type"] for row in rows if row["error_type"]}

    def confirm(self, question: Question, ask: Ask, fate: Callable[[TrialConfig], Fate]) -> None:
        """What `show` ranks first runs again, beside its rivals; nothing else changes."""
        again = confirmation_of(question, str(self.study))
        (objective, *_) = question.objectives
        whole: dict[str, bool] = {}
        scored: set[str] = set()
        for row in Study.read(self.study).trials().to_pylist():
            truth, name = self.truth[row["trial_id"]], row["configuration"]
            found = self.value(truth, objective) is not None
            tried = {(task, protocol) for task, _, protocol in truth.reasons}
            is_lost = not found and (objective.task, objective.protocol) in tried
            if row["origin"] != "confirm":
                # A seed of another command that this score was never asked of is not lost.
                whole[name] = whole.get(name, True) and truth.status == "finished" and not is_lost
                scored |= {name} if found else set()
        if again is None:
            assert not (ask.confirm and any(whole[name] for name in scored))
            return
        shown = list(configurations(Study.read(self.study))["configuration"])
        assert again.confirmed[0] == shown[0] in scored and whole[shown[0]]
        assert set(shown[:2]) <= set(again.confirmed) <= whole.keys()
        seeds = {row["seed"] for row in Study.read(self.study).trials().to_pylist()}
        assert len(again.space.configurations) == len(again.confirmed) <= 3
        search, own = Study.read(self.study).manifest.search, set(again.space.seeds)
        earlier = search.seed_plan.confirmations if search and search.seed_plan else ()
        continued = [set(known.seeds) for known in earlier][-1:] == [own]
        assert min(own) >= 1000 and (continued or not own & seeds)
        stand_in = StandIn(self.study, fate, keep=False, curve=learns, saves=ask.saves)
        ended = not run_search(again, str(self.study), by(stand_in)).ended_by
        self.check_rows()
        self.check_states(self.queue(again), stand_in, ended=ended)

    def check_rows(self) -> None:
        """Law 1: a number stays; a finished trial stays finished; a row shows once."""
        kept = Study.read(self.study) if (self.study / "study.json").is_file() else None
        rows = kept.trials().to_pylist() if kept else []
        names = [row["trial_id"] for row in rows]
        if any(self.study.glob("trials/*")):  # as any program reads the table, after any death
            assert list(pd.read_parquet(self.study / "trials")["trial_id"]) == names
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
            truth = Truth(
                config,
                row["status"],
                row["attempt"],
                found[name],
                reasons[name],
                row["error_type"],
                row["configuration"],
                {(end["objective"], end["share"]): end["value"] for end in row["stages"] or ()},
            )
            before = self.truth.get(name)
            if before is not None and before.status == "finished":
                assert truth.status == "finished"
                assert truth.numbers.items() >= before.numbers.items()
            if before is not None:
                assert truth.trainings >= before.trainings
                assert truth.stages.items() >= before.stages.items()
            if truth.status != "finished":
                assert not truth.numbers
            self.check_numbers(truth)
            self.truth[name] = truth

    def check_stages(
        self,
        queue: Queue,
        stand_in: StandIn,
        earlier: Mapping[str, Truth],
        *,
        ended: bool,
    ) -> None:
        """Law 6: a stage is run once, and by whom it is once the whole stage before has ended."""
        objective = str(queue.question.loader.stage_objective)
        paused = [(name, share) for name, share, _ in stand_in.pauses]
        assert len(set(paused)) == len(paused)
        for name, share in paused:
            assert name not in earlier or (objective, share) not in earlier[name].stages
        stages = queue.stages
        if stages is None:
            assert not paused
            return
        shares = stages.halvings[0].shares
        assert {share for _, share in paused} <= set(shares[:-1])
        if not ended:
            return
        sampled, grid = self.stage_ends(queue, shares)
        halvings = self.drawn(queue)
        if halvings is None:
            self.check_whole(stages, sampled, earlier)
            halvings = [[[name for name, ends in sampled.items() if ends]]]
        runs: set[tuple[str, int]] = set()
        finalists = set(self.run_whole(queue))
        runs |= {(name, len(shares) - 1) for name in finalists}
        for drawn, halving in zip(halvings, stages.halvings, strict=True):
            ends = [{name: sampled[name] for name in part} for part in drawn]
            members = waiting(halving, ends)
            runs |= {(name, stage) for stage, found in enumerate(members) for name in found}
            finalists |= members[-1]
        finals = {name: ends[len(shares) - 1 :] for name, ends in sampled.items()}
        for number, found in enumerate(with_seeds(stages, finalists, finals, grid), len(shares)):
            runs |= {(name, number) for name in found}
        assert self.ran(queue, shares, paused, earlier) <= runs

    def ran(
        self,
        queue: Queue,
        shares: Sequence[float],
        paused: Sequence[tuple[str, float]],
        earlier: Mapping[str, Truth],
    ) -> set[tuple[str, int]]:
        """The configurations that ran in this command, with the number of each stage."""
        ran = {(self.truth[name].configuration, shares.index(share)) for name, share in paused}
        for name, truth in self.truth.items():
            is_new = name not in earlier or earlier[name].status != "finished"
            if truth.is_sampled and truth.status == "finished" and is_new:
                seed = queue.question.seeds.index(truth.config.seed)
                ran.add((truth.configuration, len(shares) - 1 + seed))
        return ran

    def run_whole(self, queue: Queue) -> list[str]:
        """The best of the older study, which run whole without a halving."""
        search = Study.read(self.study).manifest.search
        names = {t.config.dotted()["method.lambda"]: t.configuration for t in self.truth.values()}
        if queue.question.options.is_whole or search is None:
            return []
        return [names[one["method.lambda"]] for one in search.whole]

    def drawn(self, queue: Queue) -> list[list[list[str]]] | None:
        """The configurations of each part of each halving, as recorded; None without one."""
        search = Study.read(self.study).manifest.search
        if queue.question.options.is_whole or search is None or not search.halvings:
            return None
        names = {t.config.dotted()["method.lambda"]: t.configuration for t in self.truth.values()}
        assert all(len(each.sampled) == len(each.parts) for each in search.halvings), "all begun"
        drawn = [
            [[names[one["method.lambda"]] for one in part] for part in halving.sampled]
            for halving in search.halvings
        ]
        every = [name for parts in drawn for part in parts for name in part]
        assert len(set(every)) == len(every)
        return drawn

    def check_whole(self, stages: Stages, sampled: Ended, earlier: Mapping[str, Truth]) -> None:
        """Without halvings a search fills the first stage, beyond it with what had ended alone."""
        held = {truth.configuration for truth in self.truth.values() if truth.is_sampled}
        taken = {name for name, ends in sampled.items() if ends}
        size = stages.halvings[0].sizes[0]
        most = min(size, len(LAMBDAS) - len(GRID) - len(held - taken))
        assert len(taken) >= most
        drawn = held - {truth.configuration for truth in earlier.values()}
        assert not drawn or len(taken) == most

    def stage_ends(self, queue: Queue, shares: tuple[float, ...]) -> tuple[Ended, Ended]:
        """How those that take part in the stages ended each, and the grid each number of seeds."""
        seeds = queue.question.seeds
        sampled, grid = {}, {}
        found: dict[str, dict[int, Truth]] = {}
        for truth in self.truth.values():
            found.setdefault(truth.configuration, {})[truth.config.seed] = truth
        for name, trials in found.items():
            ended = [self.end(queue, share, [trials.get(seeds[0])]) for share in shares]
            for count in range(2, len(seeds) + 1):
                ended.append(self.end(queue, 1.0, [trials.get(seed) for seed in seeds[:count]]))
            ends = [end for one in ended for end in one]
            first = trials.get(seeds[0])
            if not next(iter(trials.values())).is_sampled:
                grid[name] = ends[len(shares) - 1 :]
            elif first is not None:
                sampled[name] = ends
        return sampled, grid

    def stage(self, queue: Queue, truth: Truth, share: float) -> list[float]:
        found = truth.stages.get((str(queue.question.loader.stage_objective), share))
        return [] if found is None else [found]

    def end(
        self, queue: Queue, share: float, trials: list[Truth | None]
    ) -> Sequence[float | None]:
        """How a configuration has ended a stage; nothing if it has not."""
        ended = [truth for truth in trials if truth is not None]
        if share < 1 and ended and (found := self.stage(queue, ended[0], share)):
            return found
        errors = {truth.error for truth in ended if truth.status == "failed"}
        if len(ended) < len(trials) or "pruned" in {truth.status for truth in ended}:
            return []
        values = [self.value(truth, queue.question.objectives[0]) for truth in ended]
        if errors:
            return [FAILED if errors == {"NonFiniteError"} else None]
        return [None if None in values else statistics.fmean(v for v in values if v is not None)]

    def gives_up(self, queue: Queue, stand_in: StandIn, failed: Mapping[str, str | None]) -> bool:
        """Whether so many of one error came in a row, with nothing that counts between them."""
        row: list[str] = []
        has_succeeded = any(truth.status == "finished" for truth in self.truth.values())
        grid = {a.trial_id for a in queue.assignments() if a.origin == "grid"}
        for name, end in stand_in.ends:
            if end in ("finished", "pruned"):
                row, has_succeeded = [], True
            elif end == "NonFiniteError" and has_succeeded and name not in grid:
                continue
            elif end != "lost" and failed.get(name, "") not in (end, None):
                row = [*row, end] if end in row else [end]
            if len(row) >= queue.question.options.max_failures:
                return True
        return False

    def check_states(self, queue: Queue, stand_in: StandIn, *, ended: bool) -> None:
        """Law 5: no work is done twice that a state is of, and no state outlives its use."""
        anew = [name for what, name, left in stand_in.events if what == "begins" and not left[1]]
        assert len(set(anew)) == len(anew) or not stand_in.saves
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
        unfinished = {name for name, truth in self.truth.items() if truth.status != "finished"}
        kept = {
            name
            for name in self.states.keys() & unfinished
            if self.truth[name].status == "pruned" or self.truth[name].error == "WorkerDied"
        }
        interrupted = self.states.keys() - self.truth.keys()
        if ended or queue.finished:  # a driver may die behind the end of a search
            interrupted = set()
        assert there >= kept | interrupted
        assert not ended or there <= unfinished
        self.states = {name: left for name, left in self.states.items() if name in there}

    def check_numbers(self, truth: Truth) -> None:
        """Every number is one that was planted for this very trial."""
        if truth.status == "finished":
            assert truth.numbers
        planted = self.all_numbers(truth.config)
        for key, value in truth.numbers.items():
            assert value == planted[key]
        curve = learns(truth.config)
        for (_, share), score in truth.stages.items():
            assert score == curve[pause_of(curve, share) - 1][1]

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

    def lacking(self, ask: Ask) -> bool:
        """Whether a finished trial of these seeds has no value of an objective, and no reason."""
        if not (self.study / "study.json").is_file() or self.asks_for_more(ask):
            return False
        objectives = parse_objectives(ask.objectives, allow_test=False)
        return any(
            self.value(truth, o) is None
            and (o.task, o.protocol) not in {(task, by) for task, _, by in truth.reasons}
            for truth in self.truth.values()
            if truth.status == "finished" and truth.config.seed in ask.seeds
            for o in objectives
        )

    def check_rest(
        self,
        queue: Queue,
        ask: Ask,
        stand_in: StandIn,
        weights: set[str],
        broken: frozenset[str],
    ) -> None:
        """What an undisturbed end leaves."""
        assert temporary_files(self.study) == []
        for name in stand_in.lost:
            ends = [end for ended, end in stand_in.ends if ended == name]
            assert ends[-1] != "lost" or ends.count("lost") == 3
        known = {a.trial_id: a for a in queue.assignments()}
        assert known.keys() <= self.truth.keys()
        handed = dict(stand_in.handed)
        for name, assignment in known.items():
            truth = self.truth[name]
            if truth.status != "finished" or name not in handed:
                continue
            for key, value in self.asked_numbers(assignment.config, broken).items():
                assert truth.numbers.get(key) == value
        self.check_mirror(ask)
        self.check_keep(ask, weights, stand_in.left)

    def asked_numbers(self, config: TrialConfig, broken: frozenset[str]) -> dict[Key, float]:
        sets = self.loader.load(config).sets
        return {
            (*(getattr(s, k) for k in KEYS), s.classifier_seed): s.value or 0.0
            for m in expected_measurements(sets, measures_of(config))
            if m.task not in broken or m.protocol == "cosine"
            for s in planted_scores(config, m)
        }

    def check_mirror(self, ask: Ask) -> None:
        """Law 4: the journal and the study at rest say the same of every configuration."""
        objectives = parse_objectives(ask.objectives, allow_test=False)
        groups: dict[str, list[Truth]] = {}
        for truth in self.truth.values():
            if truth.config.seed < 1000:
                groups.setdefault(truth.configuration, []).append(truth)
        expected: dict[str, Any] = {}
        for name, truths in groups.items():
            states = {truth.status for truth in truths}
            values = [[self.value(truth, o) for truth in truths] for o in objectives]
            known = [[value for value in column if value is not None] for column in values]
            if "failed" in states or ("finished" in states and not all(known)):
                expected[name] = (TrialState.FAIL, None)
            elif "finished" not in states:
                expected[name] = (TrialState.PRUNED, None)
            else:
                means = [statistics.fmean(column) for column in known]
                expected[name] = (TrialState.COMPLETE, pytest.approx(means))
        journal = {t.user_attrs["configuration"]: t for t in mirrored(self.study)}
        assert len(journal) == len(mirrored(self.study))
        done = TrialState.COMPLETE
        assert expected == {
            name: (t.state, t.values if t.state == done else None) for name, t in journal.items()
        }
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


def diverged(truth: Truth) -> bool:
    return truth.is_sampled and truth.error == "NonFiniteError"


def measured(key: Key) -> Measured:
    """What was measured to get a number."""
    task, split, protocol = key[2], key[3], key[5]
    return task, split if protocol == "cosine" else "", protocol


def learns(config: TrialConfig) -> list[tuple[int, float]]:
    """A planted curve, of points in steps of their own for every lambda."""
    knob = config.dotted()["method.lambda"]
    chance = random.Random(repr((knob, config.seed)))
    rows = sorted(chance.sample(range(10, 250, 10), 16))
    return [(seen, chance.randrange(6)) for seen in [*rows, 256]]


LAMBDA_SETS = st.frozensets(st.sampled_from(LAMBDAS), max_size=2)


@st.composite
def commands(draw: st.DrawFn) -> Ask:
    """Any command; the older study has no score of other objectives to learn from."""
    ask = draw(
        st.builds(
            lambda asked, **more: Ask(*asked, **more),
            st.sampled_from(ASKED),
            seeds=st.sampled_from([(0, 1, 2), (0,), (0, 1), (0, 2), (1,), (2, 0)]),
            keep=st.integers(0, 2),
            sampler=st.sampled_from(["random", "tpe"]),
            trials=st.sampled_from([0, 0, 1, 4, 8, 14]),
            scheduler=st.sampled_from(["halving", "halving", "none"]),
            budget=st.sampled_from([None, None, None, 3.0, 8.0]),
            confirm=st.sampled_from([0, 0, 2]),
            max_failures=st.sampled_from([1, 2, 99]),
            saves=st.booleans(),
            learns=st.booleans(),
        )
    )
    samples, first = bool(ask.trials or ask.budget), (*ask.objectives, DEV)[0]
    return replace(ask, learns=ask.learns and samples and first == DEV)


def fate_of(
    lambdas: tuple[frozenset[float], ...], seeds: Sequence[int]
) -> Callable[[TrialConfig], Fate]:
    """Trials of these lambdas and seeds fail, diverge, are lost, or are lost once."""

    def fate(config: TrialConfig) -> Fate:
        lambda_ = config.dotted()["method.lambda"] if config.seed in seeds else None
        kinds: list[Fate] = ["fail", "diverge", "lose", "lose_once"]
        return next((k for k, s in zip(kinds, lambdas, strict=True) if lambda_ in s), "finish")

    return fate


class Searches(RuleBasedStateMachine):
    """Any commands in any order over one study."""

    @initialize()
    def begin(self) -> None:
        self.folder, self.patch = Path(tempfile.mkdtemp()), pytest.MonkeyPatch()
        let_toys_have_all_stages(self.patch)
        self.world = World(self.folder)

    def teardown(self) -> None:
        self.patch.undo()
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule(
        ask=commands(),
        fates=st.tuples(LAMBDA_SETS, LAMBDA_SETS, LAMBDA_SETS, LAMBDA_SETS),
        fated=st.sampled_from([(0, 1, 2), (0,), (1, 2)]),
        broken=st.sampled_from([frozenset(), frozenset({"SST2"}), frozenset({"STS-B", "MR"})]),
        writes=st.none() | st.integers(0, 60),
        points=st.none() | st.integers(0, 20),
    )
    def search(
        self,
        ask: Ask,
        fates: tuple[frozenset[float], ...],
        fated: tuple[int, ...],
        broken: frozenset[str],
        writes: int | None,
        points: int | None,
    ) -> None:
        self.world.search(ask, fate_of(fates, fated), broken, writes, points)

    @rule(
        settings=st.sampled_from([{}, TRANSFER, TRAINED]),
        best=st.sampled_from([None, 0, 2]),
        lambdas=st.tuples(LAMBDA_SETS, LAMBDA_SETS, LAMBDA_SETS, LAMBDA_SETS),
        broken=st.sampled_from([frozenset(), frozenset({"SST2"})]),
        writes=st.none() | st.integers(0, 30),
    )
    def measure(
        self,
        settings: dict[str, Any],
        best: int | None,
        lambdas: tuple[frozenset[float], ...],
        broken: frozenset[str],
        writes: int | None,
    ) -> None:
        self.world.measure(settings, best, fate_of(lambdas, (0, 1, 2)), broken, writes)


TestSearches = Searches.TestCase
TestSearches.settings = settings(
    max_examples=10,
    stateful_step_count=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
