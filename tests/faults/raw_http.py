"""HTTP by hand, over a socket: requests that no library would send, and their answers."""

import contextlib
import re
import socket
import time
from urllib.parse import urlsplit

from tests.checkout import TOP
from tests.gateway_thread import HOST, RunningGateway

DEADLINE_S = 60.0
SECRETS = (b"Traceback", b'File "', str(TOP).encode(), b"/tmp/", b".py")
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
CALL = "/call/anything"


def exchange(
    gateway: RunningGateway, *pieces: bytes, pause_s: float = 0, half: bool = False
) -> bytes:
    """Send pieces, and return all that comes until the gateway closes; `half` closes our side."""
    until = time.monotonic() + DEADLINE_S
    with socket.create_connection((HOST, urlsplit(gateway.url).port), DEADLINE_S) as connection:
        with contextlib.suppress(ConnectionError):  # it closes while we still send
            for piece in pieces:
                connection.sendall(piece)
                if pause_s:
                    time.sleep(pause_s)
            if half:
                connection.shutdown(socket.SHUT_WR)
        return received(connection, until)


def received(connection: socket.socket, until: float) -> bytes:
    chunks: list[bytes] = []
    with contextlib.suppress(ConnectionError):
        while True:
            left = until - time.monotonic()
            assert left > 0, f"no end in sight after {b''.join(chunks)[:200]!r}"
            connection.settimeout(left)
            chunk = connection.recv(65_536)
            if not chunk:
                break
            chunks.append(chunk)
    return b"".join(chunks)


def request(body: bytes = b"", *headers: str, path: str = CALL, verb: str = "POST") -> bytes:
    """Return a request that closes the connection, its body's length told unless headers do."""
    lines = [f"{verb} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    if not any(one.lower().startswith(("content-length", "transfer-encoding")) for one in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def statuses(answer: bytes) -> list[int]:
    """Return the statuses of answers that show nothing and are no failure of ours."""
    assert [one for one in SECRETS if one in answer] == [], answer
    found = [int(one) for one in STATUS.findall(answer)]
    assert [one for one in found if one >= 500] == [], answer
    return found


def refused(answer: bytes) -> bool:
    return all(400 <= one < 500 for one in statuses(answer))
