"""`send`, `send_after`, `send_at`: a handler sends a request, which is processed once if the transaction takes effect.

`ask`: the handler of a task sends a request, and waits for its result.
"""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any, Final, Generic, ParamSpec, TypeVar

from penstock.errors import Aborted, OutsideTransaction, RequestError
from penstock.model.call import call_of, sent
from penstock.model.context import Transaction, active
from penstock.model.effect import Outcome, plan_of
from penstock.model.request import decode_request, encode_request
from penstock.model.running_step import DELAY_MAX, Dispatch
from penstock.model.streams.ask import Ask, running_step
from penstock.model.waiting_effect import Then, with_then

A = TypeVar("A")
P = ParamSpec("P")
_MICROSECOND: Final = timedelta(microseconds=1)
_UNIX_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Sent(Generic[A]):
    """A request that a handler has sent; an effect can name the method that gets its outcome."""

    __slots__ = ("_dispatch", "_txn")

    def __init__(self, txn: Transaction | None, dispatch: Dispatch | None) -> None:
        self._txn = txn
        self._dispatch = dispatch

    def then(self, method: Callable[[Outcome[A]], Any]) -> None:
        """Hand the outcome of the effect to a method, as a request of its own: `send(charge, …).then(self.charged)`.

        Args:
            method: The method of a reference, such as `self.charged`; its parameter is an `Outcome`.

        Raises:
            Aborted: The request is no effect, or the method does not take an outcome.
        """
        txn, former = self._txn, self._dispatch
        if txn is None or former is None:
            raise _refused(
                ".then belongs to an effect; a method that is sent can send its result with `send` itself"
            )
        try:
            made = call_of(method, (Outcome("failed"),), {})
            if not made.entity:
                raise RequestError(
                    "the method of .then is one of a reference, such as self.charged"
                )
            body = sent(txn.outlet(), made)
        except RequestError as error:
            raise _refused(f".then: {error}") from error
        request = decode_request(body)
        assert request.key is not None, "a method has a reference"
        then = Then(request.entity, request.key, request.method)
        whole = Dispatch(
            encode_request(with_then(decode_request(former.body), then)), former.delay_us
        )
        # A savepoint may have undone it meanwhile.
        for place in range(len(txn.outbox) - 1, -1, -1):
            if txn.outbox[place] is former:
                txn.outbox[place] = self._dispatch = whole
                return


_NO_EFFECT: Final[Sent[Any]] = Sent(None, None)


def send(method: Callable[P, A], /, *arguments: P.args, **named: P.kwargs) -> Sent[A]:
    """Send a request when the running transaction takes effect.

    The request is a transaction of its own: `send(Item.restock, Item("i1"), 5)`, or `send(item.restock, 5)`. It is
    processed exactly once, before the next request of the log, and its failure changes nothing in the transaction that
    sent it.

    Args:
        method: A method, a creation, a function or an effect; also the method of a reference.
        arguments: The reference, for a method of a class, and the arguments.
        named: The arguments by name.

    Returns:
        For an effect, the object whose `then` names the method that gets the outcome.

    Raises:
        Aborted: The method does not exist, or the arguments do not fit.
        OutsideTransaction: No transaction runs.
    """
    return _dispatch(_sender(), 0, method, arguments, named)


def send_after(
    delay: timedelta, method: Callable[P, A], /, *arguments: P.args, **named: P.kwargs
) -> Sent[A]:
    """Send a request that is processed once the delay is over; see `send`.

    Args:
        delay: The time from the time of the running request to that of the sent request.
        method: A method, a creation or a function; also the method of a reference.
        arguments: The reference, for a method of a class, and the arguments.
        named: The arguments by name.

    Raises:
        Aborted: The delay is no duration from 0 to 1,000 years, the method does not exist, or the arguments do not fit.
        OutsideTransaction: No transaction runs.
    """
    txn = _sender()
    given: object = delay  # a handler may pass anything
    if not isinstance(given, timedelta):
        raise _refused(f"the delay of a request is a timedelta, not {type(given).__qualname__}")
    if timedelta.__lt__(given, timedelta()):
        text = timedelta.__str__(given)
        raise _refused(f"a request cannot be sent into the past: the delay is {text}")
    return _dispatch(txn, _checked_us(given), method, arguments, named)


