"""The command line. Each command parses, calls one function of the library, and prints.

Exit codes: 0 done, 1 a run failed, 2 bad input, 130 interrupted. With `--json`, stdout holds one
JSON array and nothing else; progress and messages go to stderr. Nothing heavy is imported before a
command runs.
"""

import typer

from tune_sentcl.cli import inspecting, running
from tune_sentcl.cli.exits import guarded

app = typer.Typer(
    name="tune-sentcl",
    help="Search the hyperparameters of contrastive sentence encoders.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="The real data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")

for _command in (
    inspecting.spaces,
    running.plan,
    running.search,
    running.train,
    inspecting.evaluate,
    inspecting.show,
):
    app.command()(guarded(_command))
data_app.command()(guarded(inspecting.check))


def main() -> None:
    """Run the command line and leave with its exit code."""
    app()
