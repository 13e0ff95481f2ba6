"""The commands that hand a search to a Ray cluster, and look after it there."""

import inspect
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tune_sentcl.cli.exits import BAD_INPUT, FAILED, say
from tune_sentcl.cli.option_values import parse_seeds, parse_settings
from tune_sentcl.cli.search_commands import JsonOption, search, search_options
from tune_sentcl.cli.terminal_tables import line, print_json, print_table
from tune_sentcl.errors import ConfigError, Fault, TuneSentclError, first_line
from tune_sentcl.space import Space, load_space

if TYPE_CHECKING:
    from tune_sentcl.on_ray.jobs import StudyJobs

StudyArgument = Annotated[str, typer.Argument(help="URL or path of the study on the cluster.")]
AddressOption = Annotated[
    str | None,
    typer.Option(help="Dashboard: http://HEAD:8265; default RAY_API_SERVER_ADDRESS."),
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Print its log until it is over; Ctrl-C lets it run on.")
]

_ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_REPLACED = frozenset({"space", "study", "address"})  # the cluster's command has its own of these
_LOG_AGAIN = ", last available logs"  # Ray's message repeats the log behind these words


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
    from tune_sentcl.on_ray import submission

    space = _checked(asked)
    words = list(command_words(context, study or "STUDY"))
    submission.check_sent(space, words)
    _check_locations(study, asked)
    files = submission.working_directory(space)
    extras = [*space.extras, *(asked["track"] or ())]
    environment = submission.runtime_environment(pip=pip, extras=extras)
    command = shlex.join(words)
    if dry_run:
        _print_submission(study, command, files, environment)
        return
    if study is None:
        rule, move = "must be given", "Give a URL, or a path that every node of the cluster sees."
        raise ConfigError(Fault("--study", "", "", rule, move))
    jobs = _jobs_of(address, study)
    job = jobs.submit(command, files, environment)
    line(f"submitted: {job}")
    for name, shown in jobs.commands().items():
        line(f"{name}: {shown}")
    line("resume: repeat the command when it is over")
    if follow:
        _follow(jobs, job)


def status(
    study: StudyArgument, address: AddressOption = None, json_rows: JsonOption = False
) -> None:
    """List the runs of a study's search on a cluster."""
    jobs = _jobs_of(address, study)
    rows = [
        {
            "run": number,
            "status": str(job.status.value),
            "started": _clock(job.start_time),
            "ended": _clock(job.end_time),
            "job": job.submission_id,
            "message": str(job.message) if json_rows else first_line(str(job.message))[:120],
        }
        for number, job in jobs.runs().items()
    ]
    if json_rows:
        print_json(rows)
    elif not rows:
        jobs.latest()  # which raises
    else:
        print_table(rows, f"Runs of {study}")


def logs(
    study: StudyArgument, address: AddressOption = None, follow: FollowOption = False
) -> None:
    """Print what the latest run of a study's search has printed."""
    jobs = _jobs_of(address, study)
    job = str(jobs.latest().submission_id)
    if follow:
        _follow(jobs, job)
    else:
        _write(jobs.logs(job))


def stop(
    study: StudyArgument,
    address: AddressOption = None,
    wait: Annotated[int, typer.Option(min=0, help="Seconds to wait for its end.")] = 60,
) -> None:
    """Stop the latest run of a study's search, and see that it has ended."""
    jobs = _jobs_of(address, study)
    job = jobs.latest()
    if job.status.is_terminal():
        line(f"{job.submission_id} was over: {job.status}")
        return
    job = jobs.stop(job, wait)
    if not job.status.is_terminal():
        raise TuneSentclError(
            f"{job.submission_id} is still {job.status} after {wait} s, although it was asked to "
            "stop: repeat the command, or look at the cluster"
        )
    line(f"{job.submission_id} is over: {job.status}; what had finished is in the study")


