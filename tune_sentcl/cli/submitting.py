"""The commands that hand a search to a Ray cluster, and look after it there."""

import inspect
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tune_sentcl.cli.exits import BAD_INPUT, FAILED, say
from tune_sentcl.cli.running import JsonOption, search, search_options
from tune_sentcl.cli.sending import check_place, check_places, check_sent
from tune_sentcl.cli.settings import parse_seeds, parse_settings
from tune_sentcl.cli.tables import line, print_json, print_table
from tune_sentcl.errors import ConfigError, Fault, TuneSentclError
from tune_sentcl.space import Space, load_space

if TYPE_CHECKING:
    from tune_sentcl.launch.ray.jobs import Jobs, Run
    from tune_sentcl.launch.ray.shipment import Shipment

StudyArgument = Annotated[str, typer.Argument(help="URL or path of the study on the cluster.")]
AddressOption = Annotated[
    str | None,
    typer.Option(help="Dashboard: http://HEAD:8265; default RAY_API_SERVER_ADDRESS."),
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Print its log until it is over; Ctrl-C lets it run on.")
]

_ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_HERE = frozenset({"space", "study", "address"})  # what the command on the cluster says in its way
_STOP_S = 10  # Ray kills after 3; a search that is asked to end takes up to 7
_SETUP_S = 300
_LOG_AGAIN = ", last available logs"  # what Ray's message repeats of the log
_PIP_S = 14 * 60  # Ray gives up a job that has not begun after 15 minutes
# Ray's defaults, and an end to pip's patience: of an index that hangs it then says so itself.
_PIP_OPTIONS = ["--disable-pip-version-check", "--no-cache-dir", "--timeout=15", "--retries=1"]


def _with_options_of(
    command: Callable[..., None],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take another's options too; its own replace those of the same name."""

    def widen(own: Callable[..., None]) -> Callable[..., None]:
        named = inspect.signature(own).parameters.values()
        kept = {p.name: p for p in named if p.kind is not p.VAR_KEYWORD}
        merged = {**inspect.signature(command).parameters, **kept}
        parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in merged.values()]
        own.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        own.__annotations__ = {p.name: p.annotation for p in parameters}
        return own

    return widen


@_with_options_of(search)
def submit(
    *,
    context: typer.Context,
    study: Annotated[
        str | None, typer.Option(help="URL of the study, or its path on the cluster.")
    ] = None,
    address: AddressOption = None,
    follow: FollowOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be sent, and send nothing.")
    ] = False,
    pip: Annotated[
        bool, typer.Option("--pip", help="Let the cluster install what this package needs.")
    ] = False,
    **asked: Any,
) -> None:
    """Have a Ray cluster run a search; takes every option of `search`."""
    from tune_sentcl.launch.ray.shipment import Shipment

    space = _checked(asked)
    words = list(command_words(context, study or "STUDY"))
    check_sent(space, words)
    check_places(study, asked)
    shipment = Shipment.of(space)
    environment = _environment(pip=pip, extras=[*space.extras, *(asked["track"] or ())])
    if dry_run:
        _print_order(study, shlex.join(words), shipment, environment)
        return
    if study is None:
        rule, move = "must be given", "Give a URL, or a path that every node of the cluster sees."
        raise ConfigError(Fault("--study", "", "", rule, move))
    where, jobs = _connected(address)
    from tune_sentcl.launch.ray.jobs import Order, commands, in_the_way

    order = Order(study, shlex.join(words), shipment.files, environment)
    runs = jobs.runs(study)
    running = [run for run in runs if not run.over]
    if running and not follow:
        raise in_the_way(running[-1], study, where)
    if running:
        run = running[-1]
        other = "" if run.command == order.command else f" Its command is another: {run.command}"
        say(f"run {run.number} is {run.status} already and goes on.{other}")
    else:
        run = jobs.submit(order, 1 + max((run.number for run in runs), default=0))
        line(f"submitted: {run.job}")
    for what, command in commands(study, where).items():
        line(f"{what}: {command}")
    line("resume: repeat the command when it is over")
    if follow:
        _follow(jobs, run)


def status(
    study: StudyArgument, address: AddressOption = None, json_rows: JsonOption = False
) -> None:
    """List the runs of a study's search on a cluster."""
    check_place("STUDY", study)
    _, jobs = _connected(address)
    runs = jobs.runs(study)
    rows = [_row(run, whole=json_rows) for run in runs]
    if json_rows:
        print_json(rows)
    elif not rows:
        jobs.latest(study)  # which says so
    else:
        print_table(rows, f"Runs of {study}")


def logs(
    study: StudyArgument, address: AddressOption = None, follow: FollowOption = False
) -> None:
    """Print what the latest run of a study's search has printed."""
    check_place("STUDY", study)
    _, jobs = _connected(address)
    run = jobs.latest(study)
    if follow:
        _follow(jobs, run)
    else:
        _write(jobs.logs(run))


