"""What each trial of a search will take: by finished trials of its kind, else by its parts."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tune_sentcl.errors import Fault, ResourceError
from tune_sentcl.launch.estimate.kinds import Kind, kind_of, steps_of
from tune_sentcl.launch.estimate.packing import Load
from tune_sentcl.launch.estimate.timed import Place, TimedTrials, encoder_of
from tune_sentcl.launch.groups import Assignment
from tune_sentcl.trial import InputLoader


@dataclass(frozen=True)
class _Sort:
    """Trials of one kind for which there is the same to do."""

    kind: Kind
    measured: bool


class TrialEstimates:
    """Estimates trials, those of one kind alike.

    Attributes:
        loads: One for each trial, in their order.
        basis: What they rest on, for people.
        weights: Bytes of the largest encoder that was loaded for it.
    """

    def __init__(
        self,
        trials: Sequence[Assignment],
        loader: InputLoader,
        finished: Mapping[Kind, Sequence[float]],
        place: Place,
        *,
        may_time: bool = True,
    ) -> None:
        """Estimate.

        Args:
            trials: Which.
            loader: Gives what they read.
            finished: Seconds of finished trials, by kind.
            place: Where they will run.
            may_time: Whether what no finished trial tells may be timed here.

        Raises:
            ResourceError: It may not, and would have to be.
            TuneSentclError: A trial cannot be run.
        """
        self._loader, self._finished = loader, finished
        sorts = [self._sort(trial) for trial in trials]
        examples = dict(zip(sorts, trials, strict=True))
        untold = [sort for sort in examples if not self._told(sort)]
        if untold and not may_time:
            rule = "rests on finished trials alone where trials compute on a GPU"
            value = f"{len(untold)} kinds of trial that none tells of"
            raise ResourceError(Fault("plan", "", value, rule, "plan times them."))
        methods = {steps_of(sort.kind) for sort in untold if not sort.measured}
        configs = [examples[sort].config for sort in untold]
        encoders = {encoder_of(config, loader.load(config)) for config in configs}
        self._timed = TimedTrials(place, len(methods), len(encoders))
        known = {sort: self._load(sort, trial) for sort, trial in examples.items()}
        self.weights = self._timed.weights
        self.loads = []
        for sort in sorts:
            self.loads.append(known[sort])
            known[sort] = replace(known[sort], once=0.0)  # the first of them has done it
        self.basis = _basis(len(untold), [finished[s.kind] for s in examples if self._told(s)])

    def _sort(self, trial: Assignment) -> _Sort:
        prints = self._loader.load(trial.config).fingerprints
        return _Sort(kind_of(trial.config.dotted(), prints), trial.action == "measure")

    def _told(self, sort: _Sort) -> bool:
        return not sort.measured and sort.kind in self._finished

    def _load(self, sort: _Sort, trial: Assignment) -> Load:
        if self._told(sort):
            return Load(statistics.median(self._finished[sort.kind]))
        config, inputs = trial.config, self._loader.load(trial.config)
        if sort.measured:
            return self._timed.measured(config, inputs)
        return self._timed.trained(config, inputs, sort.kind)


def _basis(timed: int, told: Sequence[Sequence[float]]) -> str:
    parts = []
    if told:
        parts.append(f"{sum(map(len, told))} finished trials of {_kinds(len(told))}")
    if timed:
        parts.append(f"{_kinds(timed)} timed here")
    return ", ".join(parts)


def _kinds(count: int) -> str:
    return f"{count} kind{'' if count == 1 else 's'} of trial"
