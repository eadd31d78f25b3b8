"""`StoreServer`, a real S3 server over a folder, and `HostileProxy`, a network before it whose answers lie."""

import contextlib
import http.client
import os
import secrets
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple, Self

from benchmarks.harness.ports import free_port
from penstock.files.store_root import StoreRoot
from tests.gateway_thread import HOST

BUCKET: Final = "shared"
START_S: Final = 30.0
_BUILD: Final = Path(__file__).parent.parent / "scripts" / "store_server"


class StoreMissing(Exception):
    """There is no server, and nothing that builds one; the message says what to install."""


class Store:
    """An S3 server that runs, with a bucket which several tests share: each takes a prefix of its own.

    Args:
        address: Where it listens, at a port.
        key: The name of its user, who has a secret.
    """

    def __init__(self, address: str, port: int, key: str, secret: str) -> None:
        self.address = address
        self.port = port
        self.key = key
        self.secret = secret

    def root(self, host: Path, prefix: str, port: int | None = None) -> StoreRoot:
        """Return the root of a prefix, perhaps through a proxy."""
        return StoreRoot(f"s3://{BUCKET}/{prefix}", host, self.access(port))

    def url(self, prefix: str) -> str:
        """Return the place of a prefix."""
        return f"s3://{BUCKET}/{prefix}"

    def environment(self) -> dict[str, str]:
        """Return the variables from which a process takes the options of its client."""
        access = self.access()
        return {
            "AWS_ENDPOINT_URL": access["endpoint"],
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": access["region"],
        }

    def access(self, port: int | None = None) -> dict[str, str]:
        """Return the options of a client."""
        return {
            "endpoint": f"http://{self.address}:{port or self.port}",
            "access_key_id": self.key,
            "secret_access_key": self.secret,
            "region": "us-east-1",
        }


class StoreServer(Store):
    """The process of a versitygw.

    Attributes:
        folder: The folder of the bucket; an object is a file in it.
    """

    def __init__(self, folder: Path, address: str = HOST) -> None:
        """Start it; `scripts/store_server` builds it where it is missing.

        Args:
            address: Where it listens, of the host of this thread.
        """
        super().__init__(address, free_port(address), secrets.token_hex(8), secrets.token_hex(16))
        self.folder = folder / BUCKET
        self.folder.mkdir(parents=True)
        built = subprocess.run([_BUILD], capture_output=True, text=True, check=False)
        if built.returncode:
            raise StoreMissing(built.stderr.strip())
        self._command = [built.stdout.strip(), f"{address}:{self.port}", str(folder)]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, "ROOT_ACCESS_KEY": self.key, "ROOT_SECRET_KEY": self.secret},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_S
        while True:
            with (
                contextlib.suppress(OSError),
                contextlib.closing(
                    http.client.HTTPConnection(self.address, self.port, timeout=START_S)
                ) as connection,
            ):
                connection.request("GET", "/")
                connection.getresponse().read()
                return
            assert self._process.poll() is None, "the object store has ended at its start"
            assert time.monotonic() < deadline, "the object store does not answer"
            time.sleep(0.02)

    def kill(self) -> None:
        """End the process without a warning; `start` starts it again, over the same folder."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True)
class Fault:
    """What happens to one request.

    Attributes:
        reaches: Whether the store gets it.
        status: The answer that the client gets; 0 cuts the connection instead, None gives the store's answer.
        code: The code in the body of the answer.
        first: Called with the path before the request reaches the store.
    """

    reaches: bool = True
    status: int | None = None
    code: str = ""
    first: Callable[[str], object] = lambda path: None


LOST_ANSWER: Final = Fault(status=500, code="InternalError")
CUT_ANSWER: Final = Fault(status=0)
CUT_REQUEST: Final = Fault(reaches=False, status=0)
CONFLICT: Final = Fault(reaches=False, status=409, code="ConditionalRequestConflict")
SLOW_DOWN: Final = Fault(reaches=False, status=503, code="SlowDown")
NOT_FOUND: Final = Fault(reaches=False, status=404, code="NoSuchKey")


@dataclass
class HostileProxy:
    """A proxy before a store. Each fault of `faults` meets one request of its method, in order; then all is well.

    Attributes:
        always: The fault of all requests of a method for which no single one waits.
        statuses: What the store has answered.
        asked: The method and the path of each request.
    """

    target: int
    faults: dict[str, deque[Fault]] = field(
        default_factory=lambda: {"PUT": deque(), "GET": deque()}
    )
    always: dict[str, Fault] = field(default_factory=dict)
    statuses: list[int] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer((HOST, 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def fault_of(self, method: str) -> Fault:
        """Return what happens to the next request."""
        waiting = self.faults.get(method)
        return waiting.popleft() if waiting else self.always.get(method, Fault())


class Answer(NamedTuple):
    """What a client hears; status 0 cuts its connection."""

    status: int
    headers: dict[str, str]
    body: bytes


class _Handler(BaseHTTPRequestHandler):
    proxy: HostileProxy
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        self.proxy.asked.append((self.command, self.path))
        fault = self.proxy.fault_of(self.command)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        fault.first(self.path)
        answer = self._asked(body) if fault.reaches else Answer(0, {}, b"")
        if fault.status is not None:
            text = f"<Error><Code>{fault.code}</Code><Message>of the proxy</Message></Error>"
            answer = Answer(fault.status, {"Content-Type": "application/xml"}, text.encode())
        if answer.status:
            with contextlib.suppress(OSError):  # the client has given up
                self._tell(answer)
        else:
            self.close_connection = True

    def _asked(self, body: bytes) -> Answer:
        with contextlib.closing(
            http.client.HTTPConnection(HOST, self.proxy.target, timeout=START_S)
        ) as connection:
            # Unchanged, because the client has signed it.
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            self.proxy.statuses.append(response.status)
            return Answer(response.status, dict(response.getheaders()), response.read())

    def _tell(self, answer: Answer) -> None:
        self.send_response(answer.status)
        own = {"content-length", "connection", "transfer-encoding"}
        for name, value in answer.headers.items():
            if name.lower() not in own:
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        length = answer.headers.get("Content-Length", "0") if is_head else str(len(answer.body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if not is_head:
            self.wfile.write(answer.body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _pass  # noqa: N815 -- names of the base class

    def log_message(self, *_: object) -> None:
        """Say nothing."""
