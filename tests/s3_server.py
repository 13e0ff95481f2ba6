"""A real server that speaks S3 on loopback, and a way to it that can be cut at any request."""

import http.client
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

SERVER = """
import sys
from werkzeug.serving import WSGIRequestHandler, make_server
from moto.server import DomainDispatcherApplication, create_backend_app
WSGIRequestHandler.disable_nagle_algorithm = True  # else each answer waits 40 ms for its last part
app = DomainDispatcherApplication(create_backend_app)
server = make_server(sys.argv[1], 0, app, threaded=True)
print(server.port, flush=True)
server.serve_forever()
"""


@dataclass
class Way:
    """The requests that went by, and after how many of them it is cut.

    Attributes:
        server: The server's port.
        port: Its own.
        allowed: How many further requests pass; None: all.
        lost_whole: Whether of the first one that does not pass nothing reaches the server; else
            its answer alone is lost.
        seen: Method and path of each request since `count`.
    """

    server: int
    port: int = 0
    allowed: int | None = None
    lost_whole: bool = True
    seen: list[str] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def passes(self, request: str) -> tuple[bool, bool]:
        """Whether a request reaches the server, and whether its answer comes back."""
        with self.guard:
            self.seen.append(request)
            if self.allowed is None:
                return True, True
            self.allowed -= 1
            if self.allowed >= 0:
                return True, True
            return self.allowed == -1 and not self.lost_whole, False


@contextmanager
def s3_server() -> Iterator[Way]:
    """Start the server and the way to it."""
    with serving() as url:
        way = Way(int(url.rpartition(":")[2]))
        with _served(way):
            yield way


def variables(url: str) -> dict[str, str]:
    """By which a process reaches a server."""
    keys = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "s3cr3t"}
    return {**keys, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": url}


def make_bucket(url: str) -> None:
    """Make `s3://bucket` on a server."""
    urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT")).close()


@contextmanager
def serving(ip: str = "127.0.0.1", prefix: tuple[str, ...] = ()) -> Iterator[str]:
    """Start the server alone; yields its URL.

    Args:
        ip: Where it listens.
        prefix: A command to run it in, such as `ip netns exec NAME`.
    """
    plain = {n: v for n, v in os.environ.items() if not n.lower().endswith("_proxy")}
    with subprocess.Popen(
        [*prefix, sys.executable, "-W", "ignore", "-c", SERVER, ip],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=plain,
    ) as process:
        try:
            assert process.stdout is not None
            yield f"http://{ip}:{int(process.stdout.readline())}"
        finally:
            process.kill()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    way: ClassVar[Way]

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        reaches, comes_back = self.way.passes(f"{self.command} {self.path}")
        self.close_connection = not comes_back
        if not reaches:
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.way.server)
        try:
            upstream.request(self.command, self.path, body, dict(self.headers))
            answer = upstream.getresponse()
            data = answer.read()
        finally:
            upstream.close()
        if comes_back:
            self._answer(answer, data)

    def _answer(self, answer: http.client.HTTPResponse, data: bytes) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        # Of what there is no answer's body to count, the server says the length.
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


for _method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
    setattr(_Handler, f"do_{_method}", _Handler.pass_on)


@contextmanager
def _served(way: Way) -> Iterator[None]:
    handler = type("Handler", (_Handler,), {"way": way})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    way.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
