"""Requests that a search of 100 trials makes of an object store, by kind and by part.

The real search with one worker in its process, toy trials of two steps, and a real server that
speaks S3 on loopback, behind a way that records what goes by. Refreshing the lease, a LIST and a
PUT every ten seconds, is counted apart, for its number is a matter of time.

    python benchmarks/store_requests.py [--trials 100] [--quick] [--json]
"""

import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from toy_space import written_space

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from measuring import Row, finish, options  # noqa: E402
from s3_server import Way, make_bucket, s3_server, variables  # noqa: E402 - found by the line above

from tune_sentcl.launch.local import run_locally  # noqa: E402
from tune_sentcl.launch.options import SearchOptions  # noqa: E402
from tune_sentcl.launch.prepared import prepare  # noqa: E402
from tune_sentcl.launch.search import run_prepared  # noqa: E402
from tune_sentcl.launch.session import Session  # noqa: E402
from tune_sentcl.launch.worker import worker_settings  # noqa: E402
from tune_sentcl.space import load_space  # noqa: E402
from tune_sentcl.store.study import Study  # noqa: E402

KINDS = ("GET", "PUT", "LIST", "DELETE", "HEAD")


def main() -> None:
    """Run the searches and print a table."""
    given = options(__doc__, lambda parser: parser.add_argument("--trials", type=int))
    trials = given.trials or (4 if given.quick else 100)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        way = stack.enter_context(s3_server())
        _reach(way)
        rows = [row for keep in (0, 1) for row in _counted(way, folder, trials, keep)]
    finish([_row(row) for row in rows], given.json)


def _row(found: dict[str, Any]) -> Row:
    counts = [f"{kind} {found['requests'].get(kind, 0) / found['of']:g}" for kind in KINDS]
    told = f"{', '.join(counts)}; {found['seconds']:.1f} s"
    return Row(
        found["part"], sum(found["requests"].values()) / found["of"], None, told, "requests"
    )


def _reach(way: Way) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    at = f"http://127.0.0.1:{way.port}"
    os.environ |= {**variables(at), "no_proxy": "127.0.0.1"}
    make_bucket(at)


class _Parts:
    """Requests since the last look, by kind."""

    def __init__(self, way: Way, title: str) -> None:
        self._way, self._title = way, title
        self.rows: list[dict[str, Any]] = []
        self._start()

    def end(self, part: str, of: int = 1) -> None:
        """What went by since the last part is this one's; `of`: shown as a share of it."""
        with self._way.guard:
            seen = list(self._way.seen)
        lease = [request for request in seen if "lease" in request]
        found = Counter(map(kind_of, (request for request in seen if request not in lease)))
        row = {"part": f"{self._title}: {part}", "of": of, "requests": dict(found)}
        seconds = round(time.perf_counter() - self._began, 1)
        self.rows.append({**row, "lease": len(lease), "seconds": seconds})
        self._start()

    def _start(self) -> None:
        with self._way.guard:
            self._way.seen.clear()
        self._began = time.perf_counter()


def kind_of(request: str) -> str:
    """GET, PUT, LIST, DELETE (one of many objects included) or HEAD."""
    method, _, path = request.partition(" ")
    if method == "POST" and "?delete" in path:
        return "DELETE"
    return "LIST" if method == "GET" and "list-type" in path else method


def _counted(way: Way, folder: Path, trials: int, keep: int) -> list[dict[str, Any]]:
    path = written_space(folder, "requests", trials)
    options = SearchOptions(launcher="local", keep=keep, gpus_per_trial=0.0)
    url = f"s3://bucket/kept-{keep}"
    prepared = prepare(load_space(path), None, (0,), options)
    parts = _Parts(way, f"--keep {keep}")

    def launch(session: Session) -> None:
        parts.end("open a new study")
        run_locally(session, worker_settings(url, options, 0.0))
        parts.end("a trial", trials)

    run_prepared(prepared, url, launch)
    parts.end("compact and close")
    again = prepare(load_space(path), None, (0,), options)
    run_prepared(again, url, lambda session: None)
    parts.end("open it again, run nothing, close")
    if len(Study.read(url).ended()) != trials:
        raise SystemExit("not every trial has ended")
    return parts.rows


if __name__ == "__main__":
    main()
