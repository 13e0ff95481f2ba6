"""Find a study's value for each printed number, and the reasons why they are not comparable."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tune_sentcl.analysis.conversion import lines_of
from tune_sentcl.analysis.frames import StudyFrames
from tune_sentcl.analysis.papers.paper_cells import PaperCell, PaperRow, named_values
from tune_sentcl.analysis.papers.paper_results import Paper
from tune_sentcl.analysis.papers.required_data import is_encoder, is_folder, lacking_rows
from tune_sentcl.analysis.papers.trial_numbers import TrialNumber, TrialNumbers
from tune_sentcl.config import TrialConfig, Values, draws, flatten, knobs, shown, weight_values
from tune_sentcl.history import CONFIRM_ORIGIN, Configuration, Result

_SETTINGS = ("encoder.pooling", "optimizer.batch_size")
"""Knobs that distinguish rows of a paper although they are not part of the method."""

_PRINT = "checkpoint_fingerprint"
_COLUMNS = (
    "trial_id",
    "configuration",
    "origin",
    "status",
    "seed",
    "config",
    "encoder.checkpoint",
    "data.source",
    "data.limit",
    "data_source",
    _PRINT,
    "error_type",
)
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
        """Group the trials by configuration; scores are read when a number asks for them."""
        self._paper = paper
        seeds: dict[str, list[dict[str, Any]]] = {}
        for line in lines_of(study.trials[list(_COLUMNS)]):
            if line["origin"] == CONFIRM_ORIGIN:
                continue
            seeds.setdefault(line["configuration"], []).append(line)
        self._candidates = [_Candidate.of(seeds[name]) for name in sorted(seeds)]
        self._scores = TrialNumbers(study.scores)
        self._matches: dict[PaperRow, list[_Match]] = {}

    def number_for(self, cell: PaperCell) -> ReproducedNumber:
        """The study's best value for a printed number."""
        if not cell.row.presets:
            return ReproducedNumber({}, absent="another system, whose number the paper copied")
        if cell.row not in self._matches:
            self._matches[cell.row] = list(self._matching(cell.row))
        found = [self._reproduce(match, cell) for match in self._matches[cell.row]]
        if not found:
            return ReproducedNumber({}, absent="the study has no such trial")
        best = min(found, key=_rank)
        others = sum(reproduced.comparable for reproduced in found) - 1
        if best.comparable and others:
            note = f"{others} more of the study's configurations could stand here"
            return ReproducedNumber(best.values, notes=(*best.notes, note), drawn=best.drawn)
        return best

    def _matching(self, row: PaperRow) -> Iterator["_Match"]:
        for candidate in self._candidates:
            found = [
                _Match(candidate, tuple(differences), preset, self._notes(candidate))
                for preset in row.presets
                if (differences := self._differences(candidate, row, preset)) is not None
            ]
            if found:
                yield min(found, key=lambda match: len(match.reasons))

    def _differences(
        self, candidate: "_Candidate", row: PaperRow, preset: TrialConfig
    ) -> list[str] | None:
        """How a configuration differs from a row's; None if it is the configuration of another."""
        method = {k: v for k, v in row.said.items() if k.startswith("method.")}
        if any(candidate.value(key) != value for key, value in method.items()):
            return None
        settings = {key: row.said[key] for key in _SETTINGS if key in row.said}
        if preset.method.rows != "nothing":
            settings["data.source"] = preset.data.source
        if any(self._is_of_another_row(candidate, key, value) for key, value in settings.items()):
            return None
        encoder = self._encoder(candidate, preset)
        if encoder is not None and self._has_encoder_of_another_row(candidate):
            return None
        rows = _training_rows(candidate, preset)
        return [*filter(None, (encoder, rows)), *_other_settings(candidate, preset)]

    def _is_of_another_row(self, candidate: "_Candidate", key: str, value: Any) -> bool:
        return candidate.value(key) in named_values(self._paper, key) - {value}

    def _has_encoder_of_another_row(self, candidate: "_Candidate") -> bool:
        papers = named_values(self._paper, "encoder.checkpoint")
        return any(is_encoder(name, paper) for name in candidate.encoders for paper in papers)

    def _encoder(self, candidate: "_Candidate", preset: TrialConfig) -> str | None:
        paper = preset.encoder.checkpoint
        if any(is_encoder(name, paper) for name in candidate.encoders):
            return None
        if candidate.fingerprints & self._fingerprints(paper):  # same weights under another name
            return None
        name = ", ".join(sorted(candidate.encoders))
        prints = ", ".join(sorted(candidate.fingerprints)) or "not recorded"
        return f"base model: {name} (fingerprint {prints}); the paper's is {paper}"

    def _fingerprints(self, paper: str) -> set[str]:
        """The fingerprints of trials that name this encoder of a paper."""
        return {
            print_
            for one in self._candidates
            if any(is_encoder(name, paper) for name in one.encoders)
            for print_ in one.fingerprints
        }

    def _notes(self, candidate: "_Candidate") -> tuple[str, ...]:
        folders = [name for name in sorted(candidate.encoders) if is_folder(name)]
        if not folders or len(folders) < len(candidate.encoders):
            return ()
        prints = ", ".join(sorted(candidate.fingerprints)) or "not recorded"
        return (f"the base model is named by a path: {folders[0]} (fingerprint {prints})",)

    def _reproduce(self, match: "_Match", cell: PaperCell) -> ReproducedNumber:
        drawn = draws(match.preset.dotted())
        seeds: dict[int, TrialNumber] = {}
        for seed, trial_id in match.candidate.finished.items():
            number = self._scores.lookup(trial_id, cell.numbers)
            if number.value is not None:
                seeds[seed] = number
        # If some seeds were measured exactly as in the paper, the others are ignored.
        exact = {seed: number for seed, number in seeds.items() if not number.reasons}
        kept = exact or seeds
        values = {seed: number.value for seed, number in kept.items() if number.value is not None}
        if not values:
            return ReproducedNumber({}, absent=self._absence(match.candidate, cell), drawn=drawn)
        said = dict.fromkeys(reason for number in kept.values() for reason in number.reasons)
        return ReproducedNumber(values, (*match.reasons, *said), notes=match.notes, drawn=drawn)

    def _absence(self, candidate: "_Candidate", cell: PaperCell) -> str:
        if not candidate.finished:
            ends = dict.fromkeys(map(_end, candidate.configuration.results.values()))
            return f"its trials {', '.join(ends)}"
        lacking = dict.fromkeys(
            text
            for trial_id in candidate.finished.values()
            for text in self._scores.lookup(trial_id, cell.numbers).lacking
        )
        return f"not measured: {', '.join(lacking)}"


