"""The client side of the SQL view: where its process listens, and queries to it.

The gateways, `/metrics` and `penstock sql` all reach the view through this module. It loads neither
DuckDB nor the application.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from pathlib import Path
from socket import AF_UNIX
from socket import socket as Socket  # noqa: N812 -- a class
from typing import IO, TYPE_CHECKING, Final

import msgspec

from penstock.base.http import CALLER, EPOCH, JSON, decode_error
from penstock.base.ids import Epoch
from penstock.errors import BY_CODE, OperationalError, PenstockError, Unreachable
from penstock.model.reply import raised_by
from penstock.model.request import Failure
from penstock.process import presence

if TYPE_CHECKING:
    import httpx

URL: Final = "http://view"
"""The base URL over the socket; the host name has no meaning there."""

CONNECT_S: Final = 5.0
_STATUS_S: Final = 2.0
_PART: Final = 1 << 18
_NO_HEADERS: Final[Mapping[str, str]] = {}


class EncodedAnswer(msgspec.Struct, frozen=True):
    """The body of an answer in the format that was asked for, and its epoch in decimal digits."""

    epoch: str
    content: bytes


def socket_of(data: Path) -> str | None:
    """Return the path of the socket of a data directory's view; None if no view runs."""
    views = presence.find(data, "view")
    return str(views[0].details["socket"]) if views else None


# The client of the standard library: httpx takes a quarter of a second to load, and `penstock status` needs no more than one answer.


class _ViewConnection(HTTPConnection):
    """A connection to the socket of a view.

    Args:
        timeout_s: The longest time for each part of a response; None waits for ever.
    """

    def __init__(self, socket: str, timeout_s: float | None) -> None:
        super().__init__("view")
        self._socket = socket
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Connect to the socket, at most `CONNECT_S` long."""
        self.sock = Socket(AF_UNIX)
        self.sock.settimeout(CONNECT_S)
        self.sock.connect(self._socket)
        self.sock.settimeout(self._timeout_s)


@contextmanager
def _response(
    socket: str,
    path: str,
    body: bytes | None = None,
    *,
    headers: Mapping[str, str] = _NO_HEADERS,
    timeout_s: float | None,
) -> Iterator[HTTPResponse]:
    """Send a request to a view, and give the response; raises `Unreachable` if the view does not answer."""
    with closing(_ViewConnection(socket, timeout_s)) as connection:
        try:
            connection.request("GET" if body is None else "POST", path, body, dict(headers))
            response = connection.getresponse()
        except (OSError, HTTPException) as error:
            raise _unreachable(error) from error
        yield response


def _read(response: HTTPResponse, most: int | None = None) -> bytes:
    """Return the next bytes of a response, or all that follow; raises `Unreachable` if it breaks off."""
    try:
        return response.read(most)
    except (OSError, HTTPException) as error:
        raise _unreachable(error) from error


def _unreachable(error: Exception) -> Unreachable:
    return Unreachable(f"the SQL view does not answer: {error!r}")


def async_view_client(socket: str, timeout_s: float) -> "httpx.AsyncClient":
    """Return an asynchronous client of the view that listens at a socket.

    Args:
        timeout_s: The longest time for each part of a response.
    """
    import httpx  # noqa: PLC0415 -- most processes ask no view

    timeout = httpx.Timeout(timeout_s, connect=CONNECT_S)
    transport = httpx.AsyncHTTPTransport(verify=False, trust_env=False, uds=socket)
    return httpx.AsyncClient(transport=transport, base_url=URL, trust_env=False, timeout=timeout)


def view_epoch(data: Path) -> Epoch | None:
    """Return the epoch that SQL answers are of; None if no view runs or it does not answer."""
    socket = socket_of(data)
    if socket is None:
        return None
    try:
        with _response(socket, "/status", timeout_s=_STATUS_S) as response:
            return Epoch(int(json.loads(_read(response))["epoch"]))
    except (Unreachable, ValueError, KeyError):
        return None


def query_view(
    socket: str, body: bytes, accept: str, timeout_s: float | None = None
) -> EncodedAnswer:
    """Send a query to a view and return the answer.

    Args:
        body: The encoded `QueryBody`.
        timeout_s: The longest time for each part of the answer. By default the view alone limits it.

    Raises:
        Unreachable: The view does not answer.
        PenstockError: It answers with this error.
    """
    headers = {"Accept": accept, "Content-Type": JSON}
    with _response(socket, "/sql", body, headers=headers, timeout_s=timeout_s) as response:
        content = _read(response)
        if response.status != HTTPStatus.OK:
            raise _error_of(response.status, content)
        return EncodedAnswer(response.getheader(EPOCH, "?"), content)


def query(client: "httpx.Client", body: bytes, accept: str, api_key: str | None) -> EncodedAnswer:
    """Send a query to a gateway and return the answer.

    Args:
        body: The encoded `Question`.
    """
    import httpx  # noqa: PLC0415 -- most processes ask no view

    headers = {"Accept": accept, "Content-Type": JSON}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    timeout = httpx.Timeout(None, connect=CONNECT_S)  # the view itself limits how long a query runs
    try:
        response = client.post("/sql", content=body, headers=headers, timeout=timeout)
    except httpx.HTTPError as error:
        raise Unreachable(f"{client.base_url} does not answer: {error}") from error
    if response.status_code != httpx.codes.OK:
        raise _error_of(response.status_code, response.content)
    return EncodedAnswer(response.headers.get(EPOCH, "?"), response.content)


def tables(socket: str, body: bytes, caller: str, target: IO[bytes], timeout_s: float) -> Epoch:
    """Ask for the answers of several queries, write them to a file, and return their epoch.

    Args:
        body: The encoded `TablesBody`.
        caller: The name under which the view shares its places.
        timeout_s: The longest time without a byte of the answer.

    Raises:
        Unreachable: The view does not answer.
        PenstockError: It answers with this error.
    """
    headers = {"Content-Type": JSON, CALLER: caller}
    with _response(socket, "/tables", body, headers=headers, timeout_s=timeout_s) as response:
        if response.status != HTTPStatus.OK:
            raise _error_of(response.status, _read(response))
        while part := _read(response, _PART):
            target.write(part)
        if response.length:  # it ended before its end
            raise _unreachable(IncompleteRead(b"", response.length))
        return Epoch(int(response.headers[EPOCH]))


def _error_of(status: int, content: bytes) -> PenstockError:
    error = decode_error(content)
    if error is None:
        return OperationalError(
            f"the server answered {status} without an error of Penstock; is the URL "
            "that of a gateway?"
        )
    if error.code not in BY_CODE:
        return OperationalError(error.message)
    return raised_by(Failure(error.code, error.kind, error.message))
