"""A provider over HTTP that answers, cuts, answers late, and refuses, as the name of the order says."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Provider:
    """What the provider was asked.

    Attributes:
        calls: The number of calls of each path.
        ids: The idempotency keys of each path.
        times: The times of the calls of each path.
    """

    def __init__(self) -> None:
        self.url = ""
        self.calls: Counter[str] = Counter()
        self.ids: defaultdict[str, set[str]] = defaultdict(set)
        self.times: defaultdict[str, list[float]] = defaultdict(list)
        self.called = threading.Condition()

    def take(self, path: str, identity: str) -> int:
        """Note a call, and return its number."""
        with self.called:
            self.calls[path] += 1
            self.ids[path].add(identity)
            self.times[path].append(time.monotonic())
            self.called.notify_all()
            return self.calls[path]

    def await_call(self, path: str) -> None:
        """Wait until a path was called."""
        with self.called:
            assert self.called.wait_for(lambda: self.calls[path] > 0, 60), f"no call of {path}"


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def do_POST(self) -> None:
        _, what, order = self.path.split("/")
        number = self.server.provider.take(f"{what}/{order}", self.headers["Idempotency-Key"])
        if order.startswith("cut") and number == 1:
            self.connection.close()  # the work is done, and the answer is lost
            return
        if order.startswith("dead"):
            self.connection.close()
            return
        if order.startswith("hang"):
            time.sleep(60)
        status = 402 if order.startswith("declined") else 200
        text = f"{what} {order}".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        if order.startswith("twice"):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nagain")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, provider: Provider) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.provider = provider

    def handle_error(self, *_: object) -> None:
        """A client that was killed is no error here."""


@contextmanager
def provided() -> Iterator[Provider]:
    """Run a provider."""
    provider = Provider()
    server = _Server(provider)
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