def _end(result: Result) -> str:
    why = f" ({result.error_type})" if result.error_type else ""
    return f"{_ENDED[result.status]}{why}"


def _rank(reproduced: ReproducedNumber) -> tuple[Any, ...]:
    return (not reproduced.values, len(reproduced.reasons), -len(reproduced.values))


@dataclass(frozen=True)
class _Match:
    candidate: "_Candidate"
    reasons: tuple[str, ...]
    preset: TrialConfig
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Candidate:
    """A configuration of a study, and what its trials read.

    Attributes:
        configuration: The configuration, with how its trials ended.
        encoders: Their checkpoints' names; the same weights may have several.
        fingerprints: The fingerprints of the weights.
        reads: Their source, limit and read files of training rows.
    """

    configuration: Configuration
    encoders: frozenset[str]
    fingerprints: frozenset[str]
    reads: frozenset[tuple[str, int | None, str | None]]

    @classmethod
    def of(cls, lines: Sequence[Mapping[str, Any]]) -> "_Candidate":
        values = dict(flatten(json.loads(lines[0]["config"])))
        one = Configuration(lines[0]["configuration"], "grid", values)
        for line in lines:
            seed, error = int(line["seed"]), line.get("error_type")
            one.trials[seed] = line["trial_id"]
            one.results[seed] = Result(line["status"], error_type=error)
        reads = (
            (line["data.source"], line.get("data.limit"), line.get("data_source"))
            for line in lines
        )
        return cls(
            one,
            encoders=frozenset(line["encoder.checkpoint"] for line in lines),
            fingerprints=frozenset(line[_PRINT] for line in lines if _PRINT in line),
            reads=frozenset(reads),
        )

    @property
    def finished(self) -> dict[int, str]:
        """Its finished trials by seed."""
        one = self.configuration
        return {s: one.trials[s] for s, r in one.results.items() if r.status == "finished"}

    def value(self, key: str) -> Any:
        """A knob's value; the default if the config was written before the knob existed."""
        if key in self.configuration.values:
            return self.configuration.values[key]
        section = key.partition(".")[0]
        return knobs()[key].default(self.configuration.values.get(f"{section}.name", ""))

    @cached_property
    def weight_values(self) -> Values:
        """See `tune_sentcl.config.weight_values`."""
        return weight_values(self.configuration.values)


def _training_rows(candidate: _Candidate, preset: TrialConfig) -> str | None:
    kind = preset.method.rows
    if kind == "nothing":
        return None
    source = preset.data.source
    lacks = [
        lacking_rows(source, kind, limit, read, asked) for asked, limit, read in candidate.reads
    ]
    if None not in lacks:
        return min(text for text in lacks if text is not None)
    if kind == "positive_pairs" and candidate.value("data.min_score") != preset.data.min_score:
        given, meant = candidate.value("data.min_score"), preset.data.min_score
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
