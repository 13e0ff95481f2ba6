"""Whose files are abandoned is told by who is alive, without disturbing anybody."""

import os
import subprocess
import sys

from tune_sentcl.store.disk import alive


def test_to_ask_whether_a_process_lives_does_it_no_harm() -> None:
    waiting = [sys.executable, "-c", "input()"]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE) as child:
        for _ in range(3):
            assert alive(child.pid)
        child.communicate(b"\n")
        assert child.returncode == 0, "it ended by itself"
    assert not alive(child.pid)
    assert alive(os.getpid())
