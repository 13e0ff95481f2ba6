"""The options of a search that are not part of a trial's config."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tune_sentcl.errors import ConfigError, Fault
from tune_sentcl.objective import parse_objectives
from tune_sentcl.space import Space

SamplerName = Literal["tpe", "random", "grid"]
SchedulerName = Literal["halving", "none"]
_LONGEST = 366 * 24 * 3600.0
LauncherName = Literal["ray", "local"]


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search, named as on the command line.

    Attributes:
        trials: Configurations to sample beyond the grid.
        budget: Compute for sampled configurations, in whole trainings of one seed: as many are
            sampled as it pays for. None: `trials` decides.
        sampler: The sampler that proposes them; `grid` proposes none.
        sampler_seed: Seed of its draws.
        learn_from: Studies whose best configurations are proposed first.
        confirm: Number of fresh seeds for the best configuration after the search is complete.
        retrain: Train finished trials again if they lack a score and their weights were not kept.
            Otherwise such trials stay as they are.
        scheduler: What decides which sampled configurations go on. `halving`: successive halving
            (`tuning.halving`). `none`: all run whole, with all seeds.
        states: Gigabytes of states of paused trials that the study keeps, from which they go on
            later. The default, 20, holds fifteen of BERT-base or 75 of MiniLM; a trial
            without its state starts again.
        objectives: TASK:METRIC[:SPLIT[:PROTOCOL]], maximized. Empty: STS-B:spearman:dev, or
            without the suite `sts` the first dev score of the user's own tasks. Several make a
            multi-objective search, whose first objective ranks the checkpoints.
        allow_test_objective: Accept a test split as an objective.
        keep: Checkpoints to keep, the best by the first objective.
        max_concurrent: Trials at a time; None: as many as fit.
        cpus_per_trial: CPU cores of a trial, and its number of torch threads.
        gpus_per_trial: GPUs of a trial, 0 to 1; None: 1 if a node has a GPU.
        memory_per_trial: Gigabytes of a node's memory to reserve for a trial; None: none.
        accelerator: Required GPU type, as Ray labels nodes, such as `H200`; None: any.
        address: Address of a Ray cluster. `local` starts Ray on this machine. None takes
            RAY_ADDRESS, else starts Ray on this machine.
        launcher: `ray`, or `local`: one trial after another in this process.
        track: Trackers that follow the search (`watch.tracking`).
        max_failures: End the search after so many failures in a row with one type of error. A
            trial that failed with the same error in an earlier run does not count.
        retries: How often to run a trial again after its worker was lost.
        save_every: Minutes between saved states of a running trial, from which another worker can
            resume; 0: no states.
        accumulate: Split a batch that does not fit the device's memory, and sum the gradients of
            its parts, if the method's loss does not couple the rows of a batch.
        deterministic: Let torch use deterministic algorithms alone; for GPUs.
        trial_timeout: Seconds after which a trial fails.
        max_time: Seconds after which this run of the search ends.
        max_gpu_hours: GPU hours after which this run of the search ends.
    """

    trials: int = 0
    budget: float | None = None
    sampler: SamplerName = "tpe"
    sampler_seed: int = 0
    learn_from: tuple[str, ...] = ()
    confirm: int = 0
    retrain: bool = False
    scheduler: SchedulerName = "halving"
    states: float = 20.0
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
    deterministic: bool = False
    trial_timeout: float | None = None
    max_time: float | None = None
    max_gpu_hours: float | None = None

    @property
    def samples(self) -> bool:
        """Whether configurations are sampled beyond the grid."""
        return self.trials > 0 or self.budget is not None

    @property
    def is_whole(self) -> bool:
        """Whether every sampled configuration runs whole, with all seeds."""
        return self.scheduler == "none"

    @property
    def ray_address(self) -> str:
        """The address of the Ray cluster; `local` means a Ray of this machine."""
        return self.address or os.environ.get("RAY_ADDRESS") or "local"

    def check(self, space: Space) -> None:
        """Check the options, each alone and for a space.

        Raises:
            ConfigError: Lists every option that is wrong.
            ObjectiveError: An objective is wrong.
        """
        parse_objectives(self.objectives, allow_test=self.allow_test_objective)
        faults = [*self._number_faults(), *self._space_faults(space)]
        if self.trials and self.budget is not None:
            rule = "sizes the search by itself, and so does --budget"
            faults.append(Fault("--trials", "", str(self.trials), rule, "Give one of them."))
        if faults:
            raise ConfigError(faults)

    def _number_faults(self) -> Iterator[Fault]:
        lowest = (
            ("--trials", self.trials, 0),
            ("--budget", self.budget, 1),
            ("sampler_seed", self.sampler_seed, 0),
            ("--confirm", self.confirm, 0),
            ("--keep", self.keep, 0),
            ("--max-concurrent", self.max_concurrent, 1),
            ("--cpus-per-trial", self.cpus_per_trial, 1),
            ("--gpus-per-trial", self.gpus_per_trial, 0),
            ("--memory-per-trial", self.memory_per_trial, 0),
            ("--states", self.states, 0),
            ("max_failures", self.max_failures, 1),
            ("retries", self.retries, 0),
            ("--save-every", self.save_every, 0),
            ("--trial-timeout", self.trial_timeout, 1),
            ("--max-time", self.max_time, 0),
            ("--max-gpu-hours", self.max_gpu_hours, 0),
        )
        for option, value, low in lowest:
            if value is not None and not low <= value < math.inf:
                rule = "must be finite" if value == math.inf else f"must be {low} or more"
                yield Fault(option, "", str(value), rule, "Correct it.")
        if self.trial_timeout is not None and self.trial_timeout > _LONGEST:
            rule = "must be a year or below"
            yield Fault("--trial-timeout", "", f"{self.trial_timeout:g}", rule, "Drop it.")
        share = self.gpus_per_trial
        if share is not None and share > 1:
            rule = "must be 1 or below: a trial computes on one GPU"
            yield Fault("--gpus-per-trial", "", f"{share:g}", rule, "Give 1, or a share of one.")

    def _space_faults(self, space: Space) -> Iterator[Fault]:
        option = "--trials" if self.trials else "--budget"
        value = f"{self.trials or self.budget or 0:g}"
        if self.samples and self.sampler == "grid":
            rule = "the grid has a fixed number of trials"
            yield Fault(option, "", value, rule, "Drop it, or take --sampler tpe.")
        if self.samples and not space.ranges:
            rule = f"{space.name} has no [search.ranges] left to sample from"
            yield Fault(option, "", value, rule, "Drop it, or add ranges.")
