"""`send`: a handler sends a request, which is processed once if the transaction takes effect."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ParamSpec

from penstock.errors import OutsideTransaction, RequestError
from penstock.model.call import call_of, encoded
from penstock.model.context import active
from penstock.model.running_step import DELAY_MAX, Dispatch

P = ParamSpec("P")


def send(method: Callable[P, Any], /, *arguments: P.args, **named: P.kwargs) -> None:
    """Send a request when the running transaction takes effect.

    The request is a transaction of its own: `send(Item.restock, Item("i1"), 5)`. It is processed exactly once, before
    the next request of the log, and its failure changes nothing in the transaction that sent it.

    Args:
        method: A method, a creation or a function.
        arguments: The reference, for a method, and the arguments.
        named: The arguments by name.

    Raises:
        RequestError: The method does not exist, or the arguments do not fit.
        OutsideTransaction: No transaction runs.
    """
    _dispatch(0, method, arguments, named)


def send_after(
    delay: timedelta, method: Callable[P, Any], /, *arguments: P.args, **named: P.kwargs
) -> None:
    """Send a request that is processed once the delay is over; see `send`.

    Args:
        delay: The time from the time of the running request to that of the sent request.
        method: A method, a creation or a function.
        arguments: The reference, for a method, and the arguments.
        named: The arguments by name.

    Raises:
        RequestError: The delay is no duration from 0 to 1,000 years, the method does not exist, or the arguments do
            not fit.
        OutsideTransaction: No transaction runs.
    """
    given: object = delay  # a handler may pass anything
    if not isinstance(given, timedelta):
        raise RequestError(f"the delay of a request is a timedelta, not {type(given).__qualname__}")
    if timedelta.__lt__(given, timedelta()):
        raise RequestError(f"a request cannot be sent into the past: the delay is {delay}")
    if timedelta.__gt__(given, DELAY_MAX):
        raise RequestError(f"the delay of a request is at most 1,000 years, not {delay}")
    _dispatch(timedelta.__floordiv__(given, timedelta(microseconds=1)), method, arguments, named)


def _dispatch(
    delay_us: int, method: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    txn = active()
    if txn is None:
        raise OutsideTransaction("a handler sends requests; from outside, call or use a client")
    call = call_of(method, arguments, named)
    body, _ = encoded(txn.outlet(), call)
    txn.outbox.append(Dispatch(body, delay_us))
