"""Find a study's value for each printed number, and the reasons why they are not comparable."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tune_sentcl.analysis.conversion import lines_of
from tune_sentcl.analysis.frames import StudyFrames
from tune_sentcl.analysis.papers.paper_cells import PaperCell, PaperRow, named_values
from tune_sentcl.analysis.papers.paper_results import Paper
from tune_sentcl.analysis.papers.required_data import is_encoder, is_folder, lacking_rows
from tune_sentcl.analysis.papers.trial_numbers import TrialNumbers
from tune_sentcl.config import TrialConfig, Values, draws, flatten, knobs, shown, weight_values
from tune_sentcl.history import CONFIRM_ORIGIN

_SETTINGS = ("encoder.pooling", "optimizer.batch_size")
"""Knobs that distinguish rows of a paper although they are not part of the method."""

_PRINT = "checkpoint_fingerprint"
_COLUMNS = ("trial_id", "configuration", "origin", "status", "seed", "config", "error_type")
_READS = ("data.source", "data.limit", "data_source", "encoder.checkpoint", _PRINT)
_ENDED = {"failed": "failed", "pruned": "were stopped at the end of a stage"}


@dataclass(frozen=True)
class ReproducedNumber:
    """A study's value for a printed number.

    Attributes:
        values: Our score of each seed, times 100; empty if missing.
        reasons: Why it is not comparable with the paper's number; empty if it is.
        absent: Why there is no value; empty if there is one.
        notes: Further remarks.
        drawn: Whether the score depends on the seed; if not, one seed is enough.
    """

    values: Mapping[int, float]
    reasons: tuple[str, ...] = ()
    absent: str = ""
    notes: tuple[str, ...] = ()
    drawn: bool = True

    @property
    def comparable(self) -> bool:
        """Whether there is a value that is comparable with the paper's number."""
        return bool(self.values) and not self.reasons


class Reproduction:
    """The values of one study for the numbers of one paper, without trials on fresh seeds."""

    def __init__(self, study: StudyFrames, paper: Paper) -> None:
        """Group the trials by configuration."""
        self._paper = paper
        trials: dict[str, list[dict[str, Any]]] = {}
        for line in lines_of(study.trials[[*_COLUMNS, *_READS]]):
            if line["origin"] != CONFIRM_ORIGIN:
                trials.setdefault(line["configuration"], []).append(line)
        self._candidates = [_Candidate(trials[name]) for name in sorted(trials)]
        self._scores = TrialNumbers(study.scores)
        self._matches: dict[PaperRow, list[_Match]] = {}

    def number_for(self, cell: PaperCell) -> ReproducedNumber:
        """The study's best value for a printed number."""
        row = cell.row
        if not row.presets:
            return ReproducedNumber({}, absent="another system, whose number the paper copied")
        if row not in self._matches:
            fits = [
                [
                    _Match(candidate, tuple(reasons), preset)
                    for preset in row.presets
                    if (reasons := self._differences(candidate, row, preset)) is not None
                ]
                for candidate in self._candidates
            ]
            best = [min(own, key=lambda match: len(match.reasons)) for own in fits if own]
            self._matches[row] = best
        numbers = [self._reproduce(match, cell) for match in self._matches[row]]
        if not numbers:
            return ReproducedNumber({}, absent="the study has no such trial")
        first = min(numbers, key=lambda one: (not one.values, len(one.reasons), -len(one.values)))
        others = sum(number.comparable for number in numbers) - 1
        if first.comparable and others:
            note = f"{others} more of the study's configurations could stand here"
            return replace(first, notes=(*first.notes, note))
        return first

    def _differences(
        self, candidate: "_Candidate", row: PaperRow, preset: TrialConfig
    ) -> list[str] | None:
        """How a configuration differs from a row's; None if it is the configuration of another."""
        method = {key: value for key, value in row.said.items() if key.startswith("method.")}
        if any(candidate.value(key) != value for key, value in method.items()):
            return None
        settings = {key: row.said[key] for key in _SETTINGS if key in row.said}
        if preset.method.rows != "nothing":
            settings["data.source"] = preset.data.source
        for key, value in settings.items():
            if candidate.value(key) in named_values(self._paper, key) - {value}:
                return None
        encoder = self._encoder(candidate, preset.encoder.checkpoint)
        papers = named_values(self._paper, "encoder.checkpoint")
        if encoder and any(candidate.has_encoder(name) for name in papers):
            return None
        rows = _training_rows(candidate, preset)
        return [*filter(None, (encoder, rows)), *_other_settings(candidate, preset)]

    def _encoder(self, candidate: "_Candidate", paper: str) -> str | None:
        """How the encoder differs; the same weights may have another name."""
        if candidate.has_encoder(paper):
            return None
        same = (other.prints for other in self._candidates if other.has_encoder(paper))
        if candidate.prints & set().union(*same):
            return None
        name = ", ".join(sorted(candidate.encoders))
        return f"base model: {name} (fingerprint {candidate.print}); the paper's is {paper}"

    def _reproduce(self, match: "_Match", cell: PaperCell) -> ReproducedNumber:
        candidate, drawn = match.candidate, draws(match.preset.dotted())
        numbers = {
            int(line["seed"]): self._scores.lookup(line["trial_id"], cell.numbers)
            for line in candidate.trials
            if line["status"] == "finished"
        }
        seeds = {seed: number for seed, number in numbers.items() if number.value is not None}
        # If some seeds were measured exactly as in the paper, the others are ignored.
        kept = {seed: number for seed, number in seeds.items() if not number.reasons} or seeds
        values = {seed: number.value for seed, number in kept.items() if number.value is not None}
        if not values:
            lacking = dict.fromkeys(text for one in numbers.values() for text in one.lacking)
            absent = f"not measured: {', '.join(lacking)}"
            if not numbers:
                absent = f"its trials {', '.join(dict.fromkeys(map(_end, candidate.trials)))}"
            return ReproducedNumber({}, absent=absent, drawn=drawn)
        said = dict.fromkeys(reason for number in kept.values() for reason in number.reasons)
        return ReproducedNumber(values, (*match.reasons, *said), "", candidate.notes, drawn)


