"""Operations of a client as generators: when to send, to pause, to retry; without any I/O.

An `Operation` yields the next step (`Send` a request, or `Pause`), receives its outcome (an
`HttpResponse` or a `TransportFailure`), and ends with a result or an error. Each operation is
written once; `Client` and `AsyncClient` carry out its steps.

A request is sent again only if that is safe: it reads, or it carries a request id, so that it
takes effect once however often it is sent.
"""

import math
import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from penstock.errors import OperationalError, TimedOut, Unreachable

LONG_POLL_S: Final = 25.0
"""The longest wait that a request asks of a server: proxies cut connections that are silent."""

_RETRIED: Final = frozenset({429, 502, 503, 504})
_PAUSE_MIN_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """An HTTP request.

    Attributes:
        verb: The HTTP method.
        path: The path below the gateway's URL, with its query string.
        headers: The headers without credentials, which the transport adds.
        content: The body.
        request_id: The id of the Penstock request that it appends; empty if it only reads.
        wait: The query field for the seconds that the server may wait; else empty.
    """

    verb: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    request_id: str = ""
    wait: str = ""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class FailureCause(Enum):
    """Why a request has no response."""

    REFUSED = "could not connect"
    BROKEN = "the connection broke"
    LATE = "no response came in time"
    UNTRUSTED = "the certificate is not trusted"


@dataclass(frozen=True, slots=True)
class TransportFailure:
    """A request without a response.

    Attributes:
        cause: Why it has none.
        message: The system's message.
        server: The scheme, host and port that the request was for; empty if they are not known.
    """

    cause: FailureCause
    message: str = ""
    server: str = ""

    @property
    def text(self) -> str:
        """The server and the cause."""
        return f"{self.server}: {self.cause.value}" if self.server else self.cause.value


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to `path` and wait at most `timeout_s` seconds for its response."""

    request: OutgoingRequest
    path: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for `seconds`."""

    seconds: float


Step = Send | Pause
Operation = Generator[Step, HttpResponse | TransportFailure | None, T]


class RetryPolicy:
    """How long and how often to try.

    Attributes:
        timeout_s: The limit of an operation, with its pauses.
        retries: How often a request is sent again.
        clock: Returns seconds that never go back.
    """

    def __init__(
        self,
        timeout_s: float,
        retries: int,
        *,
        clock: Callable[[], float],
        jitter: random.Random,
    ) -> None:
        self.timeout_s = timeout_s
        self.retries = retries
        self.clock = clock
        self._jitter = jitter

    def pause_s(self, attempt: int, received: HttpResponse | TransportFailure) -> float:
        """Return the seconds to pause before the next attempt; at least those of `Retry-After`."""
        least_s = retry_after_s(received) if isinstance(received, HttpResponse) else 0.0
        return self.pause_after(attempt, least_s)

    def pause_after(self, attempt: int, least_s: float) -> float:
        """Return the seconds to pause before the next attempt; at least `least_s`."""
        usual = min(_PAUSE_MAX_S, _PAUSE_MIN_S * 2.0 ** min(attempt, 10))
        # Half of it is at random, so that clients that failed together do not come back together.
        return max(least_s, usual / 2) + self._jitter.random() * usual / 2


def send_with_retries(
    request: OutgoingRequest,
    policy: RetryPolicy,
    deadline_s: float,
    error_of: Callable[[HttpResponse], Exception],
) -> Operation[HttpResponse]:
    """Send a request until its response is final: sending it again would not change it.

    Args:
        request: The request.
        policy: How often to try.
        deadline_s: The time by `policy.clock` at which to give up.
        error_of: Returns the error that a response describes.

    Returns:
        The final response.

    Raises:
        TimedOut: No response came in time; the message names the request id.
        Unreachable: There was no connection, or it broke at each attempt.
        OperationalError: The server refused each attempt: overloaded, stopping, out of order.
    """
    began_s = policy.clock()
    attempt, arrived = 0, False
    while True:
        left_s = deadline_s - policy.clock()
        if left_s <= 0:
            raise _late(request, deadline_s - began_s)
        received = yield Send(request, _path(request, left_s), left_s)
        assert received is not None, "a sent request has a response or a failure"
        if isinstance(received, HttpResponse) and received.status not in _RETRIED:
            return received
        arrived = arrived or may_have_arrived(received)
        pause_s = policy.pause_s(attempt, received)
        hopeless = (
            isinstance(received, TransportFailure) and received.cause is FailureCause.UNTRUSTED
        )
        over = deadline_s - policy.clock() <= pause_s
        if attempt >= policy.retries or over or hopeless:
            if isinstance(received, HttpResponse) and received.status != 504:
                raise error_of(received)
            if isinstance(received, HttpResponse) or received.cause is FailureCause.LATE:
                raise _late(request, deadline_s - began_s, received)
            raise _unreachable(request, received, attempt + 1, arrived=arrived)
        yield Pause(pause_s)
        attempt += 1


def may_have_arrived(received: HttpResponse | TransportFailure) -> bool:
    """Say whether a request may have reached a gateway."""
    return isinstance(received, HttpResponse) or received.cause not in (
        FailureCause.REFUSED,
        FailureCause.UNTRUSTED,
    )


def retry_after_s(response: HttpResponse) -> float:
    """Return the seconds of `Retry-After`; 0 if the header is missing or holds a date."""
    try:
        seconds = float(response.headers.get("retry-after", "0"))
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _path(request: OutgoingRequest, left_s: float) -> str:
    """Return the path, with the seconds that the server may wait."""
    if not request.wait:
        return request.path
    sign = "&" if "?" in request.path else "?"
    return f"{request.path}{sign}{request.wait}={left_s:.3f}"


def _unreachable(
    request: OutgoingRequest, failure: TransportFailure, attempts: int, *, arrived: bool
) -> Unreachable:
    tried = "" if attempts == 1 else f", {attempts} times"
    message = f": {failure.message}" if failure.message else ""
    hint = _retry_hint(request) if arrived else ""
    return Unreachable(f"{failure.text}{tried}{message}{hint}")


def _late(
    request: OutgoingRequest,
    timeout_s: float,
    received: HttpResponse | TransportFailure | None = None,
) -> OperationalError:
    server = received.server if isinstance(received, TransportFailure) else ""
    where = f"{server}: " if server else ""
    return TimedOut(f"{where}no response within {timeout_s:g} s{_retry_hint(request)}")


def _retry_hint(request: OutgoingRequest) -> str:
    """Tell the caller of a request that may have taken effect how to get its result."""
    if not request.request_id:
        return ""
    return (
        "; the request may have been accepted, and takes effect once: call again with "
        f"request_id={request.request_id!r} to get its result"
    )
