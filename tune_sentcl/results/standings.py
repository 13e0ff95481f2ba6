"""The standings of a study: its configurations with all facts that tables and reports state.

Tables, reports, exports and confirmations read `Standings`. The first of two objectives, which the
reader names, orders the configurations. The search's own objective decides on the winner.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tune_sentcl.config import (
    affects_weights,
    draws,
    knobs,
    naming_knobs,
    title,
)
from tune_sentcl.errors import Fault, ObjectiveError, StudyError, TuneSentclError, first_names
from tune_sentcl.history import (
    CONFIRM_ORIGIN,
    WHOLE_TASKS,
    Configuration,
    History,
    order_keys,
    ranked,
)
from tune_sentcl.judging.comparing import ALPHA, Comparison, SeedBlocks, Verdict, collapsed_seeds
from tune_sentcl.judging.evidence import Evidence
from tune_sentcl.judging.statistics import mean, sd
from tune_sentcl.objective import OFFERS, Objective, parse_objectives
from tune_sentcl.store.manifest import Manifest, SeedPlan
from tune_sentcl.store.study import Snapshot, Study, StudyTables
from tune_sentcl.store.union import TOLERANCE

_SEARCH = "tune-sentcl search "
_LISTED = 8  # the largest number of scores that a message lists
_SCORE = ["task", "metric", "split", "protocol"]
_SAID: Mapping[Verdict, str] = {
    "ESTABLISHED": "proven worse",
    "REVERSED": "proven better",
    "NO DIFFERENCE": "no difference",
    "UNDECIDED": "not proven",
}
_RUN = ("trial_id", "configuration", "origin", "seed", "started_at", "precision_used")


@dataclass(frozen=True)
class Estimate:
    """A score over seeds.

    Attributes:
        mean: The mean, times 100; NaN if there is no value.
        sd: The standard deviation (n - 1); NaN for one seed.
        n: The number of seeds with the score.
    """

    mean: float
    sd: float = math.nan
    n: int = 1

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The estimate from the scores of seeds, in any order."""
        return cls(mean(values), sd(values), len(values))

    @property
    def shown(self) -> str:
        """The mean as printed; empty if missing."""
        return "" if math.isnan(self.mean) else f"{self.mean:.2f}"

    @property
    def spread(self) -> str:
        """The sd as printed; empty if missing."""
        return "" if math.isnan(self.sd) or math.isnan(self.mean) else f"{self.sd:.2f}"


def study_objectives(study: Study) -> tuple[Objective, ...]:
    """The objectives of a study's last search."""
    search = study.manifest.search
    return parse_objectives(search.objectives if search else (), allow_test=True)


def asked_objectives(
    study: StudyTables, asked: Sequence[str | Objective], option: str = "--objective"
) -> tuple[Objective, ...]:
    """Parse the scores that a reader of a study names.

    Args:
        study: The tables of one study, or of several as one.
        asked: As on the command line.
        option: The option that names them, for errors.

    Raises:
        ObjectiveError: A score does not exist, or the study has finished trials but none with it.
    """
    try:
        objectives = parse_objectives([*map(str, asked)], allow_test=True)
    except ObjectiveError as error:
        raise ObjectiveError(replace(fault, where=option) for fault in error.faults) from None
    kinds = study.scores(_SCORE, WHOLE_TASKS).group_by(_SCORE).aggregate([]).to_pylist()
    there = {Objective(**kind) for kind in kinds}
    for objective in objectives:
        if there and objective not in there:
            near = sorted((one.task != objective.task, str(one)) for one in there)
            names = first_names([name for _, name in near], _LISTED)
            rule = f"no finished trial has this score; the study has {names}"
            raise ObjectiveError(
                Fault(option, value=str(objective), rule=rule, move="Name one of these scores.")
            )
    return objectives


