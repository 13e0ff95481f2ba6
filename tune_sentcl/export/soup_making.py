"""A soup of a study's weights: who is offered to it, on what it is chosen, and its own scores."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tune_sentcl.data.root import data_root
from tune_sentcl.data.tasks.own_task import objectives_of
from tune_sentcl.data.tasks.sets import EvaluationSets, load_sets
from tune_sentcl.errors import Fault, StudyError
from tune_sentcl.evaluate.suites import Measures, score_sets
from tune_sentcl.export.choice import Candidate, Choice
from tune_sentcl.export.commands import stored_config
from tune_sentcl.export.record import Record, soup_record
from tune_sentcl.export.soup import Tried, Weights, greedy, misfit
from tune_sentcl.export.weights import encoder_of
from tune_sentcl.model.encoder import Encoder
from tune_sentcl.objective import Objective
from tune_sentcl.trial.inputs import measures_of

_AGREE = 0.25
"""How far the best member's score may be here from what the search measured, times 100: machines
round differently, and one row more or less is 0.11 where a task has 872."""


@dataclass(frozen=True)
class SoupMaking:
    """What it takes to choose a soup and to measure it.

    Attributes:
        choice: The study's trials by what it is chosen by.
        offered: Those that are looked at, the best first.
        left_out: Why others are not, by their names.
        sets: What it is measured on.
        measures: How.
    """

    choice: Choice
    offered: list[Candidate]
    left_out: dict[str, str]
    sets: EvaluationSets
    measures: Measures

    @classmethod
    def of(cls, choice: Choice, most: int, data: str | Path | None) -> "SoupMaking":
        """Look for the trials, and read what they are measured on.

        Args:
            choice: The study's trials by what it is chosen by, a score of a dev split.
            most: How many are looked at.
            data: The data root; None takes TUNE_SENTCL_DATA.

        Raises:
            BadInputError: Less than two have weights that go together, or a set cannot be read.
        """
        offered, left_out = _alike(choice.kept(), most)
        if len(offered) < 2:
            raise _too_few(choice, left_out)
        config = stored_config(offered[0].row["config"])
        if config is None:
            rule = "has a config that this release does not know"
            raise choice.fault(offered[0].trial_id, rule, "Export it with the release of its row.")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        measures = measures_of(config, device)
        root = None if choice.data == "toy" else data_root(data)
        sets = load_sets(choice.data, root, measures.suites, measures.protocols, measures.own)
        sets = sets.with_cut_offs(config.evaluation.cutoffs, [choice.objective])
        return cls(choice, offered, left_out, sets, measures)

    def make(self) -> tuple[Encoder, Record]:
        """Choose the soup, and measure all of it.

        Raises:
            StudyError: The sets here are not those of the search.
            NonFiniteError: The best trial has no score here.
        """
        study, first = self.choice.study, self.offered[0]
        encoder = encoder_of(study, first, self.measures.device)
        score = _Dev.of(self.choice.objective, self.sets, self.measures)
        best = score(encoder)
        if best is None or abs(best - (first.value or 0.0)) > _AGREE:
            said = f"{_shown(first.value)} in the study and {_shown(best)} here"
            rule = f"must hold the sets that the search read; trial {first.trial_id} has {said}"
            move = "Give the data root of the search."
            raise StudyError(Fault("--data", str(self.choice.objective), "", rule, move))
        tried = greedy(encoder, best, self._rest(encoder), score)
        if not tried:
            raise _too_few(self.choice, self.left_out)
        looked_at = [Tried(first.trial_id, best, taken=True), *tried]
        members = {one.trial_id for one in looked_at if one.taken}
        found = score_sets(encoder.encode, self.sets, self.measures)
        record = soup_record(
            self.choice,
            [one for one in self.offered if one.trial_id in members],
            [one.value for one in looked_at if one.taken][-1],
            best,
            self._told(looked_at),
            found.scores,
        )
        return encoder, record

    def _told(self, looked_at: Sequence[Tried]) -> list[dict[str, Any]]:
        """What became of every trial that was looked at, the best first."""
        tried = {one.trial_id: one for one in looked_at}
        told = []
        for one in self.choice.kept():
            name = one.trial_id
            if name in tried or name in self.left_out:
                with_it = tried[name].value if name in tried else None
                taken = name in tried and tried[name].taken
                out = self.left_out.get(name)
                told.append(
                    {
                        "trial_id": name,
                        "value": one.value,
                        "with_it": with_it,
                        "taken": taken,
                        "left_out": out,
                    }
                )
        return told

    def _rest(self, encoder: Encoder) -> Iterator[tuple[str, Weights]]:
        for one in self.offered[1:]:
            other = encoder_of(self.choice.study, one, self.measures.device)
            why = misfit(encoder, other)
            if why is None:
                yield one.trial_id, other.state_dict()
            else:
                self.left_out[one.trial_id] = why


@dataclass(frozen=True)
class _Dev:
    """Gives an encoder's score by an objective."""

    objective: Objective
    sets: EvaluationSets
    measures: Measures

    @classmethod
    def of(cls, objective: Objective, sets: EvaluationSets, measures: Measures) -> "_Dev":
        """Read from sets what the objective needs.

        Raises:
            DataError: Its task could not be read.
        """
        for missing in sets.unread:
            if missing.task == objective.task:
                raise missing.error
        name = objective.task
        only = EvaluationSets(
            sets.data,
            tuple(t for t in sets.sts if (t.name, t.split) == (name, objective.split)),
            tuple(t for t in sets.transfer if t.name == name),
            tuple(t for t in sets.rated if t.test.name == name),
            tuple(t for t in sets.truncated if t.name == name),
            own=tuple(t for t in sets.own if objective in objectives_of(t)),
        )
        protocols = tuple(name for name in measures.protocols if name == objective.protocol)
        return cls(objective, only, replace(measures, protocols=protocols, widths=()))

    def __call__(self, encoder: Encoder) -> float | None:
        """The score, times 100; None where it has no value."""
        found = score_sets(encoder.encode, self.sets, self.measures)
        return self.objective.value(found.scores, self.sets.data)


def _alike(kept: list[Candidate], most: int) -> tuple[list[Candidate], dict[str, str]]:
    """The best trials that began with the same weights as the best one, and why others do not."""
    offered: list[Candidate] = []
    left_out: dict[str, str] = {}
    for one in kept:
        start = one.row["checkpoint_fingerprint"]
        if len(offered) == most:
            break
        if offered and (start is None or start != offered[0].row["checkpoint_fingerprint"]):
            left_out[one.trial_id] = "it started from another encoder"
        else:
            offered.append(one)
    return offered, left_out


def _too_few(choice: Choice, left_out: Mapping[str, str]) -> StudyError:
    kept = [one.trial_id for one in choice.kept()]
    why = "".join(f"; not {name}, for {text}" for name, text in left_out.items())
    rule = f"a soup takes two trials or more whose weights are kept and go together{why}"
    move = "Search with --keep N in a new study: the N best keep theirs."
    return choice.fault(f"kept: {', '.join(kept) or 'none'}", rule, move)


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
