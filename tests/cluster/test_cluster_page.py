"""The commands of `cluster/README.md` that can run on one machine, run."""

import re
from pathlib import Path

import pytest
from cluster_folder import FOLDER
from local_user import LocalUser
from typer.main import get_command

from tune_sentcl.cli import app

PAGE = (FOLDER / "README.md").read_text()
BLOCKS = re.findall(r"^```sh run\n(.*?)^```", PAGE, re.M | re.S)
COMMANDS = getattr(get_command(app), "commands", {}).keys()


def test_there_are_commands_to_run() -> None:
    assert len(BLOCKS) == 3 and "ray up" not in "".join(BLOCKS)
    assert len(re.findall(r"^```sh", PAGE, re.M)) > len(BLOCKS)


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.parametrize("commands", ["".join(BLOCKS[:2]), BLOCKS[2]], ids=["local", "token"])
def test_the_commands_run(tmp_path: Path, commands: str) -> None:
    """The local cluster's two blocks share one shell, so the second starts where `env` was read.

    On a machine with an address beside loopback, this also finds a process of a node that takes
    that address for its own: the submitted job then never begins.
    """
    user = LocalUser(tmp_path)
    (tmp_path / "cluster").symlink_to(FOLDER)
    missing = set(re.findall(r"tune-sentcl ([a-z]+)", commands)) - COMMANDS
    if missing:
        pytest.skip(f"there is no command {missing}")
    try:
        said = user.run("bash", "-euo", "pipefail", "-c", commands)
    finally:
        user.script("stop")
    assert said.count("2 runs ended now, 0 of them failed") == commands.count("--study")
    assert said.count("JobStatus.SUCCEEDED") >= commands.count("ray job list")
