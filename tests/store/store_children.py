"""The other processes of the store's tests. Each prints a line whenever it has done a thing."""

import sys
from collections.abc import Callable
from itertools import count

from store_samples import finish, opened, points, row, scores

from tune_sentcl.store import TrialFiles


def _say(done: object) -> None:
    sys.stdout.write(f"{done}\n")
    sys.stdout.flush()


def hold(path: str) -> None:
    with opened(path):
        _say("open")
        sys.stdin.read()


def drive(path: str) -> None:
    with opened(path) as driver:
        for i in count():
            finish(driver, f"d{i:03d}")
            driver.commit(row("again", "failed", attempt=i + 1))
            if i % 5 == 4:
                driver.compact()
            _say(i)


def write_loop(path: str) -> None:
    writer = TrialFiles(path)
    for i in count():
        writer.write_scores("looped", scores(float(i), 2000))
        _say(i)


def write_some(path: str, name: str) -> None:
    writer = TrialFiles(path)
    for i in range(20):
        writer.write_scores(f"{name}{i}", scores(float(i)))
        writer.write_scores("shared", scores(float(i), 100))
        writer.write_curves("shared", points(float(i), 100))
    _say("done")


PARTS: dict[str, Callable[..., None]] = {
    "hold": hold,
    "drive": drive,
    "write_loop": write_loop,
    "write_some": write_some,
}

if __name__ == "__main__":
    PARTS[sys.argv[1]](*sys.argv[2:])
