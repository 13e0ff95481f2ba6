"""The other processes of the store's tests. Each prints a line whenever it has done a thing."""

import sys
from collections.abc import Callable
from itertools import count

from store_samples import end, finish, opened


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
            end(driver, "again", "failed", float(i), attempt=i + 1)
            if i % 5 == 4:
                driver.rewrite(lambda table: table)
            _say(i)


PARTS: dict[str, Callable[..., None]] = {"hold": hold, "drive": drive}

if __name__ == "__main__":
    PARTS[sys.argv[1]](*sys.argv[2:])
