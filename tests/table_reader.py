"""A reader that knows pandas alone, and what it must never see in a study on a disk."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

_KEY = ["trial_id", "suite", "data", "task", "split", "protocol", "classifier_seed", "metric"]
_KEY += ["subset", "aggregation"]
_EVERY_S = 0.03


class Reader:
    """Reads a study again and again.

    Attributes:
        rounds: How often it has read all three tables.
    """

    def __init__(self, study: Path) -> None:
        self.study, self.rounds = study, 0
        self._before: set[str] = set()

    def read(self) -> None:
        """Read the tables: each trial once, whole, and none that was there is gone."""
        if not (self.study / "curves").is_dir():  # made last
            return
        found = {name: _read(self.study / name) for name in ("trials", "scores", "curves")}
        trials, scores, curves = found.values()
        if trials is None:
            return
        assert trials["trial_id"].is_unique, "a trial stands twice"
        assert trials[["trial_id", "configuration", "status", "config"]].notna().to_numpy().all()
        ids = set(trials["trial_id"])
        assert self._before <= ids, "a trial is gone"
        self._before = ids
        finished = set(trials["trial_id"][trials["status"] == "finished"])
        if scores is not None:
            assert not scores.duplicated(_KEY).any(), "a score stands twice"
            finished -= set(scores["trial_id"])
        assert not finished, f"without scores: {finished}"
        if curves is not None:
            assert not curves.duplicated(["trial_id", "step", "metric"]).any()
        self.rounds += 1


def _read(folder: Path) -> pd.DataFrame | None:
    return pd.read_parquet(folder) if any(folder.iterdir()) else None


def check(study: Path) -> None:
    """Read once."""
    Reader(study).read()


@contextmanager
def reading(study: Path) -> Iterator[None]:
    """Read every 30 ms in a process of its own, and at least once, until the block ends."""
    command = [sys.executable, __file__, str(study)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        out, error = process.communicate("")
    assert process.returncode == 0, error
    assert int(out) > 0


def _main(study: Path) -> None:
    reader, ended = Reader(study), threading.Event()
    sys.stdout.write("\n")
    sys.stdout.flush()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    while not ended.is_set():
        reader.read()
        time.sleep(_EVERY_S)
    reader.read()
    sys.stdout.write(str(reader.rounds))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
