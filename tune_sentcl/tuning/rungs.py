"""Which trials are stopped early: configurations are compared at rungs, by rows seen.

Asynchronous successive halving, stopping variant (Li et al., "A System for Massively Parallel
Hyperparameter Tuning", MLSys 2020, and its use in Ray Tune): a trial that comes to a rung goes on
where it is among the best of all that have come there so far. Nothing is ever resumed. Rungs count
rows and not steps or points, for a batch of 512 has seen 16 times the rows of a batch of 32.
"""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tune_sentcl.config import TrialConfig, parse_dotted, source_names
from tune_sentcl.errors import BadInputError, ConfigError, Fault, NonFiniteError
from tune_sentcl.evaluate.correlation import spearman
from tune_sentcl.space import Range, Space
from tune_sentcl.trial import InputLoader
from tune_sentcl.tuning.search_options import SearchOptions


@dataclass(frozen=True)
class RungSpacing:
    """Where the rungs lie: at `grace`, `grace * reduction`, and so on.

    Attributes:
        grace: Rows that every trial may see before it can be stopped: the first rung.
        reduction: The best 1 in so many go on at a rung.
        last: Rows beyond which there is no further rung; trials go on to their own end.
    """

    grace: int
    reduction: int = 3
    last: int | None = None

    def up_to(self, rows: int) -> list[int]:
        """The rungs that a trial of so many rows comes to."""
        top = rows if self.last is None else min(rows, self.last)
        found, rung = [], self.grace
        while rung <= top:
            found.append(rung)
            rung *= self.reduction
        return found


@dataclass(frozen=True)
class RungReport:
    """What a rung has done, and whether it could tell good from bad.

    Attributes:
        rows: Where it lies.
        reached: Configurations that were compared there.
        stopped: Trials that it has stopped.
        finished: Configurations of those compared there that have gone on and finished.
        rank_correlation: Spearman's between their scores at the rung and their objectives, -1 to
            1; None for fewer than three, or where all are equal. Those that were stopped are not
            in it, so that it errs towards 0.
    """

    rows: int
    reached: int
    stopped: int
    finished: int
    rank_correlation: float | None


class Rungs:
    """The scores of a search's configurations at its rungs.

    A trial counts at the highest rung that it has come to with an evaluation point, once, by its
    score at that point; a configuration by the mean of its seeds' scores so far. Of n
    configurations at a rung the best n / reduction go on, rounded up, and whatever equals the last
    of them. So what is stopped depends on the points and their order alone, and an earlier run's
    can be taken over: each trial's points in their order, the trials in any.
    """

    def __init__(self, spacing: RungSpacing) -> None:
        """Nothing has been seen yet."""
        self.spacing = spacing
        self._seeds: dict[int, dict[str, dict[str, float]]] = {}
        self._means: dict[int, dict[str, float]] = {}
        self._highest_rung: dict[str, tuple[int, int]] = {}
        self._rows_seen: dict[str, int] = {}
        self._restarted: set[str] = set()

    def add_point(self, configuration: str, trial_id: str, rows: int, score: float) -> int | None:
        """Note an evaluation point.

        Args:
            configuration: Whose seed the trial is.
            trial_id: The trial.
            rows: Rows that it has seen.
            score: What it was given there; the larger the better.

        Returns:
            The rung at which the point counts; None where it comes to no new one.
        """
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
        scores = self._seeds.setdefault(rung, {}).setdefault(configuration, {})
        scores[trial_id] = score
        self._means.setdefault(rung, {})[configuration] = statistics.fmean(scores.values())
        return rung

    def restart(self, trial_id: str) -> None:
        """A trial begins again: it is compared at every rung that it comes to.

        Its earlier scores count for the others until there are new ones.
        """
        self._restarted.add(trial_id)

    def should_continue(self, configuration: str, trial_id: str, rows: int, score: float) -> bool:
        """Note an evaluation point, and say whether the trial is worth more; see `add_point`."""
        rung = self.add_point(configuration, trial_id, rows, score)
        if rung is None:
            return True
        means = self._means[rung]
        best = math.ceil(len(means) / self.spacing.reduction)
        return means[configuration] >= sorted(means.values(), reverse=True)[best - 1]

    def reports(
        self, objectives: Mapping[str, float], pruned: Collection[str]
    ) -> Iterator[RungReport]:
        """What the rungs have done, in this run and before, lowest first.

        Args:
            objectives: Of the configurations that have finished, by name.
            pruned: The trials that were stopped.
        """
        stops = Counter(
            self._highest_rung[trial][0] for trial in pruned if trial in self._highest_rung
        )
        for rung, means in sorted(self._means.items()):
            pairs = [
                (mean, objectives[name])
                for name, mean in means.items()
                if name in objectives and self._could_stop(rung, name)
            ]
            correlation = _rank_correlation(pairs)
            yield RungReport(rung, len(means), stops[rung], len(pairs), correlation)

    def _could_stop(self, rung: int, configuration: str) -> bool:
        """Whether a rung could have stopped a configuration: the end of a trial tells nothing."""
        tops = (
            (self._highest_rung[trial], self._rows_seen[trial])
            for trial in self._seeds[rung][configuration]
        )
        return any(top > rung or rows < seen for (top, rows), seen in tops)


