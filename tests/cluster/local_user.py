"""A user of `cluster/local-cluster.sh`, in a home of their own."""

import os
import subprocess
import sys
from pathlib import Path

from cluster_folder import FOLDER, ROOT
from processes import descendants

SCRIPT = FOLDER / "local-cluster.sh"


class LocalUser:
    """A user with a home of their own, and the cluster there."""

    def __init__(self, home: Path) -> None:
        plain = {n: value for n, value in os.environ.items() if not n.startswith(("RAY_", "XDG_"))}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        known = {"HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT)}
        temporary = home / ("x" * 60)  # too long for Ray's sockets
        temporary.mkdir()
        self.environment = {**plain, **known, "TMPDIR": str(temporary)}
        self.state = home / ".local/state/tune_sentcl/cluster"
        self.home = home

    def run(self, *command: str, code: int = 0, **more: str) -> str:
        """What a command prints."""
        done = subprocess.run(
            command,
            cwd=self.home,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def script(self, *words: str, code: int = 0) -> str:
        return self.run(str(SCRIPT), *words, code=code)

    def shell(self, text: str) -> str:
        """What a shell prints that can reach the cluster."""
        return self.run("bash", "-ec", f'eval "$({SCRIPT} env)"\n{text}')

    def members(self) -> set[int]:
        """Every process of the nodes."""
        found = set()
        for file in self.state.glob("*.pid"):
            root = int(file.read_text().split()[0])
            found |= {root, *descendants(root)}
        return found
