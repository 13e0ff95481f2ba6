"""The command line: each command parses, calls one function of the library, and prints.

Exit codes: 0 success, 1 a failure, 2 bad input, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP, 141 a closed
pipe. `judge` returns 1 if A does not score higher, and 3 if that is undecided. With `--json`,
stdout holds one JSON array; progress and messages go to stderr. No heavy library is imported
before a command runs.
"""

import sys
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from tune_sentcl.cli import demo_command as showing
from tune_sentcl.cli import evaluate_command as scoring
from tune_sentcl.cli import init_command as beginning
from tune_sentcl.cli import judge_command as judging
from tune_sentcl.cli import knobs_command as listing
from tune_sentcl.cli import report_commands as reporting
from tune_sentcl.cli import search_commands as running
from tune_sentcl.cli import study_commands as inspecting
from tune_sentcl.cli import submitting
from tune_sentcl.cli import verify_command as verifying
from tune_sentcl.cli.exits import guarded, refuse_other_encodings, replace_unprintable
from tune_sentcl.cli.terminal_tables import line
from tune_sentcl.signals import exit_past_hanging, raise_on_signals


class GroupedCommand(TyperCommand):
    """A command whose `--help` lists its options by group, as plain text."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section per group; options without a group are under `Options`."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                group = getattr(parameter, "rich_help_panel", None)
                groups.setdefault(group or "Options", []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


app = typer.Typer(
    name="tune-sentcl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        line(f"tune-sentcl {metadata.version('tune-sentcl')}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Search the hyperparameters of contrastive sentence encoders."""


data_app = typer.Typer(
    help="Commands for the data sets under the data root.", no_args_is_help=True
)
app.add_typer(data_app, name="data")

for _command in (
    showing.demo,
    beginning.init,
    inspecting.spaces,
    listing.knobs,
    running.plan,
    running.check,
    running.search,
    running.train,
    running.measure,
    scoring.evaluate,
    inspecting.show,
    verifying.verify,
    judging.judge,
    reporting.report,
    reporting.export,
    submitting.submit,
):
    app.command(cls=GroupedCommand)(guarded(_command))
data_app.command()(guarded(inspecting.check))


def main() -> None:
    """Run the command line and exit with its exit code."""
    raise_on_signals()
    replace_unprintable()
    refuse_other_encodings(sys.argv[1:])
    try:
        app()
    except SystemExit as end:
        exit_past_hanging(end.code if isinstance(end.code, int) else 0)
        raise
