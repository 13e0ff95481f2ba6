"""The other processes of the store's tests. Each prints a line whenever it has done a thing."""

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from store_samples import finish, opened, points, row, scores

from tune_sentcl.errors import StudyError
from tune_sentcl.store import TrialFiles, writer_lock
from tune_sentcl.store.files import StudyFiles
from tune_sentcl.store.writer_lock import Holder, WriterLock


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


def lease(path: str, term: str = "30", where: str = "here") -> None:
    setattr(writer_lock, "_TERM_S", float(term))  # noqa: B010
    setattr(writer_lock, "is_shared", lambda path: True)  # noqa: B010
    if where == "elsewhere":
        me = Holder.me
        setattr(Holder, "me", lambda path: replace(me(path), process="another 1"))  # noqa: B010
    try:
        held = WriterLock(StudyFiles.at(path))
    except StudyError as error:
        _say(error)
        return
    _say(held.lease)
    for line in sys.stdin:
        try:
            held.check()
            _say(line.strip())
        except StudyError as error:
            _say(error)


PARTS: dict[str, Callable[..., None]] = {
    "hold": hold,
    "drive": drive,
    "write_loop": write_loop,
    "write_some": write_some,
    "lease": lease,
}

if __name__ == "__main__":
    PARTS[sys.argv[1]](*sys.argv[2:])
