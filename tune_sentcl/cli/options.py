"""The options that several commands share, and the parsers of their values."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tune_sentcl.config.data_names import own_sources
from tune_sentcl.errors import ConfigError, Fault

# The groups of options in `--help`, in this order.
DATA_AND_SPACE = "Data and space"
SAMPLING = "Sampling"
EARLY_STOPPING = "Early stopping"
RESOURCES = "Resources"
LIMITS = "Limits"
CLUSTER = "Cluster"
OUTPUT = "Output"

SCORE = "TASK:METRIC[:SPLIT[:PROTOCOL]]"
"""How options name a score."""

SpaceArgument = Annotated[
    str,
    typer.Argument(
        help="Name of a shipped space, such as scl/lambda (`tune-sentcl spaces` lists them), "
        "or path of a TOML file."
    ),
]
StudyOption = Annotated[
    str,
    typer.Option(
        help="Folder or object store URL of the results; an existing study is continued.",
        rich_help_panel=DATA_AND_SPACE,
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data sets, the same on every node. Default: the environment variable "
        "TUNE_SENTCL_DATA.",
        rich_help_panel=DATA_AND_SPACE,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a config value in every trial, in place of the space's values (repeatable).",
        rich_help_panel=DATA_AND_SPACE,
    ),
]
SeedsOption = Annotated[
    str | None,
    typer.Option(
        help="Seeds, such as 0,1,2; each configuration is one trial per seed. Default: those of "
        "the space.",
        rich_help_panel=DATA_AND_SPACE,
    ),
]
TrialsOption = Annotated[
    int,
    typer.Option(
        help="Sample this many configurations beyond the grid.",
        rich_help_panel=SAMPLING,
    ),
]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        help="Sample as many configurations as halving can pay for with this many whole trainings "
        "of one seed.",
        rich_help_panel=SAMPLING,
    ),
]
SamplerOption = Annotated[
    Literal["tpe", "random", "grid"],
    typer.Option(
        help="Optuna sampler that proposes configurations beyond the grid; grid proposes none.",
        rich_help_panel=SAMPLING,
    ),
]
LearnFromOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STUDY",
        help="Sample the best configurations of another study first (repeatable).",
        rich_help_panel=SAMPLING,
    ),
]
ObjectiveOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar=SCORE,
        help="Score to maximize; several make a multi-objective search (repeatable). "
        "Default: STS-B:spearman:dev.",
        rich_help_panel=SAMPLING,
    ),
]
RankByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--objective",
        metavar=SCORE,
        help="Score to print; the first one ranks (repeatable). Default: the objectives of the "
        "last search.",
    ),
]
AllowTestOption = Annotated[
    bool,
    typer.Option(
        "--allow-test-objective",
        help="Allow an objective on a test split, which is refused otherwise.",
        rich_help_panel=SAMPLING,
    ),
]
RetrainOption = Annotated[
    bool,
    typer.Option(
        "--retrain",
        help="Train a finished trial again if it lacks a score of this search and its weights "
        "were not kept.",
        rich_help_panel=SAMPLING,
    ),
]
SchedulerOption = Annotated[
    Literal["halving", "none"],
    typer.Option(
        help="Which sampled configurations go on. halving: all train for a small share of their "
        "rows, the best quarter for four times as many, and so on to the end; the best third of "
        "these and of the grid run with a further seed. none: all run whole, with all seeds.",
        rich_help_panel=EARLY_STOPPING,
    ),
]
StatesOption = Annotated[
    float,
    typer.Option(
        metavar="GB",
        help="Disk for the states of stopped trials, from which they go on later; a trial without "
        "one starts again.",
        rich_help_panel=EARLY_STOPPING,
    ),
]
MemoryOption = Annotated[
    float | None,
    typer.Option(
        metavar="GB",
        help="Main memory in GB that Ray reserves for each trial; it is no limit. Default: none.",
        rich_help_panel=RESOURCES,
    ),
]
AcceleratorOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Run trials only on GPUs of this type, such as H200, A100 or L4. Default: any.",
        rich_help_panel=CLUSTER,
    ),
]
CpusOption = Annotated[
    int,
    typer.Option(
        help="CPU cores of each trial, and its number of torch threads.",
        rich_help_panel=RESOURCES,
    ),
]
GpusOption = Annotated[
    float | None,
    typer.Option(
        help="GPUs of each trial, 0 to 1; 0.25 runs four trials on one GPU. Default: 1 if a node "
        "has a GPU, else 0.",
        rich_help_panel=RESOURCES,
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster, auto for one that runs on this machine, or local to start "
        "Ray here. Default: RAY_ADDRESS, else local.",
        rich_help_panel=CLUSTER,
    ),
]
AccumulateOption = Annotated[
    bool,
    typer.Option(
        "--accumulate",
        help="Compute the gradient of a batch that does not fit the device's memory in parts; a "
        "loss that compares the rows of a batch cannot be split.",
        rich_help_panel=RESOURCES,
    ),
]
DeterministicOption = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="Let torch use deterministic algorithms alone, so that a GPU repeats a trial to the "
        "bit; slower.",
        rich_help_panel=RESOURCES,
    ),
]
KeepOption = Annotated[
    int,
    typer.Option(
        help="Keep the weights of this many best trials; 0 keeps none.", rich_help_panel=OUTPUT
    ),
]
ConcurrentOption = Annotated[
    int | None,
    typer.Option(
        help="Run at most this many trials at a time. Default: as many as fit.",
        rich_help_panel=RESOURCES,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON array.")]


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE pairs; the last value of a repeated key counts."""
    faults = [
        Fault("--set", "", text, "must be KEY=VALUE", "Write --set method.lambda=0.3.")
        for text in texts
        if not text.partition("=")[0].strip() or "=" not in text
    ]
    if faults:
        raise ConfigError(faults)
    pairs = (text.partition("=") for text in texts)
    return {key.strip(): parse_value(value.strip()) for key, _, value in pairs}


