"""The settings of a client, and the parts of HTTP that both clients share."""

import os
import random
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from penstock.client.address import Address
from penstock.client.operation import (
    FailureCause,
    HttpResponse,
    RetryPolicy,
    Send,
    TransportFailure,
)
from penstock.client.protocol import GatewayProtocol, Outcome
from penstock.client.states import SILENCE_S
from penstock.errors import ConfigError
from penstock.model.application import App

Verify = bool | str | Path | ssl.SSLContext
"""True trusts the system's authorities, a path the authorities in a PEM file, False everything."""

CONNECT_S: Final = 5.0
CLOSED: Final = "this client is closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a client; `AsyncClient` describes them."""

    timeout_s: float
    retries: int
    connections: int
    verify: Verify
    fresh: bool

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ConfigError: A number cannot be used.
        """
        if not 0 < self.timeout_s < float("inf"):
            raise ConfigError(f"timeout_s = {self.timeout_s}: must be more than 0")
        if self.retries < 0:
            raise ConfigError(f"retries = {self.retries}: must be at least 0")
        if self.connections < 1:
            raise ConfigError(f"connections = {self.connections}: must be at least 1")

    def options(self, address: Address) -> Mapping[str, Any]:
        """Return the arguments of each connection's httpx client.

        Raises:
            ConfigError: The file of authorities cannot be used.
        """
        return {
            "headers": {"User-Agent": "penstock", **address.headers},
            "verify": trust(address, self.verify),
            "limits": httpx.Limits(max_connections=1),
            "follow_redirects": False,  # the key goes to the given gateway and nowhere else
        }

    def protocol(self, app: App | None) -> GatewayProtocol:
        """Return the operations of a client with these settings."""
        jitter = random.Random()
        policy = RetryPolicy(self.timeout_s, self.retries, clock=time.monotonic, jitter=jitter)
        return GatewayProtocol(app, policy, fresh=self.fresh)


def timeout_of(step: Send) -> httpx.Timeout:
    """Return httpx's limits for each part of a request."""
    return httpx.Timeout(step.timeout_s, connect=min(step.timeout_s, CONNECT_S))


def response_of(response: httpx.Response) -> HttpResponse:
    """Return a response, which httpx has read to its end."""
    return HttpResponse(response.status_code, response.headers, response.content)


def limit_silence(response: httpx.Response) -> None:
    """Let each read of a body that has no end wait for `SILENCE_S`; the head had the limit of the operation."""
    response.request.extensions["timeout"]["read"] = SILENCE_S


def hang_up(response: httpx.Response) -> None:
    """End the connection of a response; a reader that waits in another thread or task finds its end."""
    # To close a socket does not wake a thread that waits for it.
    connection = response.extensions["network_stream"].get_extra_info("socket")
    with suppress(OSError):  # it has ended already
        if isinstance(connection, socket.socket):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # that of TLS drops its state, too
        else:  # an event loop hides the socket's methods
            with socket.socket(fileno=os.dup(connection.fileno())) as same:
                same.shutdown(socket.SHUT_RDWR)


def failure_of(error: httpx.TransportError | httpx.DecodingError) -> TransportFailure:
    """Return why a request has no response."""
    match error:
        case httpx.ConnectError() if _distrusts(error):
            cause = FailureCause.UNTRUSTED
        case httpx.ConnectError() | httpx.ConnectTimeout() | httpx.ProxyError():
            cause = FailureCause.REFUSED
        case httpx.TimeoutException():
            cause = FailureCause.LATE
        case _:
            cause = FailureCause.BROKEN
    return TransportFailure(cause, str(error), _server_of(error))


def _server_of(error: httpx.RequestError) -> str:
    """Return the scheme, host and port of the request that failed; empty if the error does not know it."""
    try:
        url = error.request.url
    except RuntimeError:
        return ""
    return str(url.copy_with(path="/", query=None)).rstrip("/")


def _distrusts(error: BaseException | None) -> bool:
    """Say whether a certificate caused an error; another attempt would not change that."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def trust(address: Address, verify: Verify = True) -> ssl.SSLContext:  # noqa: FBT002 -- as httpx names it
    """Return the authorities of the connections to an address.

    Raises:
        ConfigError: The file of authorities cannot be used.
    """
    if isinstance(verify, ssl.SSLContext):
        return verify
    if verify is True and not address.is_encrypted:
        # To read the system's authorities takes 30 ms; a proxy has authorities of its own.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if isinstance(verify, bool):
        return httpx.create_ssl_context(verify)
    try:
        return ssl.create_default_context(cafile=verify)
    except OSError as error:  # ssl.SSLError is one, too
        raise ConfigError(f"verify = {verify}: {error}") from error


def results_of(outcomes: list[Outcome], *, raise_errors: bool) -> list[Any]:
    """Return values and errors in order, or raise the first error.

    Raises:
        PenstockError: The error of the first call that failed.
    """
    if raise_errors:
        for _, error in outcomes:
            if error is not None:
                raise error
    return [value if error is None else error for value, error in outcomes]


def repr_of(class_name: str, address: Address, app: App | None) -> str:
    """Return a client's `repr`, which shows no key."""
    about = "" if app is None else f", app={app.name!r}"
    return f"{class_name}({address.url!r}{about})"