def _end(trial: Mapping[str, Any]) -> str:
    why = f" ({trial['error_type']})" if trial.get("error_type") else ""
    return f"{_ENDED[trial['status']]}{why}"


@dataclass(frozen=True)
class _Match:
    candidate: "_Candidate"
    reasons: tuple[str, ...]
    preset: TrialConfig


class _Candidate:
    """A configuration of a study, and what its trials read."""

    def __init__(self, trials: Sequence[Mapping[str, Any]]) -> None:
        self.trials = trials
        self.values = dict(flatten(json.loads(trials[0]["config"])))
        self.encoders = {line["encoder.checkpoint"] for line in trials}
        self.prints = {line[_PRINT] for line in trials if _PRINT in line}
        self.print = ", ".join(sorted(self.prints)) or "not recorded"

    def has_encoder(self, paper: str) -> bool:
        """Whether a name of its encoder is that of a paper's."""
        return any(is_encoder(name, paper) for name in self.encoders)

    @property
    def notes(self) -> tuple[str, ...]:
        """A remark on an encoder that has no name but a path."""
        if not all(map(is_folder, self.encoders)):
            return ()
        path = min(self.encoders)
        return (f"the base model is named by a path: {path} (fingerprint {self.print})",)

    def value(self, key: str) -> Any:
        """A knob's value; the default if the config was written before the knob existed."""
        if key in self.values:
            return self.values[key]
        return knobs()[key].default(self.values.get(f"{key.partition('.')[0]}.name", ""))

    @cached_property
    def weight_values(self) -> Values:
        """See `tune_sentcl.config.weight_values`."""
        return weight_values(self.values)


def _training_rows(candidate: _Candidate, preset: TrialConfig) -> str | None:
    kind, source = preset.method.rows, preset.data.source
    if kind == "nothing":
        return None
    lacks = [
        lacking_rows(
            source, kind, line.get("data.limit"), line.get("data_source"), line["data.source"]
        )
        for line in candidate.trials
    ]
    if None not in lacks:
        return min(text for text in lacks if text is not None)
    given, meant = candidate.value("data.min_score"), preset.data.min_score
    if kind == "positive_pairs" and given != meant:
        return f"training rows: pairs with a score from {given:g}; the paper's from {meant:g}"
    return None


def _other_settings(candidate: _Candidate, preset: TrialConfig) -> list[str]:
    preset_values = preset.dotted()
    meant = weight_values(preset_values)
    keys = [k for k in knobs() if candidate.weight_values.get(k, None) != meant.get(k, None)]
    if candidate.value("evaluation.select") == "last" == preset.evaluation.select:
        keys = [key for key in keys if key != "evaluation.every"]  # has no effect on the weights
    changed = [
        f"{key} = {shown(candidate.value(key))} instead of {shown(preset_values.get(key))}"
        for key in keys
        if key != "seed"
    ]
    return [f"other settings: {', '.join(changed)}"] if changed else []
