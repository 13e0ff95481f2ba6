"""The command `evaluate`: scores of one encoder, or the difference of two."""

import dataclasses
import statistics
import tempfile
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tune_sentcl.cli.exits import BAD_INPUT, FAILED, say
from tune_sentcl.cli.options import DataOption, JsonOption, OwnOption, PluginOption, own_entries
from tune_sentcl.cli.terminal_tables import Layout, print_json, print_table, spread
from tune_sentcl.config import ProtocolName, SuiteName
from tune_sentcl.errors import BadInputError, ConfigError, Fault
from tune_sentcl.score import Score

if TYPE_CHECKING:
    from tune_sentcl.evaluate import Evaluation

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
            help="Model to score: a folder, a hub name, `minilm`, `toy`, `static:NAME`, or a "
            "study, whose winner is scored. With two models the command also prints their "
            "differences.",
        ),
    ],
    suite: Annotated[
        Literal["sts", "transfer", "all", "none"], typer.Option(help="SentEval's tasks to score.")
    ] = "sts",
    own: OwnOption = None,
    plugins: PluginOption = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROTOCOL",
            help="Protocol by which tasks are scored (repeatable). sts: cosine, relatedness; "
            "transfer: logreg-10fold, senteval-10fold, senteval-5fold, scl-paper-compat. "
            "Default: cosine, logreg-10fold.",
        ),
    ] = None,
    classifier_seeds: Annotated[
        int,
        typer.Option(min=1, help="Number of seeds for each classifier that draws random numbers."),
    ] = 1,
    device: Annotated[
        str | None, typer.Option(help="Device: cpu or cuda. Default: cuda if there is a GPU.")
    ] = None,
    data: DataOption = None,
    toy: Annotated[
        bool, typer.Option("--toy", help="Score the model on the generated toy sets.")
    ] = False,
    pooling: Annotated[
        Literal["mean", "mean_without_cls", "cls", "last", "first_last", "static_last", "modules"]
        | None,
        typer.Option(
            help="How token states become one embedding. Default: as the model's files state, "
            "else mean."
        ),
    ] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Scale embeddings to length 1.")
    ] = False,
    max_length: Annotated[
        int | None, typer.Option(help="Longest input in tokens. Default: the model's own limit.")
    ] = None,
    json_rows: JsonOption = False,
) -> None:
    """Score an encoder, or compare two on the same items."""
    import torch

    from tune_sentcl.evaluate.suites import DETERMINISTIC, Measures
    from tune_sentcl.items import comparison
    from tune_sentcl.plugins import load_plugins
    from tune_sentcl.store.rows import SCORES
    from tune_sentcl.trial.run import EncoderOptions, score_encoder
    from tune_sentcl.watch.terminal import encoding_bar

    load_plugins(plugins or ())
    measures = Measures(
        suites=_SUITES[suite],
        protocols=_protocols(protocol or DETERMINISTIC),
        classifier_seeds=classifier_seeds,
        device=_device(device, torch.cuda.is_available()),
        own=own_entries(own),
    )
    if len(models) > 2:
        rule = "one or two models must be named"
        move = "Remove the others; the command compares two models at most."
        raise ConfigError(Fault("MODEL", value=" ".join(models), rule=rule, move=move))
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
        rows += _without_interval(rows, results)
        (print_json if json_rows else _print_comparison)(rows)
        if any(row["low"] is None for row in rows):
            say("note: only tasks of scored pairs and of retrieval have a confidence interval")
        _end(models, results)
        return
    (result,) = results
    if json_rows:
        scores = ({"trial_id": None, **dataclasses.asdict(score)} for score in result.scores)
        print_json([{name: score[name] for name in SCORES.names} for score in scores])
    else:
        constant = ("split", "aggregation", "metric", "protocol", "seeds")
        layout = Layout(constant=constant, of="scores")
        print_table(_score_rows(_whole(result)), f"{models[0]}, suite {suite}", layout)
    _end([""], results)


