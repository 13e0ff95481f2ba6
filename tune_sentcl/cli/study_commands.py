"""The commands `spaces`, `evaluate`, `show` and `data check`."""

import dataclasses
import statistics
import sys
import tempfile
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tune_sentcl.cli.exits import BAD_INPUT, FAILED, say
from tune_sentcl.cli.options import DataOption, JsonOption, PluginOption, RankByOption, own_entries
from tune_sentcl.cli.study_tables import SHOWN, print_study
from tune_sentcl.cli.terminal_tables import (
    Layout,
    knob_cell,
    line,
    print_json,
    print_table,
    spread,
)
from tune_sentcl.config import ProtocolName, SuiteName, stated, varied
from tune_sentcl.errors import BadInputError, ConfigError, Fault
from tune_sentcl.score import Score
from tune_sentcl.space import Space, load_space, space_names

if TYPE_CHECKING:
    from tune_sentcl.evaluate import Evaluation

OwnOption = Annotated[
    list[str] | None,
    typer.Option("--own", metavar="NAME=PATH", help="A task of your own (repeatable)."),
]


def spaces(
    space: Annotated[str | None, typer.Argument(help="Show this space in full.")] = None,
    plugins: PluginOption = None,
    json_rows: JsonOption = False,
) -> None:
    """List the spaces, or show one with its paper, tables, knobs and number of trials."""
    names = space_names() if space is None else [space]
    loaded = [load_space(name, plugins=plugins or ()) for name in names]
    rows = [
        {"name": each.name, "paper": each.paper, "tables": list(each.tables)}
        | {"trials": len(each.configurations)}
        for each in loaded
    ]
    if json_rows:
        print_json(rows)
    elif space is not None:
        _show_space(loaded[0])
    else:
        listed = zip(rows, loaded, strict=True)
        print_table([{**row, "what": each.summary} for row, each in listed])


def _show_space(space: Space) -> None:
    tables = f" ({', '.join(space.tables)})" if space.tables else ""
    line(f"{space.name}: {space.summary}")
    line(f"paper: {space.paper or 'none'}{tables}")
    line(f"trials: {len(space.configurations)}, seeds {', '.join(map(str, space.seeds))}")
    configs = [config.dotted() for config in space.configurations]
    shown = varied(configs)
    grid = [{key: stated(key, config) for key in shown} for config in configs]
    line("")
    print_table(grid, "Grid", Layout(knobs=shown))
    constant: dict[str, Any] = {}
    for key, value in (item for config in configs for item in config.items()):
        if value is not None and key not in (*shown, "seed"):
            constant.setdefault(key, value)
    rows = [{"key": key, "value": knob_cell(value)} for key, value in constant.items()]
    line("")
    print_table(rows, "Constant knobs")
    ranges = [{"key": r.key, "range": range_text(r)} for r in space.ranges]
    if ranges:
        line("")
    print_table(ranges, "Ranges of the sampler")


def range_text(item: Any) -> str:
    """A range as text: its ends, or its choices, and its prior."""
    prior = "" if item.prior is None else f", prior {item.prior}"
    if item.kind == "choice":
        return " | ".join(map(str, item.choices)) + prior
    return f"{item.low:g} .. {item.high:g}{' (log)' if item.log else ''}{prior}"


_SUITES: dict[str, tuple[SuiteName, ...]] = {
    "sts": ("sts",),
    "transfer": ("transfer",),
    "all": ("sts", "transfer"),
    "none": (),
}


