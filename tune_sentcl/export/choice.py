"""Choose the trial to export: a named one, or the best by a score."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import pyarrow.compute as pc

from tune_sentcl.analysis.frames import configurations_of
from tune_sentcl.config import draws, has_no_weights, is_start, is_unchanged
from tune_sentcl.errors import first_names
from tune_sentcl.export.rerun_command import train_command
from tune_sentcl.history import CONFIRM_ORIGIN
from tune_sentcl.objective import (
    DEFAULT,
    MAX_OBJECTIVES,
    Objective,
    objective_columns,
    parse_objectives,
)
from tune_sentcl.results.standings import Standings
from tune_sentcl.store.study import Study

_READ = (
    *("trial_id", "configuration", "status", "origin", "method.name", "method.whitening"),
    *("method.dims", "method.quantization"),
    *("encoder.checkpoint", "encoder.pooling", "encoder.max_length", "checkpoint_fingerprint"),
    *("encoder.query_prefix", "encoder.text_prefix", "code_fingerprint"),
    *("evaluation.data", "data.source", "config"),
)
_SHOWN = 4


@dataclass(frozen=True)
class Candidate:
    """An ended trial.

    Attributes:
        trial_id: Its id.
        value: Its score, times 100; None if it has no score.
        kept: Whether the study has its weights.
        row: The columns of its row in `trials` that the choice needs.
    """

    trial_id: str
    value: float | None
    kept: bool
    row: Mapping[str, Any]

    @property
    def untrained(self) -> bool:
        """Whether its model is the unchanged base model."""
        return is_unchanged(self.row)

    @property
    def width(self) -> int | None:
        """The width to which an untrained trial cuts embeddings; None: whole embeddings."""
        return None if draws(self.row) else next(iter(self.row["method.dims"] or ()), None)

    @property
    def uses_word_vectors(self) -> bool:
        """Whether its model uses word vectors; the study never stores these."""
        return str(self.row["encoder.checkpoint"]).endswith(".txt")

    @property
    def exportable(self) -> bool:
        """Whether there are weights to export."""
        return not self.uses_word_vectors and (self.kept or has_no_weights(self.row))


@dataclass(frozen=True)
class Choice:
    """A study's finished trials, ranked by one score.

    Attributes:
        study: The study.
        standings: Its configurations, ordered by the score.
        ranked: The trials with the score, grouped by configuration, best first. Trials on
            confirmation seeds, and trials of an older version of a plugin, are left out.
        others: Every other trial by id.
    """

    study: Study
    standings: Standings
    ranked: Sequence[Candidate]
    others: Mapping[str, Candidate]

    @classmethod
    def read(cls, study: Study, objective: Objective) -> "Choice":
        """Read a running or finished study.

        Raises:
            StudyError: A file is damaged or cannot be read.
        """
        standings, kept = Standings.read(study, objective), study.checkpoints()
        rows = {row["trial_id"]: row for row in study.trials(_READ).to_pylist()}
        present = (one for one in standings.ordered if one.name not in standings.older)
        ordered = sorted(present, key=lambda one: standings.ranks.get(one.name, math.inf))
        ranked = [
            Candidate(one.trials[seed], value, one.trials[seed] in kept, rows[one.trials[seed]])
            for one in ordered
            for seed, value in sorted(
                one.chosen_scores().items(), key=lambda pair: (-pair[1], one.trials[pair[0]])
            )
        ]
        taken = {candidate.trial_id for candidate in ranked}
        values = {
            one.trials[seed]: value
            for one in standings.tried.values()
            for seed, value in one.scores().items()
        }
        others = {
            name: Candidate(name, values.get(name), name in kept, row)
            for name, row in rows.items()
            if name not in taken
        }
        return cls(study, standings, ranked, others)

    @property
    def objective(self) -> Objective:
        """The score that ranks the trials."""
        return self.standings.objective

    @cached_property
    def over_seeds(self) -> pd.DataFrame:
        """One row per configuration, as `tune_sentcl.analysis.configurations`."""
        return configurations_of(self.standings, [self.objective])

    def start_of(self, trained: Candidate) -> Candidate | None:
        """The best trial of the unchanged base model of a trained trial, if any."""
        same = (c for c in self.ranked if is_start(c.row, trained.row))
        print_ = trained.row["checkpoint_fingerprint"]
        return next((c for c in same if c.row["checkpoint_fingerprint"] == print_), None)

    def best(self) -> Candidate:
        """The best trial of the best configuration, among its trials with weights.

        Raises:
            StudyError: No trial has the score, or no trial of that configuration has weights.
        """
        if not self.ranked:
            rule = f"has no finished trial with {self.objective}"
            raise self.standings.fault(
                "", rule, "Run the study's search first, or name another score by --best."
            )
        first = self.ranked[0]
        name = first.row["configuration"]
        own = (candidate for candidate in self.ranked if candidate.row["configuration"] == name)
        chosen = next((candidate for candidate in own if candidate.exportable), first)
        self._require_weights(chosen, f"the best configuration's best trial by {self.objective}")
        return chosen

    def named(self, name: str) -> Candidate:
        """The only trial whose id is this name or begins with it.

        Raises:
            StudyError: No trial or several trials match, or the trial has no weights to export.
        """
        candidates = {candidate.trial_id: candidate for candidate in self.ranked}
        candidates |= self.others
        fits = [own for key, own in sorted(candidates.items()) if key.startswith(name)]
        if len(fits) != 1 or not name:
            among = (candidate.trial_id for candidate in (fits or candidates.values()))
            rule = f"fits {'several trials' if fits else 'no trial'} of the study"
            raise self.standings.fault(
                name, rule, f"Name one trial: {first_names(list(among), _SHOWN)}."
            )
        self._require_weights(fits[0], "named by --trial")
        return fits[0]

    def row(self, trial_id: str) -> dict[str, Any]:
        """The whole row of a trial."""
        rows: list[dict[str, Any]]
        rows = self.study.trials().filter(pc.field("trial_id") == trial_id).to_pylist()
        return rows[0]

    def command(self, row: Mapping[str, Any]) -> str | None:
        """The command that trains a trial again, given its whole row; see `train_command`."""
        # If the stage objective selected the weights, the trial's id and weights depend on it, so
        # the command must state it.
        stage = self._compared(row["trial_id"]) if row["selection_fingerprint"] else None
        return train_command(row["config"], _searched(row), stage, self.study.manifest.plugins)

    def _compared(self, trial_id: str) -> Objective:
        """The stage objective of a trial, inferred from its curves.

        The row's objective is that of the study's last search, which may differ.
        """
        where = pc.field("trial_id") == trial_id
        curves = set(self.study.curves(["metric"], where=where)["metric"].to_pylist())
        scores = self.study.scores(where=where).to_pylist()
        measured = (Objective(s["task"], s["metric"], s["split"], s["protocol"]) for s in scores)
        cheap = (
            objective for objective in measured if objective.is_cheap and objective != DEFAULT
        )
        return next((objective for objective in cheap if objective.curve in curves), DEFAULT)

    def _require_weights(self, candidate: Candidate, why: str) -> None:
        if candidate.exportable:
            return
        status = candidate.row["status"]
        name = f"trial {candidate.trial_id} ({why})"
        if status != "finished":
            how = "was stopped at the end of a stage" if status == "pruned" else "has failed"
            raise self.standings.fault(name, f"{how} and has no weights", self._instead())
        if candidate.uses_word_vectors:
            rule = "uses word vectors, which cannot be exported"
            raise self.standings.fault(name, rule, self._instead())
        rule = "has not kept its weights"
        if candidate.row["origin"] == CONFIRM_ORIGIN:
            rule += ", because the study keeps no weights of trials on confirmation seeds"
        command = self.command(self.row(candidate.trial_id))
        again = f" `{command}` trains the trial again and keeps its weights." if command else ""
        raise self.standings.fault(name, rule, f"{self._instead()}{again}")

    def _instead(self) -> str:
        there = [candidate.trial_id for candidate in self.ranked if candidate.exportable]
        if there:
            names = first_names(there, _SHOWN)
            return f"These trials have weights: {names}. Give --trial {there[0]}."
        return "Search with --keep N to keep the weights of the N best trials."


def _searched(row: Mapping[str, Any]) -> tuple[Objective, ...]:
    named = (row[objective_columns(number)[0]] for number in range(1, MAX_OBJECTIVES + 1))
    return parse_objectives([name for name in named if name], allow_test=True)