@dataclass(frozen=True, eq=False)
class Standings:
    """Every configuration that a study has tried.

    Attributes:
        where: The study's name in messages.
        objectives: Number 0 is the score that orders and judges configurations, number 1 the score
            by which the search chose.
        data: The evaluation data.
        tried: The configurations by id, the first that began first.
        plan: The planned search seeds and the confirmations; None if they were not recorded.
        command: The last command that searched; empty if it is unknown.
        older: Configurations whose plugin has changed since. They are compared only if the user
            names them.
        tables: The tables of the study.
    """

    where: str
    objectives: tuple[Objective, Objective]
    data: str
    tried: Mapping[str, Configuration]
    plan: SeedPlan | None = None
    command: str = ""
    older: frozenset[str] = frozenset()
    tables: StudyTables = field(default_factory=lambda: Snapshot({}), repr=False)

    @classmethod
    def read(
        cls,
        study: Study,
        objective: Objective | None = None,
        tables: StudyTables | None = None,
    ) -> Self:
        """Read a running or finished study.

        Args:
            study: The study.
            objective: The score that orders and judges configurations; None: the first that the
                last search maximized.
            tables: The study's tables, if the caller has read them.

        Raises:
            StudyError: A file is damaged or cannot be read.
        """
        chosen_by = study_objectives(study)[0]
        both = (objective or chosen_by, chosen_by)
        return cls.of(tables or study, both, {study.files.where: study.manifest})

    @classmethod
    def of(
        cls,
        tables: StudyTables,
        objectives: tuple[Objective, Objective],
        manifests: Mapping[str, Manifest],
    ) -> Self:
        """Read the tables of one study, or of several as one.

        Args:
            tables: The tables.
            objectives: See the attribute.
            manifests: The manifests by the studies' names. Several studies have no common plan,
                because their seeds were planned separately.

        Raises:
            StudyError: A file is damaged or cannot be read.
        """
        columns = [*_RUN, "code_fingerprint", *knobs()]
        history = History.read(tables, objectives, columns)
        where = ", ".join(manifests)
        if unscored := history.unscored():
            count = f"{len(unscored)} of {len(history.with_status('finished'))} finished trials"
            rule = f"the study lacks the scores of {count} ({first_names(unscored)})"
            move = "Restore the file of the scores from a copy, or run: tune-sentcl measure STUDY."
            raise StudyError(Fault(where, key="scores", rule=rule, move=move))
        tried: dict[str, Configuration] = {}
        older = set[str]()
        for name, values in _knobs_of(history.table).items():
            code = values.pop("code_fingerprint") or ""
            tried[name] = Configuration(name, "grid", values, code=code)
            known = [one for one in manifests.values() if one.has_method(values["method.name"])]
            if known and all(one.is_older(values["method.name"], code) for one in known):
                older.add(name)
        for row in history.table.select(_RUN).to_pylist():
            candidate, seed = tried[row["configuration"]], row["seed"]
            result = history.result(row["trial_id"])
            candidate.trials[seed] = row["trial_id"]
            candidate.results[seed] = replace(result, precision=row["precision_used"])
            if row["origin"] == CONFIRM_ORIGIN:
                candidate.confirming.add(seed)
            elif row["origin"] == "sampler":
                candidate.origin = "sampler"
        plan, command = None, ""
        if len(manifests) == 1:
            (manifest,) = manifests.values()
            plan = manifest.search.seed_plan if manifest.search else None
            searches = [each for each in manifest.commands if each.startswith(_SEARCH)]
            command = searches[-1] if searches else ""
        data = history.data or "root"
        return cls(where, objectives, data, tried, plan, command, frozenset(older), tables)

    @property
    def objective(self) -> Objective:
        """The score that orders and judges configurations."""
        return self.objectives[0]

    @property
    def chosen_by(self) -> str:
        """A remark on the score that chose the winner, if another score orders; else empty."""
        searched = self.objectives[1]
        if searched == self.objective:
            return ""
        first = next(iter(ranked(self._present(1), 1)), None)
        if first is None or first is self.winner:
            return f"The search chose the winner by {searched}."
        lacking = (
            f"The search chose {self.title(first)} by {searched}, but this configuration has no "
            f"{self.objective}"
        )
        return f"{lacking}. The winner named here is the best of the others."

    @cached_property
    def differ(self) -> list[str]:
        """The hyperparameters that name configurations, without those of measuring alone."""
        naming = naming_knobs([candidate.values for candidate in self.tried.values()])
        return list(filter(affects_weights, naming)) or ["method.name"]

    @cached_property
    def ordered(self) -> list[Configuration]:
        """The configurations with a finished search seed, the best mean first.

        Configurations without the score follow, then those of a plugin's older code.
        """
        found = []
        for each in self.tried.values():
            seeds = [s for s, result in each.results.items() if result.status == "finished"]
            if not each.confirming.issuperset(seeds):
                score = Estimate.of(list(each.chosen_scores().values())).mean
                missing = math.isnan(score)
                key = (each.name in self.older, missing, 0.0 if missing else -score, each.name)
                found.append((key, each))
        return [each for _, each in sorted(found, key=lambda pair: pair[0])]

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The ranks by the first objective of configurations with as many seeds as the best.

        A configuration with fewer seeds or a lost seed gets no rank, because its mean may be luck.
        """
        return _ranks([each for each in self.ordered if each.name not in self.older])

    def scored(self) -> list[Configuration]:
        """The configurations with both scores, as the search ranks them; the winner is first."""
        return ranked((each for each in self._present(1) if each.scores()), 1)

    def _present(self, number: int) -> list[Configuration]:
        """The configurations with an objective, without those of a plugin's older code."""
        present = (each for name, each in self.tried.items() if name not in self.older)
        return [each for each in present if each.chosen_scores(number)]

    @cached_property
    def winner(self) -> Configuration | None:
        """The best configuration by the score that the search maximized."""
        return next(iter(self.scored()), None)

    def baselines(self) -> list[Configuration]:
        """The possible baselines, the best first.

        These are the configurations with the method `none`, else those with lambda 0, else the
        first point of the grid of the study's first search, with the present code.
        """
        scored = self.scored()
        for key, value in (("method.name", "none"), ("method.lambda", 0.0)):
            plain = [candidate for candidate in scored if candidate.values.get(key) == value]
            if plain:
                return plain
        first = self.tried.get(self.plan.grid[0]) if self.plan and self.plan.grid else None
        point = {**first.values, "seed": None} if first else None
        return [candidate for candidate in scored if {**candidate.values, "seed": None} == point]

    def contenders(self) -> dict[str, Configuration]:
        """The configurations that a confirmation compares: winner, baseline and runner-up."""
        return {name: self.tried[name] for name in self.roles()}

    def roles(self) -> dict[str, str]:
        """The roles of `contenders` by configuration; a configuration may have two roles."""
        scored, roles = self.scored(), dict[str, str]()
        by_role = {
            "winner": scored[:1],
            "baseline": self.baselines()[:1],
            "runner-up": scored[1:2],
        }
        for role, found in by_role.items():
            for each in found:
                roles[each.name] = f"{roles[each.name]} and {role}" if each.name in roles else role
        return roles

    @cached_property
    def hand_set(self) -> Configuration | None:
        """The best trained configuration of the grid; None if it is the winner."""
        winner = self.winner
        for each in self.scored():
            if each.origin == "grid" and draws(each.values):
                return None if each is winner else each
        return None

    @property
    def is_incomplete(self) -> bool:
        """Whether the search has scored nothing, or has not tried its whole grid."""
        grid = self.plan.grid if self.plan else ()
        return self.winner is None or not self.tried.keys() >= {*grid}

    def evidence(self, alpha: float = ALPHA, smallest: float = TOLERANCE) -> Evidence:
        """The seeds that may support a claim on the first objective."""
        plain = [each.name for each in self.baselines()]
        plan = self.plan or SeedPlan((), None)
        return Evidence(self.tried, plan, plain, self.title, self.collapsed, alpha, smallest)

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """For each configuration that was compared with the winner, whether the winner is better.

        ESTABLISHED: the configuration is proven worse than the winner. A configuration without an
        entry was never compared.
        """
        if self.winner is None:
            return {}
        evidence, winner = self.evidence(), self.winner
        answers = {each.name: evidence.compare(winner, each) for each in self.scored()[1:]}
        return {name: one for name, one in answers.items() if isinstance(one, Comparison)}

    def said(self, name: str) -> str | None:
        """The verdict that compares a configuration with the winner, in words; else None."""
        if self.winner is not None and name == self.winner.name:
            return "winner"
        if name not in self.comparisons:
            return None
        return _SAID[self.comparisons[name].verdict]

    def mark(self, name: str) -> Literal["winner", "worse", ""]:
        """The mark of a configuration in tables: the winner, proven worse than it, or neither."""
        if self.winner is not None and name == self.winner.name:
            return "winner"
        answer = self.comparisons.get(name)
        return "worse" if answer and answer.verdict == "ESTABLISHED" else ""

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The scores of whole tasks: a row per trial, a column per score, by its name."""
        return score_table(self.tables.scores(["trial_id", *_SCORE, "value"], WHOLE_TASKS))

    def by_score(self, score: Objective, *, confirming: bool = False) -> dict[str, Estimate]:
        """A score of each configuration, over its search seeds or its confirmation seeds."""
        name = str(score)
        if name not in self.scores:
            return {}
        return self.over_seeds(self.scores[name].dropna().to_dict(), confirming=confirming)

    def over_seeds(
        self, values: Mapping[Any, float], *, confirming: bool = False
    ) -> dict[str, Estimate]:
        """Aggregate a number of each trial over the seeds of each configuration.

        Args:
            values: The number by trial; NaN counts as missing.
            confirming: Use the confirmation seeds in place of the search seeds.
        """
        found = {}
        for each in self.tried.values():
            numbers = [
                values[trial]
                for seed, trial in each.trials.items()
                if (seed in each.confirming) == confirming and trial in values
            ]
            if numbers := [one for one in numbers if math.isfinite(one)]:
                found[each.name] = Estimate.of(numbers)
        return found

    @cached_property
    def _drawn(self) -> list[Configuration]:
        return [each for each in self.tried.values() if each.constant_score() is None]

    @cached_property
    def collapsed(self) -> dict[str, list[int]]:
        """The collapsed seeds by configuration, among search and confirmation seeds."""
        return collapsed_seeds({each.name: each.scores() for each in self._drawn})

    @property
    def seed_blocks(self) -> SeedBlocks:
        """The noise of the configurations that have enough search seeds.

        These have every seed of the configuration with the second most seeds, because one
        configuration with more seeds than all others would show no noise.
        """
        drawn = {each.name: each.chosen_scores() for each in self._drawn}
        seeds = {seed for own in sorted(drawn.values(), key=len)[-2:][:1] for seed in own}
        whole = {
            name: {seed: own[seed] for seed in seeds}
            for name, own in drawn.items()
            if seeds and own.keys() >= seeds
        }
        return SeedBlocks(whole, self.collapsed)

    def title(self, candidate: Configuration) -> str:
        """A configuration's values of the hyperparameters that differ, and the start of its id."""
        code = ", older code" if candidate.name in self.older else ""
        return f"{title(candidate.values, self.differ)} ({candidate.name[:8]}{code})"

    def require_two(self) -> None:
        """Check that two configurations can be compared.

        Raises:
            StudyError: Fewer than two configurations have both scores.
        """
        if len(self.scored()) < 2:
            rule = f"needs two configurations that have a score of {self.objective}"
            move = "Add a configuration to the search space, or search with --samples."
            if self.is_incomplete:
                move = "Repeat the study's search, which has not ended."
            raise self.fault("", rule, move)

    def fault(self, value: str, rule: str, move: str) -> StudyError:
        """An error about this study."""
        return StudyError(Fault(self.where, value=value, rule=rule, move=move))


