"""The options of a search, which are not part of a trial's config, each declared once.

The command line, the checks and the class itself are made from the declarations.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from tune_sentcl.arguments import Text, type_faults
from tune_sentcl.errors import ConfigError, Fault

if TYPE_CHECKING:
    from tune_sentcl.space import Space

SamplerName = Literal["tpe", "random", "grid"]
SchedulerName = Literal["halving", "none"]
LauncherName = Literal["ray", "local"]

SAMPLING, STAGES, RESOURCES = "Sampling", "Stages", "Resources"
LIMITS, CLUSTER, OUTPUT = "Limits", "Cluster", "Output"
PYTHON = ""
"""The group of options that only Python has."""

SCORE = "TASK:METRIC[:SPLIT[:PROTOCOL]]"
"""The form of a score in options."""
TIME = "TIME"
"""The metavar of a time; the command line accepts 90s, 30m or 1h30m."""
_YEAR = 366 * 24 * 3600.0
_CLASS = "SearchOptions."
_OF_RAY = ("address", "accelerator", "max_concurrent", "memory_per_trial")
"""The options that have an effect only with Ray."""


@dataclass(frozen=True)
class Declaration:
    """The declaration of one option.

    Attributes:
        help: A sentence for `--help`.
        group: The option's group in `--help`; `PYTHON`: not on the command line.
        low: The least value; None if the option is not a number.
        high: The greatest value.
        metavar: The name of the value in `--help`.
        name: The option's name on the command line; empty: that of the field.
    """

    help: str
    group: str
    low: float | None = None
    high: float = math.inf
    metavar: str | None = None
    name: str = ""


def _option(default: Any, group: str, text: str, **others: Any) -> Any:
    return field(default=default, metadata={"option": Declaration(text, group, **others)})


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search, named as on the command line, where `--help` describes them.

    Times are in seconds. `declarations()` returns each option's bounds and help text. A list
    becomes a tuple, and a path in `learn_from` becomes text.

    Raises:
        ConfigError: An option is wrong; the error lists all wrong options by names such as
            `SearchOptions.samples`.
    """

    samples: int = _option(
        0,
        SAMPLING,
        "Number of configurations to sample beyond the grid, including those that the study "
        "already has.",
        low=0,
    )
    budget: float | None = _option(
        None,
        SAMPLING,
        "Sample as many configurations as N whole trainings pay for in all stages, including "
        "those that the study already has. The grid and --confirm are not counted.",
        low=1,
        metavar="N",
    )
    sampler: SamplerName = _option(
        "tpe",
        SAMPLING,
        "Sampler of Optuna that chooses configurations; grid samples no configurations.",
    )
    sampler_seed: int = _option(0, PYTHON, "Seed of the sampler's random numbers.", low=0)
    learn_from: tuple[Text, ...] = _option(
        (),
        SAMPLING,
        "First try the best configurations of this study, ten at most (repeatable).",
        metavar="STUDY",
    )
    objectives: tuple[Text, ...] = _option(
        (),
        SAMPLING,
        "Score to maximize, or cost to minimize (repeatable). The first objective ranks "
        "trials. Default: STS-B:spearman:dev, else the first dev score of your custom tasks.",
        metavar=SCORE,
        name="objective",
    )
    allow_test_objective: bool = _option(False, SAMPLING, "Allow an objective on a test split.")
    allow_overlap: bool = _option(
        False,
        SAMPLING,
        "Allow training examples of your files that also stand in custom tasks.",
    )
    confirm: int = _option(
        0,
        SAMPLING,
        "After the search, train the winner, the baseline and the runner-up with N new "
        "seeds. If N is larger in a later search, N is rounded up to a doubling of the first "
        "N, and earlier confirmation seeds are used again.",
        low=0,
        metavar="N",
    )
    scheduler: SchedulerName = _option(
        "halving",
        STAGES,
        "halving: every sampled configuration trains for a small part of a training, the "
        "best quarter four times as long, and so on to the end. The best third of those that "
        "reach the end, including the grid, trains with a further seed. The grid trains to the "
        "end, with all seeds. none: every configuration trains to the end, with all seeds.",
    )
    stage_objective: Text | None = _option(
        None,
        STAGES,
        "Dev score that ranks trials at the ends of stages. It must be given if the first "
        "objective is not a dev score of pairs, retrieval or a plugin. Default: the first "
        "objective.",
        metavar=SCORE,
    )
    states: float = _option(
        20.0,
        STAGES,
        "Disk space for the states of paused trials. A paused trial without a kept state "
        "starts again. 20 GB hold 15 states of BERT-base or 75 of MiniLM.",
        low=0,
        metavar="GB",
    )
    max_concurrent: int | None = _option(
        None,
        RESOURCES,
        "Largest number of trials that run at the same time. Default: as many as fit.",
        low=1,
    )
    cpus_per_trial: int = _option(
        1, RESOURCES, "CPU cores for each trial, which is also its number of torch threads.", low=1
    )
    gpus_per_trial: float | None = _option(
        None,
        RESOURCES,
        "GPUs for each trial, 0 to 1; with 0.25, four trials share one GPU. Default: 1 if a "
        "node has a GPU, else 0.",
        low=0,
        high=1,
    )
    memory_per_trial: float | None = _option(
        None,
        RESOURCES,
        "Main memory that Ray reserves for each trial. A trial may take more. Default: no "
        "reservation.",
        low=0,
        metavar="GB",
    )
    deterministic: bool = _option(
        False,
        RESOURCES,
        "Make trials on a GPU reproducible, bit by bit. Trials are slower, because "
        "they use no CUDA graphs.",
    )
    max_failures: int = _option(
        5,
        PYTHON,
        "Number of failed trials in a row, with one type of error, after which the search ends.",
        low=1,
    )
    retries: int = _option(
        2, PYTHON, "How often a trial runs again after its worker was lost.", low=0
    )
    save_every: float = _option(
        10.0,
        LIMITS,
        "Minutes between two saved states of a running trial. An interrupted trial continues "
        "from its last saved state. 0: save no states.",
        low=0,
        metavar="MINUTES",
    )
    trial_timeout: float | None = _option(
        None,
        LIMITS,
        "Time after which a trial fails, such as 90s or 1h30m. Default: no limit.",
        low=1,
        high=_YEAR,
        metavar=TIME,
    )
    max_time: float | None = _option(
        None,
        LIMITS,
        "Time after which this run of the search ends, such as 8h. Default: no limit.",
        low=0,
        metavar=TIME,
    )
    max_gpu_hours: float | None = _option(
        None, LIMITS, "GPU hours after which this run ends. Default: no limit.", low=0
    )
    address: Text | None = _option(
        None,
        CLUSTER,
        "Address of a Ray cluster; auto for a cluster that runs on this machine; local to "
        "start Ray on this machine. Default: RAY_ADDRESS, else local.",
    )
    accelerator: Text | None = _option(
        None,
        CLUSTER,
        "Run trials only on GPUs of this type, such as H200, A100 or L4. Default: any type.",
        metavar="NAME",
    )
    launcher: LauncherName = _option(
        "ray",
        CLUSTER,
        "ray runs trials side by side; local runs one trial at a time in this process, "
        "without Ray.",
    )
    keep: int = _option(
        1,
        OUTPUT,
        "Number of trials whose weights the study keeps: first the best trial of the winner, "
        "then the other trials by score.",
        low=0,
    )
    track: tuple[Text, ...] = _option(
        (),
        OUTPUT,
        "Log trials to mlflow, wandb, tensorboard or a plugin's watcher (repeatable).",
        metavar="NAME",
    )

    @property
    def is_sampling(self) -> bool:
        """Whether configurations are sampled beyond the grid."""
        return self.samples > 0 or self.budget is not None

    @property
    def is_whole(self) -> bool:
        """Whether every sampled configuration trains to the end, with all seeds."""
        return self.scheduler == "none"

    @property
    def ray_address(self) -> str:
        """The address of the Ray cluster; `local` means a Ray of this machine."""
        return self.address or os.environ.get("RAY_ADDRESS") or "local"

    @property
    def is_here(self) -> bool:
        """Whether the trials run on this machine alone."""
        return self.launcher == "local" or self.ray_address == "local"

    def __post_init__(self) -> None:
        for name in declarations():
            value = getattr(self, name)
            if isinstance(value, list | tuple):
                texts = (
                    str(v) if name == "learn_from" and isinstance(v, Path) else v for v in value
                )
                object.__setattr__(self, name, tuple(texts))
        values = {name: getattr(self, name) for name in declarations()}
        faults = list(type_faults(values, get_type_hints(SearchOptions, include_extras=True)))
        if faults := faults or [*self._number_faults(), *self._combination_faults()]:
            raise ConfigError(replace(fault, where=f"{_CLASS}{fault.where}") for fault in faults)

    def without_ray(self) -> "SearchOptions":
        """The options for running trials in this process."""
        others: dict[str, Any] = dict.fromkeys(_OF_RAY)
        return replace(self, launcher="local", **others)

    def check(self, space: "Space") -> None:
        """Check the options for a search space.

        Raises:
            ConfigError: There is nothing to sample from.
            ObjectiveError: An objective is wrong.
        """
        # This import is not at the top, because --help does not need it.
        from tune_sentcl.objective import parse_objectives

        parse_objectives(self.objectives, allow_test=self.allow_test_objective)
        if self.is_sampling and not space.ranges:
            option = "--samples" if self.samples else "--budget"
            rule = f"{space.name} has no [search.ranges] left to sample from"
            value = f"{self.samples or self.budget:g}"
            raise ConfigError(
                Fault(
                    option,
                    value=value,
                    rule=rule,
                    move="Remove this option, or add ranges to the search space.",
                )
            )

    def _number_faults(self) -> Iterator[Fault]:
        for name, option in declarations().items():
            value = getattr(self, name)
            if option.low is None or value is None:
                continue
            if not isinstance(value, int | float):
                # pydantic also accepts Decimal and Fraction as numbers.
                yield Fault(
                    name,
                    value=repr(value),
                    rule="must be an int or a float",
                    move="Pass a number.",
                )
                continue
            rule = "" if math.isfinite(value) else "must be finite"
            rule = f"must be {option.low:g} or more" if value < option.low else rule
            rule = rule or (f"must be {option.high:g} or less" if value > option.high else "")
            if rule:
                yield Fault(name, value=f"{value:g}", rule=rule, move="Pass such a number.")

    def _combination_faults(self) -> Iterator[Fault]:
        sampled = "samples" if self.samples else "budget"
        value = f"{float(self.samples or self.budget or 0):g}"
        if self.samples and self.budget is not None:
            rule = f"cannot be combined with {_CLASS}budget"
            yield Fault(sampled, value=value, rule=rule, move="Remove one of the two.")
        if self.is_sampling and self.sampler == "grid":
            rule = f"cannot be combined with {_CLASS}sampler grid"
            yield Fault(
                sampled, value=value, rule=rule, move=f"Remove it, or use {_CLASS}sampler tpe."
            )
        for name in _OF_RAY if self.launcher == "local" else ():
            if (value := getattr(self, name)) is not None:
                rule = (
                    f"cannot be combined with {_CLASS}launcher local, which runs one trial "
                    "at a time"
                )
                yield Fault(name, value=str(value), rule=rule, move="Remove one of the two.")


def declarations() -> dict[str, Declaration]:
    """The declaration of each option, by its field."""
    return {option.name: option.metadata["option"] for option in fields(SearchOptions)}


def flag(name: str) -> str:
    """The command line's flag for a field."""
    return f"--{(declarations()[name].name or name).replace('_', '-')}"


def python_names() -> dict[str, str]:
    """Python's names of the options, by their flags on the command line."""
    return {flag(name): f"{_CLASS}{name}" for name in declarations()}