def stop(
    study: StudyArgument,
    address: AddressOption = None,
    wait: Annotated[int, typer.Option(min=0, help="Seconds to wait for its end.")] = 60,
) -> None:
    """Stop the latest run of a study's search, and see that it has ended."""
    check_place("STUDY", study)
    _, jobs = _connected(address)
    run = jobs.latest(study)
    if run.over:
        line(f"run {run.number} was over: {run.status}")
        return
    run = jobs.stop(run, wait)
    if not run.over:
        raise TuneSentclError(
            f"run {run.number} is still {run.status} after {wait} s, although it was asked to "
            "stop: repeat the command, or look at the cluster"
        )
    line(f"run {run.number} is over: {run.status}; what had finished is in the study")


def _checked(asked: Mapping[str, Any]) -> Space:
    """The space, after all that can be known here of the options was found to be right."""
    options = search_options({**asked, "address": None})
    space = load_space(asked["space"], parse_settings(asked["settings"] or []))
    parse_seeds(asked["seeds"])
    options.check(space)
    return space


def command_words(context: typer.Context, study: str) -> Iterator[str]:
    """The command that the cluster runs: that of the user, with every option that was given.

    Args:
        context: Of `submit`, with its options parsed.
        study: A URL, or a path on the cluster.
    """
    from tune_sentcl.launch.ray.shipment import SPACE_FILE

    yield from ("python", "-m", "tune_sentcl", "search", SPACE_FILE)
    yield from ("--study", study, "--address", "auto")
    theirs = inspect.signature(search).parameters.keys() - _HERE
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if name in theirs and source is not None and source.name == "COMMANDLINE":
            yield from _option(option, context.params[name])


def _option(option: Any, value: Any) -> Iterator[str]:
    name = max(option.opts, key=len)
    if isinstance(value, bool):
        yield name if value else option.secondary_opts[0]
        return
    for item in value if isinstance(value, list | tuple) else (value,):
        yield f"{name}={item}"


def _environment(*, pip: bool, extras: Sequence[str]) -> dict[str, Any]:
    """Ray's runtime environment but for the files; `extras` of this package go with pip."""
    environment: dict[str, Any] = {
        "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_S)},
        "config": {"setup_timeout_seconds": _PIP_S if pip else _SETUP_S},
    }
    if pip:
        from tune_sentcl.launch.ray.pins import pinned

        environment["pip"] = {"packages": pinned(extras), "pip_install_options": _PIP_OPTIONS}
    return environment


def _print_order(
    study: str | None, command: str, shipment: "Shipment", environment: Mapping[str, Any]
) -> None:
    from tune_sentcl.launch.ray.job_names import job_id
    from tune_sentcl.launch.ray.shipment import SPACE_FILE

    name = "tune-sentcl-STUDY-DIGEST-runN" if study is None else job_id(study, "N")
    line(f"command: {command}")
    line(f"submission id: {name}, for run N of the study")
    files = {"working_dir": [SPACE_FILE], "py_modules": [shipment.wheel_name]}
    line(f"runtime environment: {json.dumps({**environment, **files})}")
    print_table(
        [{"file": name, "bytes": len(content)} for name, content in shipment.files.items()],
        "What is sent",
    )
    line(f"The wheel holds {len(shipment.package)} files of this package; no data, no study.")


def _connected(address: str | None) -> tuple[str, "Jobs"]:
    """A cluster's dashboard, by the option or the variables that Ray's own commands take."""
    found = [os.environ.get(name, "") for name in _ADDRESSES]
    found = [place for place in found if place.startswith(("http://", "https://"))]
    where = address or next(iter(found), None)
    rule = "must be the URL of a cluster's dashboard"
    if where is None:
        move = "Give http://HEAD:8265, or set RAY_API_SERVER_ADDRESS."
        raise ConfigError(Fault("--address", "", "", rule, move))
    if not where.startswith(("http://", "https://")):
        raise ConfigError(Fault("--address", "", where, rule, "Write http://HEAD:8265."))
    from tune_sentcl.launch.ray.environment import prepare_ray

    prepare_ray()
    from tune_sentcl.launch.ray.jobs import Jobs

    return where, Jobs(where)


def _follow(jobs: "Jobs", run: "Run") -> None:
    """Print a run's log to its end, and leave with the exit code of how it ended."""
    from tune_sentcl.launch.ray.following import follow

    try:
        ended = follow(jobs, run, _write, say)
    except KeyboardInterrupt:
        say(f"run {run.number} goes on; only this command ends")
        raise
    if ended.status == "SUCCEEDED":
        return
    said = ended.message.partition(_LOG_AGAIN)[0]
    say(f"run {ended.number} is over: {ended.status}. {said}".rstrip())
    raise typer.Exit(BAD_INPUT if ended.exit_code == BAD_INPUT else FAILED)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _row(run: "Run", *, whole: bool) -> dict[str, Any]:
    message = run.message if whole else (run.message.strip().splitlines() or [""])[0][:120]
    return {
        "run": run.number,
        "status": run.status,
        "started": _clock(run.started),
        "ended": _clock(run.ended),
        "job": run.job,
        "message": message,
    }


def _clock(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