def _checked(asked: Mapping[str, Any]) -> Space:
    """The space, after a check of every option that can be checked without the cluster."""
    options = search_options({**asked, "address": None})
    space = load_space(asked["space"], parse_settings(asked["settings"] or []))
    parse_seeds(asked["seeds"])
    options.check(space)
    return space


def _check_locations(study: str | None, asked: Mapping[str, Any]) -> None:
    """Check that the cluster can find the places that the options name."""
    if study is not None:
        _check_location("--study", study)
    for other in asked["learn_from"] or ():
        _check_location("--learn-from", other)
    if asked["data"] is not None:
        _check_location("--data", str(asked["data"]))
    if asked["track"]:
        from tune_sentcl.watch.tracking.tracker import check_tracking

        check_tracking(asked["track"], study or "", on_cluster=True)


def _check_location(where: str, location: str) -> None:
    if "://" not in location and not location.startswith("/"):
        rule = "is looked for on the cluster, so it must be a URL or begin with /"
        raise ConfigError(
            Fault(where, "", location or "''", rule, "Write where the cluster has it.")
        )


def command_words(context: typer.Context, study: str) -> Iterator[str]:
    """The search command that the cluster runs, with every option that the user gave.

    Args:
        context: Of `submit`, with its options parsed.
        study: A URL, or a path on the cluster.
    """
    from tune_sentcl.on_ray.submission import SPACE_FILE

    yield from ("python", "-m", "tune_sentcl", "search", SPACE_FILE)
    yield from ("--study", study, "--address", "auto")
    theirs = inspect.signature(search).parameters.keys() - _REPLACED
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


def _print_submission(
    study: str | None, command: str, files: Mapping[str, bytes], environment: Mapping[str, Any]
) -> None:
    from tune_sentcl.on_ray.submission import job_id

    name = "tune-sentcl-STUDY-DIGEST-runN" if study is None else job_id(study, "N")
    line(f"command: {command}")
    line(f"submission id: {name}, for run N of the study")
    line(f"runtime environment: {json.dumps(environment)}")
    sizes: dict[str, list[int]] = {}
    for file, content in files.items():
        sizes.setdefault(PurePosixPath(file).parts[0], []).append(len(content))
    rows = [{"name": top, "files": len(each), "bytes": sum(each)} for top, each in sizes.items()]
    print_table(rows, "The working directory of the job")


def _jobs_of(address: str | None, study: str) -> "StudyJobs":
    """The study's jobs on the cluster of the option, else of a variable that Ray reads too."""
    _check_location("STUDY", study)
    found = [os.environ.get(name, "") for name in _ADDRESSES]
    found = [location for location in found if location.startswith(("http://", "https://"))]
    where = address or next(iter(found), None)
    rule = "must be the URL of a cluster's dashboard"
    if where is None:
        move = "Give http://HEAD:8265, or set RAY_API_SERVER_ADDRESS."
        raise ConfigError(Fault("--address", "", "", rule, move))
    if not where.startswith(("http://", "https://")):
        raise ConfigError(Fault("--address", "", where, rule, "Write http://HEAD:8265."))
    from tune_sentcl.on_ray.environment import prepare_ray

    prepare_ray()
    from tune_sentcl.on_ray.jobs import StudyJobs

    return StudyJobs(where, study)


def _follow(jobs: "StudyJobs", job: str) -> None:
    """Print a job's log to its end, and exit with a code that says how it ended."""
    try:
        ended = jobs.follow(job, _write, say)
    except KeyboardInterrupt:
        say(f"{job} goes on; only this command ends")
        raise
    if ended.status == "SUCCEEDED":
        return
    said = str(ended.message).partition(_LOG_AGAIN)[0]
    say(f"{job} is over: {ended.status}. {said}".rstrip())
    raise typer.Exit(BAD_INPUT if ended.driver_exit_code == BAD_INPUT else FAILED)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _clock(milliseconds: int | None) -> str | None:
    if not milliseconds:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(milliseconds / 1000))