def send_at(
    when: datetime, method: Callable[P, A], /, *arguments: P.args, **named: P.kwargs
) -> Sent[A]:
    """Send a request that is processed at a time, or at once if the time of the running request is later; see `send`.

    Args:
        when: The time, with a time zone.
        method: A method, a creation or a function; also the method of a reference.
        arguments: The reference, for a method of a class, and the arguments.
        named: The arguments by name.

    Raises:
        Aborted: The time has no time zone or is more than 1,000 years ahead, the method does not exist, or the
            arguments do not fit.
        OutsideTransaction: No transaction runs.
    """
    txn = _sender()
    given: object = when
    if not isinstance(given, datetime):
        raise _refused(f"the time of a request is a datetime, not {type(given).__qualname__}")
    if datetime.utcoffset(given) is None:
        text = datetime.isoformat(given)
        raise _refused(
            f"{text} has no time zone, so its instant is unknown; add one, as in datetime(…, tzinfo=UTC)"
        )
    delay = datetime.__sub__(given, _UNIX_EPOCH) - timedelta(microseconds=txn.time_us)
    return _dispatch(txn, max(0, _checked_us(delay)), method, arguments, named)


def _sender() -> Transaction:
    txn = active()
    if txn is None:
        raise OutsideTransaction("a handler sends requests; from outside, call or use a client")
    return txn


def _checked_us(delay: timedelta) -> int:
    if timedelta.__gt__(delay, DELAY_MAX):
        text = timedelta.__str__(delay)
        raise _refused(f"the delay of a request is at most 1,000 years, not {text}")
    return timedelta.__floordiv__(delay, _MICROSECOND)


def _dispatch(
    txn: Transaction,
    delay_us: int,
    method: Callable[..., Any],
    arguments: tuple[Any, ...],
    named: dict[str, Any],
) -> Sent[Any]:
    given: object = method
    if not callable(given):  # the result of a handler that was called too early
        raise _refused(
            f"a method or a function is sent, not {type(given).__qualname__}: write send(item.restock, 5), and do not call it"
        )
    outlet = txn.outlet()
    plan = plan_of(method)
    if plan is not None and (name := method.__name__) not in outlet.effects:
        raise _refused(f"App must name the effect {name} among its members: App('name', …, {name})")
    try:
        body = sent(outlet, call_of(method, arguments, named))
    except RequestError as error:
        raise _refused(str(error)) from error
    dispatch = Dispatch(body, delay_us)
    txn.outbox.append(dispatch)
    return _NO_EFFECT if plan is None else Sent(txn, dispatch)


def _refused(why: str) -> Aborted:
    """Return the error of the handler that has called this module, with its line: its caller has made no mistake."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 -- the documented way to the place of a call
    while frame is not None and frame.f_globals is globals():
        frame = frame.f_back
    place = f"{frame.f_code.co_qualname}, line {frame.f_lineno}: " if frame else ""
    return Aborted(f"{place}{why}")


def ask(method: Callable[P, A], /, *arguments: P.args, **named: P.kwargs) -> Ask[A]:
    """Send a request to an entity, a function or an effect from the handler of a task; await the result to get its reply.

    The request is appended to the log when the step of the handler takes effect, awaited or not, and is a
    transaction of its own: `await ask(Item.reserve, Item("i1"), 2)`.

    Args:
        method: A method, a creation, a function or an effect.
        arguments: The reference, for a method, and the arguments.
        named: The arguments by name.

    Raises:
        RequestError: The method does not exist, or the arguments do not fit.
        OutsideTransaction: No handler of a task runs.
    """
    step = running_step("ask an entity")
    asked: Ask[A] = step.call(call_of(method, arguments, named))
    return asked
