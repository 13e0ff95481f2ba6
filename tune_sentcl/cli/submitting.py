"""The commands that submit a search to a Ray cluster and follow it: `submit` and `jobs`."""

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
from tune_sentcl.cli.options import (
    JsonOption,
    parse_seeds,
    parse_settings,
    search_options,
    with_parameters,
)
from tune_sentcl.cli.search_commands import search
from tune_sentcl.cli.terminal_tables import line, print_json, print_table
from tune_sentcl.errors import ConfigError, Fault, TuneSentclError, first_line, refuse_credentials
from tune_sentcl.space import Space, load_space

if TYPE_CHECKING:
    from tune_sentcl.on_ray.jobs import StudyJobs

StudyArgument = Annotated[str, typer.Argument(help="URL or path of the study on the cluster.")]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="URL of the Ray dashboard, such as http://HEAD:8265. Default: RAY_API_SERVER_ADDRESS."
    ),
]
FollowOption = Annotated[
    bool,
    typer.Option("--follow", help="Print the job's log to its end; Ctrl-C does not stop the job."),
]

_ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_REPLACED = frozenset({"space", "study", "address"})  # the cluster's command has other values
_LOG_AGAIN = ", last available logs"  # Ray's message repeats the log after these words


def _with_options_of(
    command: Callable[..., None],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add another command's options to a command, which keeps its own ones of the same name."""

    def widen(own: Callable[..., None]) -> Callable[..., None]:
        named = inspect.signature(own).parameters.values()
        kept = {p.name: p for p in named if p.kind is not p.VAR_KEYWORD}
        merged = {**inspect.signature(command).parameters, **kept}
        return with_parameters(own, merged.values())

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
        bool, typer.Option("--dry-run", help="Print the job without submitting it.")
    ] = False,
    pip: Annotated[
        bool, typer.Option("--pip", help="Let the cluster install this package's dependencies.")
    ] = False,
    **asked: Any,
) -> None:
    """Submit a search to a Ray cluster; takes every option of `search`."""
    from tune_sentcl.on_ray import submission

    space = _checked(asked)
    submission.check_sent(space)
    _check_locations(study, asked)
    files = submission.working_directory(space)
    extras = [*space.extras, *(asked["track"] or ())]
    environment = submission.runtime_environment(pip=pip, extras=extras)
    command = shlex.join(command_words(context, study or "STUDY"))
    if dry_run:
        _print_submission(study, command, files, environment)
        return
    if study is None:
        rule, move = "must be given", "Give a URL, or a path that every node can open."
        raise ConfigError(Fault("--study", "", "", rule, move))
    jobs = _jobs_of(address, study)
    job = jobs.submit(command, files, environment)
    line(f"submitted: {job}")
    for name, shown in jobs.commands().items():
        line(f"{name}: {shown}")
    line("resume: repeat the command when it has ended")
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
        jobs.latest()  # raises UnknownJobError
    else:
        print_table(rows, f"Runs of {study}")


def logs(
    study: StudyArgument, address: AddressOption = None, follow: FollowOption = False
) -> None:
    """Print the log of the latest run of a study's search."""
    jobs = _jobs_of(address, study)
    job = str(jobs.latest().submission_id)
    if follow:
        _follow(jobs, job)
    else:
        _write(jobs.logs(job))


def stop(
    study: StudyArgument,
    address: AddressOption = None,
    wait: Annotated[int, typer.Option(min=0, help="Most seconds to wait for its end.")] = 60,
) -> None:
    """Stop the latest run of a study's search, and wait until it has ended."""
    jobs = _jobs_of(address, study)
    job = jobs.latest()
    if job.status.is_terminal():
        line(f"{job.submission_id} had already ended: {job.status}")
        return
    job = jobs.stop(job, wait)
    if not job.status.is_terminal():
        raise TuneSentclError(
            f"{job.submission_id} is still {job.status} {wait} s after the request to stop: "
            "repeat the command, or look at the cluster"
        )
    line(f"{job.submission_id} has ended: {job.status}; the study holds its finished trials")


def _checked(asked: Mapping[str, Any]) -> Space:
    """Load the space and check every option that can be checked without the cluster."""
    options = search_options({**asked, "address": None})
    space = load_space(asked["space"], parse_settings(asked["settings"] or []))
    parse_seeds(asked["seeds"])
    options.check(space)
    return space


def _check_locations(study: str | None, asked: Mapping[str, Any]) -> None:
    """Check that the cluster can find the files that the options name."""
    from tune_sentcl.store.study_urls import refuse_itself

    if study is not None:
        _check_location("--study", study)
        refuse_itself(study, asked["learn_from"] or ())
    for other in asked["learn_from"] or ():
        _check_location("--learn-from", other)
    if asked["data"] is not None:
        _check_location("--data", str(asked["data"]))
    if asked["track"]:
        from tune_sentcl.watch.trackers import check_tracking

        check_tracking(asked["track"], study or "", on_cluster=True)


def _check_location(where: str, location: str) -> None:
    from tune_sentcl.store.files import StudyFiles
    from tune_sentcl.store.study_urls import refuse_memory

    refuse_credentials(where, "", location)
    refuse_memory(where, location)
    if "://" in location:
        StudyFiles.at(location)  # raises for a URL of no known kind
    elif not location.startswith("/"):
        rule = "must be a URL or an absolute path, because the cluster opens it"
        raise ConfigError(
            Fault(where, "", location or "''", rule, "Write its location on the cluster.")
        )


def command_words(context: typer.Context, study: str) -> Iterator[str]:
    """The search command that the cluster runs, with the options given to `submit`."""
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
    """The study's jobs on the cluster of --address, else of a variable that Ray reads too."""
    _check_location("STUDY", study)
    found = [os.environ.get(name, "") for name in _ADDRESSES]
    found = [location for location in found if location.startswith(("http://", "https://"))]
    where = address or next(iter(found), None)
    rule = "must be the URL of a cluster's dashboard"
    if where is None:
        move = "Give http://HEAD:8265, or set RAY_API_SERVER_ADDRESS."
        raise ConfigError(Fault("--address", "", "", rule, move))
    refuse_credentials("--address", "", where)
    if not where.startswith(("http://", "https://")):
        raise ConfigError(Fault("--address", "", where, rule, "Write http://HEAD:8265."))
    from tune_sentcl.on_ray.environment import prepare_ray

    prepare_ray()
    from tune_sentcl.on_ray.jobs import StudyJobs

    return StudyJobs(where, study)


def _follow(jobs: "StudyJobs", job: str) -> None:
    """Print a job's log to its end, and exit with the job's code."""
    try:
        ended = jobs.follow(job, _write, say)
    except KeyboardInterrupt:
        say(f"{job} continues; only this command ends")
        raise
    if ended.status == "SUCCEEDED":
        return
    said = str(ended.message).partition(_LOG_AGAIN)[0]
    say(f"{job} has ended: {ended.status}. {said}".rstrip())
    raise typer.Exit(BAD_INPUT if ended.driver_exit_code == BAD_INPUT else FAILED)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _clock(milliseconds: int | None) -> str | None:
    if not milliseconds:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(milliseconds / 1000))
