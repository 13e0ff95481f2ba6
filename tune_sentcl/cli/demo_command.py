"""The command `demo`: a first search on generated questions and answers."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from tune_sentcl.cli.exits import say, unwritable
from tune_sentcl.cli.options import StudyOption
from tune_sentcl.cli.terminal_tables import line
from tune_sentcl.tuning.machine import usable_cores


def demo(
    data: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Folder to which the command writes the generated files."
        ),
    ] = Path("studies/demo-data"),
    study: StudyOption = "studies/demo",
    files: Annotated[
        bool, typer.Option("--files", help="Write the files without searching.")
    ] = False,
) -> None:
    """Tune all-MiniLM-L6-v2 on generated questions and answers, in about three minutes.

    It writes 400 pairs, a retrieval task and a search space, and runs the search that it prints.
    """
    from tune_sentcl.data.toy import write_domain

    try:
        write_domain(data)
    except OSError as error:
        raise unwritable("--data", data, error) from None
    if files:
        line(f"Files: {data}")
        return
    task = json.dumps([f"support={data / 'support'}"])
    words = ["search", str(data / "support.toml"), "--objective", "support:ndcg@10:dev"]
    # One trial runs at a time: otherwise the sampler's proposals depend on which trial ends first.
    words += ["--study", study, "--samples", "5", "--max-concurrent", "1"]
    words += ["--cpus-per-trial", str(min(2, usable_cores()))]
    words += ["--set", f"data.source={data / 'pairs.csv'}", "--set", f"evaluation.own={task}"]
    say(shlex.join(["tune-sentcl", *words]))
    # `execv` replaces this process, so the study records a `search` that the user can repeat.
    os.execv(sys.executable, [sys.executable, "-m", "tune_sentcl", *words])