def _ranks(ordered: Sequence[Configuration]) -> dict[str, int]:
    keys = order_keys(ordered)
    best = min(keys.values(), default=None)
    if best is None or best[0]:
        # No configuration has a score.
        return {}
    equals = [each.name for each in ordered if keys[each.name][:3] == best[:3]]
    return {name: rank for rank, name in enumerate(equals, 1)}


def _knobs_of(trials: pa.Table) -> dict[str, dict[str, Any]]:
    """All hyperparameters and the code of each configuration, in order of their first starts."""
    columns = (trials[name].to_pylist() for name in ("started_at", "configuration"))
    begun = [(str(start or ""), name) for start, name in zip(*columns, strict=True)]
    firsts: dict[str, int] = {}
    for row in sorted(range(len(begun)), key=begun.__getitem__):
        firsts.setdefault(begun[row][1], row)
    kept = trials.take(pa.array(firsts.values(), pa.int64()))
    rows = kept.select(["configuration", "code_fingerprint", *knobs()]).to_pylist()
    return {row.pop("configuration"): row for row in rows}


def score_table(scores: pa.Table) -> pd.DataFrame:
    """Scores of whole tasks, a row per trial and a column per score; means over classifier seeds.

    The columns are in the order of `OFFERS`, then by name.
    """
    finite = scores.filter(pc.is_finite(scores["value"]))
    frame = finite.group_by(["trial_id", *_SCORE]).aggregate([("value", "mean")]).to_pandas()
    kinds = frame[_SCORE].drop_duplicates().sort_values(_SCORE).to_numpy().tolist()
    kinds.sort(key=lambda kind: (_task_rank(kind[0]), kind[3] not in OFFERS.get(kind[0], {})))
    names = {tuple(kind): str(Objective(*kind)) for kind in kinds}
    frame["name"] = [names[kind] for kind in zip(*(frame[n] for n in _SCORE), strict=True)]
    table = frame.pivot(index="trial_id", columns="name", values="value_mean")
    ordered: pd.DataFrame = table.reindex(columns=list(names.values())).rename_axis(columns=None)
    return ordered


def _task_rank(task: str) -> int:
    tasks = list(OFFERS)
    return tasks.index(task) if task in OFFERS else len(tasks)


def older_noise(studies: Sequence[Study], objective: Objective) -> tuple[float, int]:
    """The sd of a seed in older studies, and the number of configurations that it rests on.

    Args:
        studies: Running or finished studies; a study without such scores is left out.
        objective: The score.
    """
    squares, df, count = 0.0, 0, 0
    for study in studies:
        try:
            blocks = Standings.read(study, objective).seed_blocks
        except TuneSentclError:
            continue  # the search itself reports a study that cannot be read
        if blocks.df > 0:
            squares += blocks.df * blocks.sd**2
            df += blocks.df
            count += len(blocks.names) - len(blocks.apart)
    return (math.sqrt(squares / df) if df else math.nan), count
