"""The configurations of a study with their scores by seed, looked up by name or by knobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tune_sentcl.config import (
    affects_weights,
    knobs,
    naming_knobs,
    short_name,
    stated,
    title,
    value_text,
)
from tune_sentcl.errors import Fault, ObjectiveError, StudyError, first_names
from tune_sentcl.history import (
    CONFIRM_ORIGIN,
    WHOLE_TASKS,
    Configuration,
    History,
    ranked,
)
from tune_sentcl.judging.comparing import SeedBlocks, collapsed_seeds
from tune_sentcl.objective import Objective, parse_objectives
from tune_sentcl.store.manifest import Manifest, SeedPlan
from tune_sentcl.store.study import Study, StudyTables

Named = str | Mapping[str, Any]
"""A configuration: its id, a trial's id, a prefix of either, its method, or knobs and values."""

_SHOWN = 4  # configurations that a message lists
_LISTED = 8  # scores that a message lists
_SCORE = ["task", "metric", "split", "protocol"]


def study_objectives(study: Study) -> tuple[Objective, ...]:
    """The objectives of a study's last search."""
    search = study.manifest.search
    return parse_objectives(search.objectives if search else (), allow_test=True)


def asked_objectives(
    study: StudyTables, asked: Sequence[str | Objective], option: str = "--objective"
) -> tuple[Objective, ...]:
    """The scores that a reader of a study names.

    Args:
        study: The tables of one study, or of several as one.
        asked: As on the command line.
        option: The option that names them, for messages.

    Raises:
        ObjectiveError: A score does not exist, or the study has scores, but not this one.
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
            rule = f"no finished trial has this score; there are {names}"
            raise ObjectiveError(Fault(option, "", str(objective), rule, "Name one of them."))
    return objectives


@dataclass(frozen=True)
class Configurations:
    """Every configuration that a study has tried.

    Attributes:
        where: The study's name in messages.
        objective: The score that is judged.
        data: The evaluation data.
        tried: The configurations by id, the first that began first. The number of the judged
            score is 0, and that of the score for ranking 1.
        differ: The knobs in which they differ, except those that only affect measuring.
        plan: The seeds that the search was asked for; None if they were not recorded.
        command: The last command that searched; empty if it is unknown.
        older: Those whose method is a plugin's that has changed since. They are compared only by
            name.
    """

    where: str
    objective: Objective
    data: str
    tried: Mapping[str, Configuration]
    differ: Sequence[str]
    plan: SeedPlan | None = None
    command: str = ""
    older: frozenset[str] = frozenset()

    @classmethod
    def read(cls, study: Study, objective: Objective | None = None) -> "Configurations":
        """Read a running or finished study.

        Args:
            study: The study.
            objective: The score that is judged; None: the first that its last search maximized.

        Raises:
            StudyError: A file is damaged or cannot be read.
        """
        chosen_by = study_objectives(study)[0]
        both = (chosen_by, objective or chosen_by)
        return cls.of(study, both, study.files.where).planned_by(study.manifest)

    def planned_by(self, manifest: Manifest) -> "Configurations":
        """The same with the seed plan, the last search and the methods of a study."""
        searches = ["", *(command for command in manifest.commands if " search " in command)]
        plan = manifest.search.seed_plan if manifest.search else None
        older = frozenset(
            name
            for name, each in self.tried.items()
            if manifest.is_older(str(each.values["method.name"]), each.code)
        )
        return replace(self, plan=plan, command=searches[-1], older=older)

    @classmethod
    def of(
        cls, tables: StudyTables, objectives: tuple[Objective, Objective], where: str
    ) -> "Configurations":
        """Read the tables of one study, or of several as one.

        Args:
            tables: The tables.
            objectives: The score that the search maximized first, and the score that is judged.
            where: The study's name in messages.

        Raises:
            StudyError: A file is damaged or cannot be read.
        """
        run = ("trial_id", "configuration", "origin", "started_at", "precision_used")
        wanted = (*run, "code_fingerprint", *knobs())
        history = History.read(tables, objectives[::-1], wanted)
        rows = history.table.select(wanted).to_pylist()
        rows.sort(key=lambda row: (str(row["started_at"] or ""), row["configuration"]))
        tried: dict[str, Configuration] = {}
        for row in rows:
            name, seed, trial_id = row["configuration"], row["seed"], row["trial_id"]
            if name not in tried:
                values, code = {key: row[key] for key in knobs()}, row["code_fingerprint"] or ""
                tried[name] = Configuration(name, "grid", values, code=code)
            candidate, result = tried[name], history.result(trial_id)
            candidate.trials[seed] = trial_id
            candidate.results[seed] = replace(result, precision=row["precision_used"])
            if row["origin"] == CONFIRM_ORIGIN:
                candidate.fresh.add(seed)
            elif row["origin"] == "sampler":
                candidate.origin = "sampler"
        naming = naming_knobs([candidate.values for candidate in tried.values()])
        differ = list(filter(affects_weights, naming)) or ["method.name"]
        return cls(where, objectives[1], history.data or "root", tried, differ)

    def named(self, name: Named) -> Configuration:
        """Find the one configuration that a name or some knobs match.

        Raises:
            StudyError: No or several configurations match, or the match has no such score.
        """
        if isinstance(name, str):  # an id, or a method as tables print it, such as `untrained`
            fits, asked = self._by_id(name) or self._by_knobs({"method.name": name}), name
        else:
            fits = self._by_knobs(name)
            asked = ",".join(f"{key}={value_text(value)}" for key, value in name.items())
        if len(fits) != 1:
            candidates = fits or list(self.tried.values())
            shown = "; ".join(map(self.title, candidates[:_SHOWN]))
            more = f" and {len(candidates) - _SHOWN} more" if len(candidates) > _SHOWN else ""
            rule = f"fits {'several configurations' if fits else 'no configuration'}"
            move = f"Name one of these: {shown}{more}." if candidates else "Run its space first."
            raise self.fault(asked, rule, move)
        if not fits[0].scores():
            rule = f"has no finished trial with {self.objective}"
            move = "Run its trials, or choose another --objective."
            raise self.fault(self.title(fits[0]), rule, move)
        return fits[0]

    def scored(self) -> list[Configuration]:
        """The configurations with both scores, the best first.

        They are ranked by the score that the search maximized, from the seeds that it ranked.
        """
        present = (c for c in self.tried.values() if c.name not in self.older)
        return ranked((c for c in present if c.chosen_scores(1) and c.scores()), 1)

    def contenders(self) -> dict[str, Configuration]:
        """The configurations that a confirmation compares: winner, baseline and runner-up."""
        scored = self.scored()
        best = (*scored[:1], *self.baselines()[:1], *scored[1:2])
        return {candidate.name: candidate for candidate in best}

    @cached_property
    def _drawn(self) -> list[Configuration]:
        """The configurations whose judged score depends on the seed."""
        return [each for each in self.tried.values() if each.constant_score() is None]

    @cached_property
    def collapsed(self) -> dict[str, list[int]]:
        """The collapsed seeds of each configuration, among all its seeds."""
        return collapsed_seeds({each.name: each.scores() for each in self._drawn})

    @property
    def seed_blocks(self) -> SeedBlocks:
        """The configurations that have every seed of the one with the second most seeds.

        One configuration with more seeds than all others would show no noise. Only seeds that took
        part in a choice count.
        """
        drawn = {each.name: each.chosen_scores() for each in self._drawn}
        seeds = {seed for own in sorted(drawn.values(), key=len)[-2:][:1] for seed in own}
        whole = {
            name: {seed: own[seed] for seed in seeds}
            for name, own in drawn.items()
            if seeds and own.keys() >= seeds
        }
        return SeedBlocks(whole, self.collapsed)

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

    def title(self, candidate: Configuration) -> str:
        """The knobs in which a configuration differs, and the start of its id."""
        code = ", older code" if candidate.name in self.older else ""
        return f"{title(candidate.values, self.differ)} ({candidate.name[:8]}{code})"

    def fault(self, value: str, rule: str, move: str) -> StudyError:
        """An error about this study."""
        return StudyError(Fault(self.where, "", value, rule, move))

    def _by_id(self, name: str) -> list[Configuration]:
        if name in self.tried:
            return [self.tried[name]]
        return [
            each
            for each in self.tried.values()
            if name and any(id_.startswith(name) for id_ in (each.name, *each.trials.values()))
        ]

    def _by_knobs(self, asked: Mapping[str, Any]) -> list[Configuration]:
        """The configurations with these values, else those whose titles print them alike."""
        wanted = {self._knob(given, value): value for given, value in asked.items()}
        texts = {key: value_text(value) for key, value in wanted.items()}
        tried = list(self.tried.values())
        exact = [candidate for candidate in tried if wanted.items() <= candidate.values.items()]
        return exact or [
            candidate
            for candidate in tried
            if texts == {key: value_text(stated(key, candidate.values)) for key in texts}
        ]

    def _knob(self, given: str, value: Any) -> str:
        """The knob with this key or short name."""
        keys = [key for key in knobs() if given in (key, short_name(key))]
        if len(keys) != 1:
            rule = f"may be {' or '.join(keys)}" if keys else "is no knob"
            raise self.fault(f"{given}={value_text(value)}", rule, "Write KEY=VALUE as for --set.")
        return keys[0]