def evaluate(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL [MODEL]",
            help="A folder, a hub name, `minilm`, `toy`, or a study, whose winner is taken. Of "
            "two models, the differences are printed.",
        ),
    ],
    suite: Annotated[
        Literal["sts", "transfer", "all", "none"], typer.Option(help="Tasks of SentEval to score.")
    ] = "sts",
    own: OwnOption = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROTOCOL",
            help="Protocol of the scores (repeatable). sts: cosine, relatedness; transfer: "
            "logreg-10fold, senteval-10fold, senteval-5fold, scl-paper-compat. "
            "Default: cosine, logreg-10fold.",
        ),
    ] = None,
    classifier_seeds: Annotated[
        int,
        typer.Option(min=1, help="Number of seeds for protocols with a randomized classifier."),
    ] = 1,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda. Default: cuda if there is a GPU.")
    ] = None,
    data: DataOption = None,
    toy: Annotated[bool, typer.Option("--toy", help="Score on the toy sets instead.")] = False,
    pooling: Annotated[
        Literal["mean", "mean_without_cls", "cls", "last", "first_last", "static_last", "modules"]
        | None,
        typer.Option(help="Pooling of token states. Default: by the model's files, else mean."),
    ] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Scale embeddings to length 1.")
    ] = False,
    max_length: Annotated[
        int | None, typer.Option(help="Longest input in tokens. Default: the model's own.")
    ] = None,
    json_rows: JsonOption = False,
) -> None:
    """Score an encoder without training it, or compare two on the same items."""
    import torch

    from tune_sentcl.evaluate.bootstrap import comparison
    from tune_sentcl.evaluate.suites import DETERMINISTIC, Measures
    from tune_sentcl.store.rows import SCORES
    from tune_sentcl.trial.run import EncoderOptions, score_encoder
    from tune_sentcl.watch.terminal import encoding_bar

    measures = Measures(
        suites=_SUITES[suite],
        protocols=_protocols(protocol or DETERMINISTIC),
        classifier_seeds=classifier_seeds,
        device=_device(device, torch.cuda.is_available()),
        own=own_entries(own),
    )
    if len(models) > 2:
        rule, move = "must be one or two", "Compare two at a time."
        raise ConfigError(Fault("MODEL", "", " ".join(models), rule, move))
    results = []
    for model in models:
        with encoding_bar() as show_progress, _weights(model) as name:
            results.append(
                score_encoder(
                    name,
                    data="toy" if toy else data,
                    options=EncoderOptions(pooling, normalize, max_length),
                    measures=measures,
                    progress=show_progress,
                )
            )
    if len(results) == 2:
        rows = comparison(*(result.items for result in results))
        (print_json if json_rows else _print_comparison)(rows)
        for result in results:
            _end(result)
        return
    (result,) = results
    if json_rows:
        rows = ({"trial_id": None, **dataclasses.asdict(score)} for score in result.scores)
        print_json([{name: row[name] for name in SCORES.names} for row in rows])
    else:
        whole = [s for s in result.scores if s.subset is None and s.aggregation in (None, "all")]
        constant = ("split", "aggregation", "metric", "protocol", "seeds")
        layout = Layout(constant=constant, of="scores")
        print_table(_score_rows(whole), f"{models[0]}, suite {suite}", layout)
    _end(result)


@contextmanager
def _weights(model: str) -> Iterator[str]:
    """A model's name, or for a study a folder with its winner's weights."""
    if "://" not in model and not (Path(model) / "study.json").is_file():
        yield model
        return
    from tune_sentcl.export.model_folder import export_trial

    with tempfile.TemporaryDirectory() as folder:
        to = str(Path(folder) / "model")
        export_trial(model, to, say=say)
        yield to


def _print_comparison(rows: list[dict[str, Any]]) -> None:
    layout = Layout(constant=("split", "metric"), of="scores")
    print_table(rows, "A is the first model, B the second; 95 % interval over items", layout)


def _end(result: "Evaluation") -> None:
    """Print notes and errors of an evaluation, and exit if there are errors."""
    for note in result.notes:
        say(f"note: {note}")
    for text in (text for error in result.errors for text in str(error).splitlines()):
        say(f"error: {text}")
    if result.errors:
        bad_input = any(isinstance(error, BadInputError) for error in result.errors)
        raise typer.Exit(BAD_INPUT if bad_input else FAILED)