@contextmanager
def _weights(model: str) -> Iterator[str]:
    """The name of a model; for a study, a temporary folder with its winner's weights."""
    if "://" not in model and not (Path(model) / "study.json").is_file():
        yield model
        return
    from tune_sentcl.export.model_folder import export_trial

    with tempfile.TemporaryDirectory() as folder:
        to = str(Path(folder) / "model")
        method = export_trial(model, to, say=say).record["trial"]["config"]["method"]
        if method.get("quantization", "none") != "none":
            say(f"note: the study quantized the embeddings of {model}, but this command does not")
        yield to


def _without_interval(
    compared: Sequence[dict[str, Any]], results: Sequence["Evaluation"]
) -> list[dict[str, Any]]:
    """Rows like those of `comparison`, for tasks without scores of single items; no intervals."""
    known = {(row["task"], row["split"]) for row in compared}
    rows = []
    first, other = (_by_measure(_whole(result)) for result in results)
    second = {key[:-1]: values for key, values in other.items()}
    for key, values in first.items():
        task, split, _, metric, protocol, n = key
        if key[:-1] in second and (task, split) not in known:
            a, b = statistics.fmean(values), statistics.fmean(second[key[:-1]])
            row = {"task": task, "split": split, "metric": f"{metric} ({protocol})"}
            row |= {"A": a, "B": b, "A - B": a - b, "low": None, "high": None, "n": n}
            rows.append(row)
    return rows


def _whole(result: "Evaluation") -> list[Score]:
    return [s for s in result.scores if s.subset is None and s.aggregation in (None, "all")]


def _print_comparison(rows: list[dict[str, Any]]) -> None:
    layout = Layout(constant=("split", "metric"), of="scores")
    print_table(
        rows, "A is the first model, B the second; 95 % confidence interval over items", layout
    )


def _end(models: Sequence[str], results: Sequence["Evaluation"]) -> None:
    """Print notes and errors of evaluations, and exit if there are errors."""
    for model, result in zip(models, results, strict=True):
        of = f" of {model}" if model else ""
        for note in result.notes:
            say(f"note{of}: {note}")
        for text in (text for error in result.errors for text in str(error).splitlines()):
            say(f"error{of}: {text}")
    errors = [error for result in results for error in result.errors]
    if errors:
        bad_input = any(isinstance(error, BadInputError) for error in errors)
        raise typer.Exit(BAD_INPUT if bad_input else FAILED)


_MEASURE = ("task", "split", "aggregation", "metric", "protocol", "n")


def _by_measure(scores: Sequence[Score]) -> dict[tuple[Any, ...], list[float]]:
    """The values of each measure, one for each classifier seed."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for score in scores:
        if score.value is not None:
            key = tuple(getattr(score, name) for name in _MEASURE)
            groups.setdefault(key, []).append(score.value)
    return groups


def _score_rows(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """One row per score; several classifier seeds become mean ± standard deviation."""
    groups = _by_measure(scores)
    rows: list[dict[str, Any]] = [
        {**dict(zip(_MEASURE, key, strict=True)), "value": statistics.fmean(values)}
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
        Fault("--protocol", value=name, rule=rule, move="Choose one of these protocols.")
        for name in names
        if name not in allowed
    ]
    if faults:
        raise ConfigError(faults)
    return typing.cast(tuple[ProtocolName, ...], tuple(dict.fromkeys(names)))


def _device(asked: str | None, gpu: bool) -> str:
    if asked is None:
        return "cuda" if gpu else "cpu"
    kind, _, number = asked.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ConfigError(
            Fault(
                "--device",
                value=asked,
                rule="must be cpu or cuda",
                move="Write --device cpu or --device cuda.",
            )
        )
    if kind == "cuda" and not gpu:
        rule = "this machine has no GPU that torch can use"
        raise ConfigError(Fault("--device", value=asked, rule=rule, move="Write --device cpu."))
    return asked
