"""The command `submit`: a Ray cluster runs a search as a job."""

import asyncio
import inspect
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tune_sentcl.cli.exits import BAD_INPUT, FAILED, say
from tune_sentcl.cli.options import requested_search, with_parameters
from tune_sentcl.cli.search_commands import search
from tune_sentcl.cli.terminal_tables import line
from tune_sentcl.errors import ConfigError, Fault, refuse_credentials
from tune_sentcl.on_ray.environment import prepare_ray
from tune_sentcl.plugins import Plugin
from tune_sentcl.space import Space

if TYPE_CHECKING:
    from tune_sentcl.on_ray.jobs import StudyJobs

StudyOption = Annotated[
    str | None, typer.Option(help="URL of the study, or its path on the cluster.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        envvar=["RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"],
        help="URL of the Ray dashboard, such as http://HEAD:8265.",
    ),
]
FollowOption = Annotated[
    bool,
    typer.Option("--follow", help="Print the job's log to its end. Ctrl-C does not stop the job."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print the job without submitting it.")
]
PipOption = Annotated[
    bool, typer.Option("--pip", help="Let Ray install tune_sentcl's dependencies on each node.")
]

# The job's log is already printed when Ray's message repeats it after these words.
_LOG_AGAIN = ", last available logs"
# The command that runs on the cluster gets other values of these parameters.
_REPLACED = frozenset({"space", "study", "address", "plugins"})


def submit(
    *,
    context: typer.Context,
    study: StudyOption = None,
    address: AddressOption = None,
    follow: FollowOption = False,
    dry_run: DryRunOption = False,
    pip: PipOption = False,
    **asked: Any,
) -> None:
    """Submit a search to a Ray cluster as a job."""
    space = _checked(study, asked)
    prepare_ray()
    from tune_sentcl.on_ray.jobs import StudyJobs, job_id, runtime_environment
    from tune_sentcl.watch.trackers import TRACKERS

    extras = [*space.extras, *(name for name in asked["track"] or () if name in TRACKERS)]
    environment = runtime_environment(pip=pip, extras=extras)
    command = shlex.join(command_words(context, study or "STUDY", space.plugins))
    if dry_run:
        name = "tune-sentcl-STUDY-DIGEST-runN" if study is None else job_id(study, "N")
        line(f"command: {command}")
        line(f"submission id: {name}, where N counts the submissions for this study")
        line(f"runtime environment: {json.dumps(environment)}")
        return
    if study is None:
        rule, move = "must be given", "Give a URL, or a path that every node can open."
        raise ConfigError(Fault("--study", rule=rule, move=move))
    _check_dashboard(address or "")
    jobs = StudyJobs(address or "", study)
    job = jobs.submit(command, space, environment)
    line(f"submitted: {job}")
    line(f"follow: ray job logs --follow {job} --address {address}")
    line(f"stop: ray job stop {job} --address {address}")
    line("resume: when the job has ended, repeat the command")
    if follow:
        asyncio.run(_print_log(jobs, job))
        ended = jobs.details(job)
        if ended.status != "SUCCEEDED":
            reason = str(ended.message).partition(_LOG_AGAIN)[0]
            say(f"{job} has ended: {ended.status}. {reason}".rstrip())
            raise typer.Exit(BAD_INPUT if ended.driver_exit_code == BAD_INPUT else FAILED)


with_parameters(
    submit,
    {
        **{n: p for n, p in inspect.signature(search).parameters.items() if n != "launcher"},
        **{n: p for n, p in inspect.signature(submit).parameters.items() if n != "asked"},
    }.values(),
)


def _checked(study: str | None, asked: Mapping[str, Any]) -> Space:
    """Load the search space, and check everything that needs no cluster."""
    from tune_sentcl.store.files import refuse_itself

    given = {**asked, "address": None, "launcher": "ray"}
    space, data, _, options = requested_search(asked["space"], given)
    options.check(space)
    if study is not None:
        _check_location("--study", study)
        refuse_itself(study, options.learn_from)
    for other in options.learn_from:
        _check_location("--learn-from", other)
    if data is not None:
        _check_location("--data", str(data))
    if asked["track"]:
        from tune_sentcl.watch.trackers import check_tracking

        check_tracking(asked["track"], study or "", on_cluster=True)
    return space


def _check_location(where: str, location: str) -> None:
    """Check that the cluster can find the file or folder that an option names."""
    from tune_sentcl.store.files import StudyFiles, refuse_memory

    refuse_credentials(where, "", location)
    refuse_memory(where, location)
    if "://" in location:
        StudyFiles.at(location)  # raises for a URL of unknown kind
    elif not location.startswith("/"):
        rule = "must be a URL or an absolute path, because the cluster opens it"
        move = "Write the study's location on the cluster."
        raise ConfigError(Fault(where, value=location or "''", rule=rule, move=move))


def command_words(
    context: typer.Context, study: str, plugins: Sequence[Plugin] = ()
) -> Iterator[str]:
    """The words of the search command that the cluster runs, with the options of `submit`."""
    from tune_sentcl.on_ray.jobs import SPACE_FILE, plugin_path

    yield from ("python", "-m", "tune_sentcl", "search", SPACE_FILE)
    yield from ("--study", study, "--address", "auto")
    yield from (f"--plugin={plugin_path(plugin)}" for plugin in plugins)
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


def _check_dashboard(address: str) -> None:
    refuse_credentials("--address", "", address)
    if not address.startswith(("http://", "https://")):
        rule = "must be the URL of a Ray dashboard"
        raise ConfigError(
            Fault("--address", value=address, rule=rule, move="Write http://HEAD:8265.")
        )


async def _print_log(jobs: "StudyJobs", job: str) -> None:
    async for text in jobs.log(job):
        typer.echo(text, nl=False)
