"""Early stopping: trials are compared at rungs, which count training rows.

The rule is the stopping variant of asynchronous successive halving (Li et al., "A System for
Massively Parallel Hyperparameter Tuning", MLSys 2020; Ray Tune has it too). A trial that reaches a
rung goes on if it is among the best of all that have reached it so far. No stopped trial resumes.
Rungs count rows, not steps: after equally many steps, batches of 512 hold 16 times the rows of
batches of 32.
"""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tune_sentcl.config import TrialConfig, parse_dotted, source_names
from tune_sentcl.errors import BadInputError, ConfigError, Fault, NonFiniteError
from tune_sentcl.evaluate.correlation import spearman
from tune_sentcl.space import Range, Space
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.first_rung import NUM_CURVES, FirstRung, first_rung
from tune_sentcl.tuning.search_options import SearchOptions


FIRST_REDUCTION = 2
"""At the first rung the best 1 in so many go on, to a rung at so many times its rows."""


@dataclass(frozen=True)
class RungSpacing:
    """The rungs: at `grace` and 2 * `grace` rows, and from there `reduction` times apart.

    The first score of a training may say nothing of its end. So the better half goes on at the
    first rung and is compared again soon. The second rung then lets through so few that both
    reduce like two rungs.

    Attributes:
        grace: Rows of the first rung; no trial is stopped before it.
        reduction: From the third rung on the best 1 in `reduction` go on.
        last: No rung lies above this number of rows; None: no bound.
        is_known: Whether the first rung is `grace`. If not, it is no lower, and curves of whole
            trainings will tell it (`tuning.first_rung`).
    """

    grace: int
    reduction: int = 4
    last: int | None = None
    is_known: bool = True

    def up_to(self, rows: int) -> list[int]:
        """The rungs that a trial of this many rows reaches."""
        top = rows if self.last is None else min(rows, self.last)
        found, rung = [], max(1, self.grace)
        while rung <= top:
            found.append(rung)
            rung *= FIRST_REDUCTION if len(found) == 1 else self.reduction
        return found

    def reduction_at(self, rung: int) -> int:
        """Of the trials at a rung the best 1 in so many go on."""
        match rung // max(1, self.grace):
            case 1:
                return FIRST_REDUCTION
            case 2:
                return self.reduction**2 // FIRST_REDUCTION
            case _:
                return self.reduction


@dataclass(frozen=True)
class RungReport:
    """The trials that a rung compared and stopped, and how well its scores predict the objectives.

    Attributes:
        rows: Training rows of the rung.
        reached: Trials that were compared there.
        stopped: Trials that it stopped.
        finished: Compared trials that went on and finished.
        rank_correlation: Spearman's correlation, -1 to 1, of the scores at the rung and the
            objectives. None for fewer than three finished trials, or if all are equal. It
            lacks the stopped trials, so it is closer to 0 than the true correlation.
    """

    rows: int
    reached: int
    stopped: int
    finished: int
    rank_correlation: float | None


class Level(NamedTuple):
    """The highest rung that a trial reaches if all scores so far decide.

    Attributes:
        rows: Training rows of the rung.
        score: The trial's score there.
        goes_on: Whether the trial is among the best there.
    """

    rows: int
    score: float
    goes_on: bool


