"""Count the requests that a search sends to an object store.

A local server that speaks S3 stands for the store, and counts. The phases are those of
`history.py`, each in a process of its own: all trials with a kill at the end, a resume, a second
resume that ends the search, `show`. What grows with the trials is stated per trial of the larger
study, beside that of the smaller: a ratio of 1 is linear growth.

    python benchmarks/object_store.py [--trials 30 300] [--quick] [--json]
"""

import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from history import PHASES
from measuring import Row, finish, options

NAMES = dict(
    zip(
        PHASES, ("a trial", "resume after a kill", "resume, run nothing, end", "show"), strict=True
    )
)
METHODS = ("PUT", "GET", "HEAD", "POST", "DELETE")


def main() -> None:
    """Count the requests of both sizes, and print them by phase."""
    given = options(__doc__, lambda parser: parser.add_argument("--trials", type=int, nargs=2))
    small, large = given.trials or ([6, 18] if given.quick else [30, 300])
    with _counting() as seen:
        less, more = _requests(small, seen), _requests(large, seen)
    finish(list(_rows(less, more, small, large)), given.json)


@contextmanager
def _counting() -> Iterator[list[str]]:
    """Serve an empty bucket on loopback; yields the methods of the requests so far."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_request(self, *_: Any) -> None:
            pass

    application, seen = DomainDispatcherApplication(create_backend_app), []

    def counted(environ: Any, respond: Any) -> Any:
        seen.append(environ["REQUEST_METHOD"])
        return application(environ, respond)

    server = make_server("127.0.0.1", 0, counted, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.port}"
    os.environ |= {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "mine"}
    os.environ |= {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": url}
    urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT")).close()
    try:
        yield seen
    finally:
        server.shutdown()


def _requests(count: int, seen: list[str]) -> dict[str, list[str]]:
    """The requests of each phase of a study of `count` trials."""
    phases = {}
    for phase in PHASES:
        seen.clear()
        command = [sys.executable, str(Path(__file__).with_name("history.py")), "--phase", phase]
        command += ["--trials", str(count), "--study", f"s3://bucket/{count}"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        phases[phase] = seen.copy()
    return phases


def _rows(
    less: dict[str, list[str]], more: dict[str, list[str]], small: int, large: int
) -> Iterator[Row]:
    for phase, name in NAMES.items():
        share = (large, small) if phase == "build" else (1, 1)
        for method in ("", *METHODS):
            ours, theirs = (
                sum(method in ("", each) for each in phases[phase]) / of
                for phases, of in zip((more, less), share, strict=True)
            )
            part = ", ".join(filter(None, (name, method)))
            if not method or (phase == "build" and ours):
                unit = "requests"
                yield Row(f"{part}, {large:,} trials", ours, theirs, f"{small:,} trials", unit)


if __name__ == "__main__":
    main()