def _rank_correlation(pairs: list[tuple[float, float]]) -> float | None:
    if len(pairs) < 3:
        return None
    try:
        at_rung, at_end = np.array(pairs).T
        return spearman(at_rung, at_end, "a rung's rank correlation")
    except NonFiniteError:  # all are equal on one side
        return None


_FILL = 0.9
"""How full batches are at least on the average, of whole premise groups or of several sources."""


def rung_spacing(space: Space, options: SearchOptions, loader: InputLoader) -> RungSpacing | None:
    """The rungs that a search's options name; None where nothing is stopped early.

    Without `grace` the first rung lies where the slowest configuration, in rows, of grid and
    ranges has its first evaluation point. One that has none before its end is never stopped, and
    does not count; where none has one, the rung lies beyond them all.

    Raises:
        BadInputError: A configuration's inputs cannot be read.
        ConfigError: The last rung would lie below the first.
    """
    if options.scheduler == "none":
        return None
    grace = options.grace or _first_points(space, loader)
    if options.max_rows is not None and options.max_rows < grace:
        rule = f"must not lie below the first rung, {grace} rows"
        move = "Give more, drop it, or give --grace."
        raise ConfigError(Fault("max_rows", "", str(options.max_rows), rule, move))
    return RungSpacing(grace, options.reduction, options.max_rows)


def most_rows(space: Space, loader: InputLoader) -> int:
    """Rows that the longest trial of grid and ranges sees."""
    return max(
        _epoch(config, loader)[0] * config.optimizer.epochs for config in _variants(space, loader)
    )


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
    """Rows that an epoch deals out, and about how many batches that are."""
    corpus, size = loader.load(config).corpus, config.optimizer.batch_size
    rows = [len(part) for part in corpus.by_source()]
    if config.data.drop_last:
        rows = [count - count % size if count > size else count for count in rows]
    if config.data.mix == "in_turn":
        rounds = min(-(-count // size) for count in rows)
        rows = [min(count, rounds * size) for count in rows]
    return sum(rows), sum(-(-count // size) for count in rows)


_LENGTHS = ("data.source", "data.limit", "optimizer.epochs", "evaluation.every")
"""The knobs, beside the batch size, that say how many rows a trial sees before its first point."""


def _variants(space: Space, loader: InputLoader) -> Iterator[TrialConfig]:
    """The grid, and each of its configurations with what may be drawn of those knobs instead."""
    drawn = [item for item in space.ranges if item.key in _LENGTHS]
    for config in space.configurations:
        yield from _with_batch_sizes(config, space, loader)
        for values in itertools.product(*(_range_ends(item) for item in drawn)):
            changes = dict(zip((item.key for item in drawn), values, strict=True))
            # What cannot be, or cannot be read, is never drawn to its end.
            with suppress(BadInputError):
                variant = parse_dotted({**config.dotted(), **changes}, "a range")
                yield from _with_batch_sizes(variant, space, loader)


def _with_batch_sizes(
    config: TrialConfig, space: Space, loader: InputLoader
) -> Iterator[TrialConfig]:
    """A configuration, and again in each batch size that may be drawn.

    A range stands for its ends, the upper one lowered to the largest that still has a point.
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