class Rungs:
    """The scores of a search's trials at its rungs.

    The first seeds of all configurations are compared. Those that the sampler drew may be stopped;
    those of the grid and of configurations that it was given are rivals only. A trial counts once,
    at the highest rung that it reached with an evaluation point, by its score at that point. Of n
    trials at a rung the best n / `RungSpacing.reduction_at`, rounded down but at least one, go on,
    and so do ties with the last of these. Only the points and their order decide, so a resumed search adds the
    stored points: each trial's points in their order, the trials in any order.

    A first rung that is not known lies at `grace` until the curves of `NUM_CURVES` whole trainings
    say that it lies higher.

    Attributes:
        spacing: The rungs.
    """

    def __init__(self, spacing: RungSpacing) -> None:
        self.spacing = spacing
        self._points: dict[str, list[tuple[int, float]]] = {}
        self._ended: dict[str, None] = {}
        self._scores: dict[int, dict[str, float]] = {}
        self._highest_rung: dict[str, tuple[int, int]] = {}
        self._rows_seen: dict[str, int] = {}
        self._restarted: set[str] = set()

    def add_ends(self, trial_ids: Iterable[str]) -> FirstRung | None:
        """Note trials that were trained whole and that no rung could stop.

        Returns:
            The first rung, if their curves and the earlier ones decide it now.
        """
        if self.spacing.is_known:
            return None
        self._ended.update({m: None for m in trial_ids if len(self._points.get(m, ())) > 1})
        if len(self._ended) < NUM_CURVES:
            return None
        curves = [self._points[name] for name in self._ended]
        found = first_rung(curves, self.spacing.grace)
        self.decide(found)
        return found

    def decide(self, found: FirstRung) -> None:
        """Take the first rung, and the points so far to the rungs that it gives."""
        self.spacing = replace(self.spacing, grace=found.rows, is_known=True)
        points, self._points = self._points, {}
        self._scores.clear()
        self._highest_rung.clear()
        for trial_id, seen in points.items():
            for rows, score in seen:
                self.add_point(trial_id, rows, score)

    def add_point(self, trial_id: str, rows: int, score: float) -> int | None:
        """Add an evaluation point; return its rung, or None if the trial reaches no new rung."""
        if not self.spacing.is_known:
            self._points.setdefault(trial_id, []).append((rows, score))
        self._rows_seen[trial_id] = max(rows, self._rows_seen.get(trial_id, 0))
        rungs = self.spacing.up_to(rows)
        before = (
            (0, 0) if trial_id in self._restarted else self._highest_rung.get(trial_id, (0, 0))
        )
        if not rungs or rungs[-1] <= before[0]:
            return None
        self._restarted.discard(trial_id)
        rung = rungs[-1]
        self._highest_rung[trial_id] = rung, rows
        self._scores.setdefault(rung, {})[trial_id] = score
        return rung

    def restart(self, trial_id: str) -> None:
        """Compare a trial that starts again at every rung that it reaches.

        Its earlier scores still count against other trials until new ones replace them.
        """
        self._restarted.add(trial_id)
        self._points.pop(trial_id, None)

    def should_continue(self, trial_id: str, rows: int, score: float) -> bool:
        """Add a point with `add_point`, and return whether the trial should continue."""
        rung = self.add_point(trial_id, rows, score)
        if rung is None:
            return True
        return score >= self._lowest_best(rung)

    def _lowest_best(self, rung: int) -> float:
        """The lowest score with which a trial goes on at a rung."""
        scores = self._scores[rung]
        best = max(1, len(scores) // self.spacing.reduction_at(rung))
        return heapq.nlargest(best, scores.values())[-1]

    def levels(self) -> dict[str, Level]:
        """How far each trial would have come by all scores so far.

        The first trials at a rung had few rivals, and many of them went on that later ones beat.
        """
        found: dict[str, Level] = {}
        for rung, scores in sorted(self._scores.items()):
            lowest = self._lowest_best(rung)
            for trial, score in scores.items():
                if trial not in found or found[trial].goes_on:
                    found[trial] = Level(rung, score, score >= lowest)
        return found

    def reports(
        self, objectives: Mapping[str, float], pruned: Collection[str]
    ) -> Iterator[RungReport]:
        """Report each rung, lowest first; `objectives` are of finished trials."""
        stops = Counter(
            self._highest_rung[trial][0] for trial in pruned if trial in self._highest_rung
        )
        for rung, scores in sorted(self._scores.items()):
            pairs = [
                (score, objectives[name])
                for name, score in scores.items()
                if name in objectives and self._could_stop(rung, name)
            ]
            correlation = _rank_correlation(pairs)
            yield RungReport(rung, len(scores), stops[rung], len(pairs), correlation)

    def _could_stop(self, rung: int, trial_id: str) -> bool:
        """Whether the rung could have stopped a trial before its end."""
        top, rows = self._highest_rung[trial_id]
        return top > rung or rows < self._rows_seen[trial_id]


def _rank_correlation(pairs: list[tuple[float, float]]) -> float | None:
    if len(pairs) < 3:
        return None
    try:
        at_rung, at_end = np.array(pairs).T
        return spearman(at_rung, at_end, "a rung's rank correlation")
    except NonFiniteError:  # all values of one column are equal
        return None


_FILL = 0.9
"""The least mean fill of batches that hold whole premise groups or come from several sources."""


def rung_spacing(space: Space, options: SearchOptions, loader: InputLoader) -> RungSpacing | None:
    """The rungs that a search's options ask for; None without early stopping.

    If the options give no first rung, it is not known, and no lower than the first evaluation
    point of the slowest configuration, in rows, of grid and ranges. A configuration without a
    point before its end cannot be stopped and does not count. If no configuration has such a
    point, the rung lies above them all.
    """
    if options.scheduler != "asha" or not options.samples:
        return None
    return spaced(options, 0 if options.grace else _first_points(space, loader))


def spaced(options: SearchOptions, earliest: int) -> RungSpacing:
    """The rungs of the options; without a `grace` the first lies at `earliest` rows or later."""
    grace = options.grace or earliest
    if options.max_rows is not None and options.max_rows < grace:
        rule = f"must not lie below the first rung, {grace} rows"
        move = "Give more, drop it, or give grace."
        raise ConfigError(Fault("max_rows", "", str(options.max_rows), rule, move))
    return RungSpacing(grace, options.reduction, options.max_rows, options.grace is not None)


def most_rows(space: Space, loader: InputLoader) -> int:
    """Rows that the longest trial of grid and ranges sees."""
    return max(whole_training(config, loader)[0] for config in _variants(space, loader))


def whole_training(config: TrialConfig, loader: InputLoader) -> tuple[int, int]:
    """Rows of a whole training, and about how many steps it makes."""
    rows, steps = _epoch(config, loader)
    return rows * config.optimizer.epochs, steps * config.optimizer.epochs


def _first_points(space: Space, loader: InputLoader) -> int:
    found = (
        _first_point(config, loader)
        for config in _variants(space, loader)
        if config.method.takes_steps and config.evaluation.every
    )
    return max((rows for rows in found if rows is not None), default=most_rows(space, loader) + 1)


def _first_point(config: TrialConfig, loader: InputLoader) -> int | None:
    """Rows at the first evaluation point; None where it has none before its end."""
    has_uneven_batches = "groups" in config.data.order or len(source_names(config.data.source)) > 1
    size = config.optimizer.batch_size * (_FILL if has_uneven_batches else 1.0)
    epoch, steps = _epoch(config, loader)
    epochs, rest = divmod(config.evaluation.every, steps)
    rows = epochs * epoch + min(int(rest * size), epoch)
    return rows if rows < epoch * config.optimizer.epochs else None


def _epoch(config: TrialConfig, loader: InputLoader) -> tuple[int, int]:
    """Rows of an epoch, and about how many batches they make."""
    corpus, size = loader.load(config).corpus, config.optimizer.batch_size
    rows = [len(part) for part in corpus.by_source()]
    if config.data.drop_last:
        rows = [count - count % size if count > size else count for count in rows]
    if config.data.mix == "in_turn":
        rounds = min(-(-count // size) for count in rows)
        rows = [min(count, rounds * size) for count in rows]
    return sum(rows), sum(-(-count // size) for count in rows)


_LENGTHS = ("data.source", "data.limit", "optimizer.epochs", "evaluation.every")
"""Knobs that, with the batch size, decide how many rows precede a trial's first point."""


def _variants(space: Space, loader: InputLoader) -> Iterator[TrialConfig]:
    """The grid, and each of its configurations with the range ends of `_LENGTHS`."""
    drawn = [item for item in space.ranges if item.key in _LENGTHS]
    for config in space.configurations:
        yield from _with_batch_sizes(config, space, loader)
        for values in itertools.product(*(_range_ends(item) for item in drawn)):
            changes = dict(zip((item.key for item in drawn), values, strict=True))
            with suppress(BadInputError):  # invalid values or unreadable inputs do not run
                variant = parse_dotted({**config.dotted(), **changes}, "a range")
                yield from _with_batch_sizes(variant, space, loader)


def _with_batch_sizes(
    config: TrialConfig, space: Space, loader: InputLoader
) -> Iterator[TrialConfig]:
    """A configuration, and a copy for each end of the range of batch sizes.

    The upper end is lowered to the largest batch size that has an evaluation point before the end.
    """
    rows = len(loader.load(config).corpus) * config.optimizer.epochs
    yield config
    for item in space.ranges:
        if item.key == "optimizer.batch_size":
            for size in _range_ends(item, rows // (config.evaluation.every + 1)):
                yield parse_dotted({**config.dotted(), item.key: size}, "a range")


def _range_ends(item: Range, most: float = math.inf) -> tuple[Any, ...]:
    if item.kind == "choice":
        return tuple(item.choices)
    return int(item.low), int(max(item.low, min(item.high, most)))