def _score_rows(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """One row per score; several classifier seeds become mean ± standard deviation."""
    names = ("task", "split", "aggregation", "metric", "protocol", "n")
    groups: dict[tuple[Any, ...], list[float]] = {}
    for score in scores:
        if score.value is not None:
            key = tuple(getattr(score, name) for name in names)
            groups.setdefault(key, []).append(score.value)
    rows = [
        {**dict(zip(names, key, strict=True)), "value": statistics.fmean(values)}
        for key, values in groups.items()
    ]
    for row, values in zip(rows, groups.values(), strict=True):
        if max(map(len, groups.values())) > 1:
            several = len(values) > 1
            row["value"] = spread(row["value"], statistics.stdev(values) if several else None)
            row["seeds"] = len(values) if several else None
    return rows


def _protocols(names: Sequence[str]) -> tuple[ProtocolName, ...]:
    allowed = typing.get_args(ProtocolName)
    rule = f"must be one of {', '.join(allowed)}"
    faults = [
        Fault("--protocol", "", name, rule, "Choose one.") for name in names if name not in allowed
    ]
    if faults:
        raise ConfigError(faults)
    return typing.cast(tuple[ProtocolName, ...], tuple(dict.fromkeys(names)))


def _device(asked: str | None, gpu: bool) -> str:
    if asked is None:
        return "cuda" if gpu else "cpu"
    kind, _, number = asked.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ConfigError(Fault("--device", "", asked, "must be cpu or cuda", "Choose one."))
    if kind == "cuda" and not gpu:
        rule = "this machine has no GPU that torch can use"
        raise ConfigError(Fault("--device", "", asked, rule, "Write --device cpu."))
    return asked


def show(
    study: Annotated[str, typer.Argument(help="Folder or URL of the study.")],
    objective: RankByOption = None,
    limit: Annotated[
        int, typer.Option(min=0, help="Most rows of each printed table; 0: all.")
    ] = SHOWN,
    json_rows: JsonOption = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print all trials as CSV.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show the search's progress until it ends.")
    ] = False,
) -> None:
    """Print a study's trials, then means of its configurations, best first.

    `seconds` is the time for which a trial ran. `lost` counts the seeds that failed or were
    stopped. `Pareto` has a * if no other trial is better in one objective and as good in the
    others. `chosen dev` is the objective on the seeds that took part in the choice, beside `fresh`
    on new seeds. A line above the table explains each other short title.
    """
    if json_rows + csv + watch > 1:
        raise ConfigError(
            Fault("--json, --csv, --watch", "", "", "cannot be combined", "Keep one of them.")
        )
    if watch:
        from tune_sentcl.cli.watch_command import watch as follow

        follow(study, objective or (), limit)
        return
    if not json_rows and not csv:
        print_study(study, objective or (), limit)
        return
    from tune_sentcl.analysis.conversion import rows_of
    from tune_sentcl.analysis.summary import trials_by
    from tune_sentcl.judging.configurations import study_objectives
    from tune_sentcl.objective import parse_objectives
    from tune_sentcl.store.study import Study

    kept = Study.read(study)
    chosen = parse_objectives(objective, allow_test=True) if objective else study_objectives(kept)
    trials = trials_by(kept, chosen)
    if csv:
        trials.to_csv(sys.stdout, index=False)
    else:
        print_json(rows_of(trials))


def check(
    directory: Annotated[Path | None, typer.Argument(help="The data root.")] = None,
    own: OwnOption = None,
    json_rows: JsonOption = False,
) -> None:
    """Count the rows of every data set, and say how to repair wrong ones."""
    from tune_sentcl.data.check import check_own, check_root

    entries = own_entries(own)
    if directory is None and not entries:
        rule = "needs a data root or an own task"
        raise ConfigError(Fault("data check", "", "", rule, "Give the data root, or --own."))
    sets = check_root(directory) if directory is not None else []
    sets += map(check_own, entries)
    names = ("name", "status", "rows", "expected", "problem", "repair")
    rows = [{name: getattr(each, name) for name in names} for each in sets]
    if json_rows:
        print_json(rows)
    else:
        print_table(rows, layout=Layout(constant=("problem", "repair"), of="sets"))
    for each in sets:
        if each.status == "ok" and each.problem:
            say(f"note: {each.name}: {each.problem}")
        if each.status == "wrong":
            say(f"error: {each.name}: {each.problem}. {each.repair}")
    if any(each.status == "wrong" for each in sets):
        raise typer.Exit(BAD_INPUT)
