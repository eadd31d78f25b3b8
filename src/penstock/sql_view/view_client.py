"""The client side of the SQL view: where its process listens, and queries to it.

The gateways, `/metrics` and `penstock sql` all reach the view through this module. It loads neither
DuckDB nor the application.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

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


@dataclass(frozen=True, slots=True)
class EncodedAnswer:
    """The body of an answer in the format that was asked for, and its epoch in decimal digits."""

    epoch: str
    content: bytes


def socket_of(data: Path) -> str | None:
    """Return the path of the socket of a data directory's view; None if no view runs."""
    views = presence.find(data, "view")
    return str(views[0].details["socket"]) if views else None


def view_client(socket: str, timeout: "httpx.Timeout | float | None" = None) -> "httpx.Client":
    """Return a client of the view that listens at a socket."""
    import httpx  # noqa: PLC0415 -- most processes ask no view

    # A TLS context would cost more than everything else here, and a socket ignores it.
    transport = httpx.HTTPTransport(verify=False, trust_env=False, uds=socket)
    return httpx.Client(transport=transport, base_url=URL, trust_env=False, timeout=timeout)


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
    import httpx  # noqa: PLC0415 -- most processes ask no view

    with view_client(socket, _STATUS_S) as client:
        try:
            return Epoch(int(client.get("/status").json()["epoch"]))
        except (httpx.HTTPError, ValueError, KeyError):
            return None


def query(client: "httpx.Client", body: bytes, accept: str, api_key: str | None) -> EncodedAnswer:
    """Send a query to a view or a gateway and return the answer.

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
        raise _error_of(response)
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
    import httpx  # noqa: PLC0415 -- most processes ask no view

    headers = {"Content-Type": JSON, CALLER: caller}
    try:
        with (
            view_client(socket, httpx.Timeout(timeout_s, connect=CONNECT_S)) as client,
            client.stream("POST", "/tables", content=body, headers=headers) as response,
        ):
            if response.status_code != httpx.codes.OK:
                response.read()
                raise _error_of(response)
            for part in response.iter_raw(_PART):
                target.write(part)
            return Epoch(int(response.headers[EPOCH]))
    except httpx.HTTPError as error:
        raise Unreachable(f"the SQL view does not answer: {error}") from error


def _error_of(response: "httpx.Response") -> PenstockError:
    error = decode_error(response.content)
    if error is None:
        return OperationalError(
            f"the server answered {response.status_code} without an error of Penstock; is the URL "
            "that of a gateway?"
        )
    if error.code not in BY_CODE:
        return OperationalError(error.message)
    return raised_by(Failure(error.code, error.kind, error.message))
