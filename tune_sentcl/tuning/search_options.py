"""How a search is run: everything about it that no trial's config says."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from tune_sentcl.config import TrialConfig
from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.space import Space
from tune_sentcl.tuning.sampling import SamplerName, check_sampler

SchedulerName = Literal["none", "asha"]
_LONGEST = 366 * 24 * 3600.0
LauncherName = Literal["ray", "local"]


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search, named as on the command line.

    Attributes:
        trials: Sampled configurations that the study shall hold beyond the grid.
        sampler: Who proposes them; `grid` proposes none.
        sampler_seed: Seed of its draws.
        learn_from: Studies whose finished configurations the sampler is told before it begins.
        confirm: Fresh seeds on which the best configuration is run once the search is complete.
        retrain: Train finished trials again for scores that they lack and whose weights were not
            kept; else such trials stay as they are.
        scheduler: `asha` stops trials that are behind at a rung (`tuning.rungs`).
        grace: Rows of the first rung; None: where every configuration has been evaluated once.
        reduction: The best 1 in so many go on at a rung, and the next lies so many times as high.
        max_rows: Rows beyond which there is no further rung.
        objectives: TASK:METRIC[:SPLIT[:PROTOCOL]], maximized; empty: STS-B:spearman:dev, without
            the suite sts the first dev score of the user's own tasks. Several make a
            multi-objective search, whose first objective ranks the checkpoints.
        allow_test_objective: Let an objective be a test split.
        keep: Checkpoints that the study keeps, the best by the first objective.
        max_concurrent: Trials at a time; None: as many as fit.
        cpus_per_trial: CPU cores a trial; also its torch threads.
        gpus_per_trial: GPUs a trial, a share allowed; None: one where there is any.
        memory_per_trial: Gigabytes of a node's memory that are reserved for a trial; None: none.
        accelerator: The GPU that a trial has to run on, as Ray labels nodes: `H200`; None: any.
        address: A Ray cluster's address; `local` starts one on this machine; None takes the one
            that RAY_ADDRESS names, else starts one here.
        launcher: `ray`, or `local`: one trial after another in this process.
        track: Trackers that follow the search (`launch.tracking`).
        max_failures: Trials that may fail in a row with the same type of error; one that failed so
            in an earlier run does not count.
        retries: How often a trial is run again whose worker was lost, with its node or alone.
        save_every: Minutes after which a running trial leaves a state that another worker can go
            on from; 0: it never does.
        accumulate: Take batches that do not fit the device's memory in parts, whose gradients are
            summed, where the method's loss does not couple the rows of a batch.
        trial_timeout: Seconds that a trial is given; it fails when they are over.
        max_time: Seconds of this run; the search ends when they are over.
        max_gpu_hours: GPU hours of this run; the search ends when they are used up.
    """

    trials: int = 0
    sampler: SamplerName = "tpe"
    sampler_seed: int = 0
    learn_from: tuple[str, ...] = ()
    confirm: int = 0
    retrain: bool = False
    scheduler: SchedulerName = "none"
    grace: int | None = None
    reduction: int = 3
    max_rows: int | None = None
    objectives: tuple[str, ...] = ()
    allow_test_objective: bool = False
    keep: int = 1
    max_concurrent: int | None = None
    cpus_per_trial: int = 1
    gpus_per_trial: float | None = None
    memory_per_trial: float | None = None
    accelerator: str | None = None
    address: str | None = None
    launcher: LauncherName = "ray"
    track: tuple[str, ...] = ()
    max_failures: int = 5
    retries: int = 2
    save_every: float = 10.0
    accumulate: bool = False
    trial_timeout: float | None = None
    max_time: float | None = None
    max_gpu_hours: float | None = None

    @property
    def ray_address(self) -> str:
        """The cluster that Ray is asked for; `local` is one of this machine's own."""
        return self.address or os.environ.get("RAY_ADDRESS") or "local"

    def check(self, space: Space) -> None:
        """See that the options make sense, alone and for a space.

        Raises:
            ConfigError: Every option that does not is listed.
        """
        faults = [*self._number_faults(), *self._space_faults(space)]
        faults += self._rung_faults(space.configurations)
        if faults:
            raise ConfigError(faults)

    def _number_faults(self) -> Iterator[Fault]:
        lowest = (
            ("--trials", self.trials, 0),
            ("sampler_seed", self.sampler_seed, 0),
            ("--confirm", self.confirm, 0),
            ("--keep", self.keep, 0),
            ("--max-concurrent", self.max_concurrent, 1),
            ("--cpus-per-trial", self.cpus_per_trial, 1),
            ("--gpus-per-trial", self.gpus_per_trial, 0),
            ("--memory-per-trial", self.memory_per_trial, 0),
            ("--grace", self.grace, 1),
            ("reduction", self.reduction, 2),
            ("max_rows", self.max_rows, 1),
            ("max_failures", self.max_failures, 1),
            ("retries", self.retries, 0),
            ("--save-every", self.save_every, 0),
            ("--trial-timeout", self.trial_timeout, 1),
            ("--max-time", self.max_time, 0),
            ("--max-gpu-hours", self.max_gpu_hours, 0),
        )
        for option, value, low in lowest:
            if value is not None and not value >= low:
                yield Fault(option, "", str(value), f"must be {low} or more", "Correct it.")
        if self.trial_timeout is not None and self.trial_timeout > _LONGEST:
            rule = "must be a year or below"
            yield Fault("--trial-timeout", "", f"{self.trial_timeout:g}", rule, "Drop it.")
        share = self.gpus_per_trial
        if share is not None and share > 1:
            rule = "must be 1 or below: a trial computes on one GPU"
            yield Fault("--gpus-per-trial", "", f"{share:g}", rule, "Give 1, or a share of one.")

    def _space_faults(self, space: Space) -> Iterator[Fault]:
        if self.trials and self.sampler == "grid":
            rule = "the grid has a fixed number of trials"
            yield Fault("--trials", "", str(self.trials), rule, "Drop it, or take --sampler tpe.")
        if self.trials and not space.ranges:
            rule = f"{space.name} has no [search.ranges] left to sample from"
            yield Fault("--trials", "", str(self.trials), rule, "Drop it, or add ranges.")
        yield from check_sampler(self.sampler, space)
        if self.sampler == "gp" and self.scheduler != "none":
            rule = "gp learns nothing from trials that were stopped"
            yield Fault("--sampler", "", "gp", rule, "Take --sampler tpe, or drop --scheduler.")

    def _rung_faults(self, configurations: Iterable[TrialConfig]) -> Iterator[Fault]:
        if self.scheduler == "asha":
            if any(c.method.takes_steps and c.evaluation.every == 0 for c in configurations):
                rule = "asha compares trials at evaluation points, and evaluation.every is 0"
                move = "Give --set evaluation.every=STEPS."
                yield Fault("--scheduler", "", "asha", rule, move)
            if self.grace and self.max_rows and self.max_rows < self.grace:
                rule = f"must not lie below the first rung, {self.grace} rows (--grace)"
                yield Fault("max_rows", "", str(self.max_rows), rule, "Give more, or drop it.")
            return
        for option, value, usual in (
            ("--grace", self.grace, None),
            ("reduction", self.reduction, 3),
            ("max_rows", self.max_rows, None),
        ):
            if value != usual:
                rule = "there are no rungs without --scheduler asha"
                yield Fault(option, "", str(value), rule, "Drop it, or add --scheduler asha.")
