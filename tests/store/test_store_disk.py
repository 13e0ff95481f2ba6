"""Whose files are abandoned is told by who is alive, without disturbing anybody."""

import os
import subprocess
import sys

from tune_sentcl.store.disk import is_alive


def test_to_ask_whether_a_process_lives_does_it_no_harm() -> None:
    waiting = [sys.executable, "-c", "input()"]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE) as child:
        for _ in range(3):
            assert is_alive(child.pid)
        child.communicate(b"\n")
        assert child.returncode == 0, "it ended by itself"
    assert not is_alive(child.pid)
    assert is_alive(os.getpid())
