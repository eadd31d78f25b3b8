"""Asking a gateway until it answers: the decisions, without any I/O.

A `Operation` is a generator: it yields what to do next (`Send` a question, `Pause`), is given what came
of it (an `HttpResponse`, or how it was `TransportFailure`), and ends with a result or an error. Every operation of a
client is one, written once; `Client` and `AsyncClient` only carry steps out.

Promises that a question is sent again only where that is safe: it reads, or it carries a request
id, which has it take effect once however often it is sent.
"""

import math
import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from penstock.errors import OperationalError, TimedOut, Unreachable

LONG_POLL_S: Final = 25.0
"""Longest wait asked of a server in one question: proxies cut connections that are silent."""

_RETRIED: Final = frozenset({429, 502, 503, 504})
_PAUSE_MIN_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request.

    Attributes:
        verb: The HTTP method.
        path: Below the gateway's URL, with its query string.
        headers: Without credentials, which the carrier adds.
        content: The body.
        request_id: Of the request that it appends or asks about; empty where it only reads.
        wait: The query field that says how many seconds the server may wait; empty for none.
    """

    verb: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b""
    request_id: str = ""
    wait: str = ""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One HTTP response; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class FailureCause(Enum):
    """How a question was lost."""

    REFUSED = "could not connect"
    BROKEN = "the connection broke"
    LATE = "no answer came in time"
    UNTRUSTED = "the certificate is not trusted"


@dataclass(frozen=True, slots=True)
class TransportFailure:
    """No answer came; `what` is what the system said."""

    how: FailureCause
    what: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a question to a path and wait for its answer, for so many seconds."""

    question: HttpRequest
    path: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so many seconds."""

    seconds: float


Step = Send | Pause
Operation = Generator[Step, HttpResponse | TransportFailure | None, T]


class RetryPolicy:
    """How long and how often to try.

    Attributes:
        timeout_s: For an operation in all, pauses included.
        retries: How often a question is sent again.
        clock: Seconds that never go back.
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

    def pause_s(self, attempt: int, answer: HttpResponse | TransportFailure) -> float:
        """Return how long to pause: doubling, at random so that clients do not come together.

        What a server names in `Retry-After` is the least.
        """
        usual = min(_PAUSE_MAX_S, _PAUSE_MIN_S * 2.0 ** min(attempt, 10))
        least = retry_after_s(answer) if isinstance(answer, HttpResponse) else 0.0
        return max(least, usual / 2) + self._jitter.random() * usual / 2


def send_with_retries(
    question: HttpRequest,
    patience: RetryPolicy,
    deadline_s: float,
    error_of: Callable[[HttpResponse], Exception],
) -> Operation[HttpResponse]:
    """Ask until there is an answer that asking again would not change.

    Args:
        question: What to send.
        patience: How often to try.
        deadline_s: When to give up, by `patience.clock`.
        error_of: Turns an answer into the error that it tells of.

    Raises:
        TimedOut: None came in time; names the request id.
        Unreachable: No connection, or it broke each time.
        OperationalError: The server said so each time: overloaded, stopping, out of order.
    """
    began_s = patience.clock()
    attempt, taken = 0, False
    while True:
        left_s = deadline_s - patience.clock()
        if left_s <= 0:
            raise _late(question, deadline_s - began_s)
        got = yield Send(question, _path(question, left_s), left_s)
        assert got is not None, "a question comes back answered or lost"
        if isinstance(got, HttpResponse) and got.status not in _RETRIED:
            return got
        taken = taken or may_have_arrived(got)
        pause_s = patience.pause_s(attempt, got)
        hopeless = isinstance(got, TransportFailure) and got.how is FailureCause.UNTRUSTED
        over = deadline_s - patience.clock() <= pause_s
        if attempt >= patience.retries or over or hopeless:
            if isinstance(got, HttpResponse) and got.status != 504:
                raise error_of(got)
            if isinstance(got, HttpResponse) or got.how is FailureCause.LATE:
                raise _late(question, deadline_s - began_s)
            raise _unreachable(question, got, attempt + 1, taken=taken)
        yield Pause(pause_s)
        attempt += 1


def may_have_arrived(got: HttpResponse | TransportFailure) -> bool:
    """Say whether a question may have reached a gateway."""
    return isinstance(got, HttpResponse) or got.how not in (
        FailureCause.REFUSED,
        FailureCause.UNTRUSTED,
    )


def retry_after_s(answer: HttpResponse) -> float:
    """Return the seconds of `Retry-After`; 0 where there is none, or a date."""
    try:
        seconds = float(answer.headers.get("retry-after", "0"))
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def _path(question: HttpRequest, left_s: float) -> str:
    """Return the path, with how long the server may wait."""
    if not question.wait:
        return question.path
    sign = "&" if "?" in question.path else "?"
    return f"{question.path}{sign}{question.wait}={left_s:.3f}"


def _unreachable(
    question: HttpRequest, lost: TransportFailure, attempts: int, *, taken: bool
) -> Unreachable:
    tried = "" if attempts == 1 else f", {attempts} times"
    told = f": {lost.what}" if lost.what else ""
    return Unreachable(f"{lost.how.value}{tried}{told}{_again(question) if taken else ''}")


def _late(question: HttpRequest, timeout_s: float) -> OperationalError:
    return TimedOut(f"no answer within {timeout_s:g} s{_again(question)}")


def _again(question: HttpRequest) -> str:
    """Say how to ask again, where a request may have taken effect."""
    if not question.request_id:
        return ""
    return (
        f"; the request may have been taken and takes effect once: call again with "
        f"request_id={question.request_id!r} to have its answer"
    )
