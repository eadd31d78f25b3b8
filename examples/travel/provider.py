"""A provider to try the example with: it fails, hangs and answers twice, and books each idempotency key once.

`python -m examples.travel.provider 8700` runs it. A place named `full` has no hotel, a card of `poor` is declined, and each
third call is answered wrongly: with an error, with a cut connection, or twice.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Desk:
    """What the provider has booked.

    Attributes:
        bookings: The answer of each idempotency key.
        open: The bookings and charges that are not undone.
        calls: The number of calls.
    """

    def __init__(self) -> None:
        self.bookings: dict[str, tuple[int, str]] = {}
        self.open: set[str] = set()
        self.calls = 0
        self._turn = threading.Lock()

    def answer(self, what: str, facts: dict[str, Any], key: str) -> tuple[int, str, int]:
        """Book, or repeat the answer to a key; return the status, the text and the number of the call."""
        with self._turn:
            self.calls += 1
            if key not in self.bookings:
                self.bookings[key] = self._book(what, facts)
            return (*self.bookings[key], self.calls)

    def _book(self, what: str, facts: dict[str, Any]) -> tuple[int, str]:
        if what == "hotel" and facts["place"] == "full":
            return 409, "no room is free"
        if what == "charge" and facts["card"] == "poor":
            return 402, "the card is declined"
        if what in ("cancel", "refund"):
            self.open.discard(facts.get("booking") or facts["payment"])
            return 200, json.dumps({"id": "undone"})
        booking = f"{what}-{len(self.bookings) + 1}"
        self.open.add(booking)
        return 200, json.dumps({"id": booking})


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Provider)
        size = int(self.headers["Content-Length"])
        facts = json.loads(self.rfile.read(size))
        key = self.headers["Idempotency-Key"]
        status, text, number = self.server.desk.answer(self.path.strip("/"), facts, key)
        if number % 9 == 3:
            status, text = 503, "busy"  # the booking is made nevertheless
        if number % 9 == 6:
            self.connection.close()
            return
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        if number % 9 == 0:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its name there
        """Say nothing."""


class Provider(ThreadingHTTPServer):
    """The server of a desk."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.desk = Desk()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"


if __name__ == "__main__":
    Provider(int(sys.argv[1])).serve_forever()