def parse_value(text: str) -> Any:
    """A TOML value; otherwise `[a,b]` is a list of strings, and any other text a string."""
    try:
        # Inside a list, TOML refuses a comment or another line behind the value.
        tomllib.loads(f"value = [{text}]")
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:  # no TOML value, or an integer with too many digits for Python
        if text.startswith("[") and text.endswith("]"):
            items = (item.strip().strip("\"'") for item in text[1:-1].split(","))
            return [item for item in items if item]
        return text


def parse_seeds(text: str | None) -> tuple[int, ...] | None:
    """Parse `0,1,2`: distinct whole numbers of 0 or more."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    # 18 digits always fit the study's column of seeds.
    seeds = tuple(int(part) for part in parts if part.isdecimal() and len(part) <= 18)
    if len(set(seeds)) < len(parts):
        rule = "must be distinct whole numbers of 0 or more, with commas between"
        raise ConfigError(Fault("--seeds", "", text, rule, "Write --seeds 0,1,2."))
    return seeds


def own_entries(given: Sequence[str] | None) -> tuple[str, ...]:
    """Check entries of `evaluation.own`."""
    entries = tuple(given or ())
    try:
        own_sources(entries)
    except ValueError as error:
        shown = ", ".join(entries)
        move = "Write --own support=path/to/folder."
        raise ConfigError(Fault("--own", "", shown, f"must be {error}", move)) from None
    return entries


_PARTS = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?"
)
_SECONDS = (24 * 3600, 3600, 60, 1)


def parse_duration(option: str, text: str | None) -> float | None:
    """Parse `90s`, `30m`, `1h30m` or `2d` as seconds; a number needs its unit."""
    if text is None:
        return None
    found = _PARTS.fullmatch(text.strip().lower().replace(" ", ""))
    if found is None or not any(found.groups()):
        rule = "must be a time with units: d, h, m, s"
        raise ConfigError(Fault(option, "", text, rule, f"Write {option} 1h30m."))
    return sum(
        float(part or 0) * unit for part, unit in zip(found.groups(), _SECONDS, strict=True)
    )
