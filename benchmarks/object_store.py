"""Count the requests that the driver of a search sends to an object store.

A local server that speaks S3 stands for the store. The phases are those of `history.py`, each in a
process of its own: all trials and an interruption, a resume that is interrupted too, one that ends
the search, `show`. The requests of all trials are stated per trial, beside those of fewer trials:
a ratio of 1 is linear growth. Those of the other phases are stated whole: a ratio of 1 is no
growth. Workers' states and weights are not counted, because no worker runs.

    python benchmarks/object_store.py [--trials 30 300] [--quick] [--json]
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator

from history import PHASES, run_phase
from measuring import ROOT, Row, finish, options

sys.path.append(str(ROOT / "tests"))

from s3_server import Way, make_bucket, s3_server, variables

NAMES = ("a trial", "resume", "resume, run nothing, end", "show")
Requests = dict[str, Counter[str]]


def main() -> None:
    """Count the requests of both sizes, and print them by phase."""
    given = options(__doc__, lambda parser: parser.add_argument("--trials", type=int, nargs=2))
    small, large = given.trials or ([6, 18] if given.quick else [30, 300])
    with s3_server() as way:
        url = f"http://127.0.0.1:{way.port}"
        make_bucket(url)
        plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment = {**plain, **variables(url)}
        less, more = (_requests(count, way, environment) for count in (small, large))
    finish(list(_rows(less, more, small, large)), given.json)


def _requests(count: int, way: Way, environment: dict[str, str]) -> Requests:
    """The requests of each phase of a study of `count` trials, by kind."""
    phases = {}
    for phase in PHASES:
        way.seen.clear()
        run_phase(phase, f"s3://bucket/{count}", count, environment)
        phases[phase] = Counter(map(_kind, way.seen))
    return phases


def _kind(request: str) -> str:
    """PUT, GET and so on. S3 lists by a GET, and bills that as a PUT."""
    return "LIST" if "list-type=2" in request else request.partition(" ")[0]


def _rows(less: Requests, more: Requests, small: int, large: int) -> Iterator[Row]:
    peer, unit = f"{small:,} trials", "requests"
    for phase, name in zip(PHASES, NAMES, strict=True):
        counts = ((more[phase], large), (less[phase], small))
        ours, theirs = (found.total() / (of if phase == "build" else 1) for found, of in counts)
        yield Row(f"{name}, {large:,} trials", ours, theirs, peer, unit)
        for kind in sorted(more[phase]) if phase == "build" else ():
            ours, theirs = (found[kind] / of for found, of in counts)
            yield Row(f"{name}, {kind}, {large:,} trials", ours, theirs, peer, unit)


if __name__ == "__main__":
    main()
