"""Other systems that effects call: an HTTP server that does as its path says, and an SMTP server."""

import gzip
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import unquote

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from benchmarks.harness.ports import free_port


class Seen(NamedTuple):
    """A request that an HTTP server has got; the names of its headers are in lower case."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes


class Told(NamedTuple):
    """What the last segment of a path asks an HTTP server to answer."""

    status: int = 200
    body: bytes = b'{"id": "ch_1"}'
    headers: dict[str, str] = {}


def _told(word: str, rest: str, path: str, other: str) -> Told:
    code, _, after = rest.partition("-")
    packed = {"Content-Encoding": "gzip"}
    answers: dict[str, Callable[[], Told]] = {
        "status": lambda: Told(
            int(code), b'{"why": "it is so"}', {"Retry-After": unquote(after)} if after else {}
        ),
        "to": lambda: Told(int(rest), b"", {"Location": "/v1/charges"}),
        "away": lambda: Told(307, b"", {"Location": f"{other}/v1/charges"}),
        "round": lambda: Told(307, b"", {"Location": path}),
        "large": lambda: Told(200, b"x" * 10_001),
        "bomb": lambda: Told(200, gzip.compress(bytes(50 << 20)), packed),
        "packed": lambda: Told(200, gzip.compress(Told().body), packed),
    }
    return answers.get(word, Told)()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Side"

    def handle_one_request(self) -> None:
        """Take a request of any verb."""
        self.raw_requestline = self.rfile.readline(65_537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        named = {name.lower(): text for name, text in self.headers.items()}
        self.server.seen.append(Seen(self.command, self.path, named, body))
        word, _, rest = self.path.partition("?")[0].rpartition("/")[2].partition("-")
        if word == "cut":
            self.close_connection = True
            return
        told = _told(word, rest, self.path, self.server.other)
        headers = {"ETag": "e1", "Set-Cookie": "session=1", "Content-Length": str(len(told.body))}
        self.send_response(told.status)
        for name, text in {**headers, **told.headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(told.body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Side(ThreadingHTTPServer):
    """An HTTP server.

    Attributes:
        seen: The requests that it has got.
        other: The address of another one.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[Seen] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.other = ""

    def handle_error(self, *_: object) -> None:
        """A client that leaves is no error here."""


@contextmanager
def sides(count: int) -> Iterator[list[Side]]:
    """Run HTTP servers; each one redirects to the next."""
    servers = [Side() for _ in range(count)]
    for number, server in enumerate(servers):
        server.other = servers[(number + 1) % count].url
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield servers
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


class Mailbox:
    """Takes mails, and refuses recipients as their names say."""

    def __init__(self) -> None:
        self.mails: list[Any] = []

    async def handle_RCPT(  # noqa: N802 -- the name of the command
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        """Take a recipient."""
        if address.startswith("nobody"):
            return f"550 no such user: {address}"
        if address.startswith("later"):
            return f"450 {address} is busy"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        """Take a mail."""
        self.mails.append(envelope)
        return "250 OK"


@contextmanager
def post_office(tls: ssl.SSLContext | None = None) -> Iterator[tuple[Mailbox, int]]:
    """Run an SMTP server; yields its mails and its port.

    Args:
        tls: With it, it demands STARTTLS and a password.
    """

    def checked(
        _server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any
    ) -> AuthResult:
        return AuthResult(success=(data.login, data.password) == (b"shop", b"p@ss/word"))

    box, port = Mailbox(), free_port("127.0.0.1")
    # Its probe connects to the port that it was given, so that 0 cannot be.
    make = partial(Controller, box, hostname="127.0.0.1", port=port, ready_timeout=60.0)
    if tls is None:
        controller = make()
    else:
        controller = make(
            tls_context=tls, require_starttls=True, auth_required=True, authenticator=checked
        )
    controller.start()
    try:
        yield box, port
    finally:
        controller.stop()
