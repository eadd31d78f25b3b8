"""Asks: the questions of a task's handler to a portal or an entity, and the replies for which it waits.

A portal replies in the same cascade. A request to an entity goes through the log: it is a record of its own, and
its result comes back when that record has been processed.
"""

from collections.abc import Awaitable, Callable, Generator
from datetime import timedelta
from typing import Any, Final, Generic, Self, TypeVar

from penstock.errors import AskFailed, Deadlock, OutsideTransaction, UserError
from penstock.model.context import active
from penstock.model.running_step import DELAY_MAX, RunningStep

A = TypeVar("A")
_MICROSECOND: Final = timedelta(microseconds=1)


class Ask(Generic[A]):
    """A request to a portal or to an entity; `await` gives its result.

    Attributes:
        id: The name of the request: the step that sent it, and its number there.
        target: The portal, or the method, in messages.
        reply: The encoded result; None until it arrives.
    """

    __slots__ = ("_decode", "_is_limited", "failure", "id", "reply", "target")

    def __init__(self, id: str, target: str, decode: Callable[[bytes], A]) -> None:  # noqa: A002 -- its word
        self.id = id
        self.target = target
        self._decode = decode
        self.reply: bytes | None = None
        self.failure: Exception | None = None
        self._is_limited = False

    @property
    def is_settled(self) -> bool:
        """Whether the result, or a failure, has arrived."""
        return self.reply is not None or self.failure is not None

    def result(self) -> A:
        """Return the result."""
        if self.failure is not None:
            raise self.failure
        if self.reply is None:
            raise UserError(f"{self.target} has not replied yet; await the request")
        return self._decode(self.reply)

    def fail(self, why: str, code: str = AskFailed.code) -> None:
        """Let the result be a failure; `code` is that of the failure which arrived in place of a result."""
        raised = Deadlock if code == Deadlock.code else AskFailed
        self.failure = raised(f"{self.target}: {why}")

    def __await__(self) -> Generator["Ask[A]", None, A]:
        if not self.is_settled:
            yield self
        return self.result()

    def within(self, time: timedelta) -> Self:
        """Limit the time for the result: `await take.ask(item).within(timedelta(seconds=5))`.

        A request without a result after this time fails with `AskFailed`. A result that comes later has no effect.
        The request itself is processed in any case.
        """
        given: object = time  # a handler may pass anything
        if not isinstance(given, timedelta) or timedelta.__lt__(given, _MICROSECOND):
            raise UserError(f"{self.target}: a time-out is a duration greater than 0, not {time!r}")
        if self._is_limited:
            raise UserError(f"{self.target}: the request has a time-out already")
        if timedelta.__gt__(given, DELAY_MAX):
            raise UserError(f"{self.target}: a time-out is at most 1,000 years, not {time}")
        time_us = timedelta.__floordiv__(given, _MICROSECOND)  # of a subclass, too
        running_step("limit the time of a request").limit(self, time_us)
        self._is_limited = True
        return self

    def then(self, handler: Callable[..., Any], *arguments: Any) -> None:
        """Call a method of the asking task when the result arrives: `handler(result, *arguments)`.

        It is an alternative to `await` for handlers that are not `async`. A method that publishes events needs `out`
        among the arguments.
        """
        running_step("name a method for a reply").follow(_follow(self, handler, arguments))


async def _follow(ask: Ask[Any], handler: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Wait for a result, and then call a method."""
    reply = await ask
    try:
        result = handler(reply, *arguments)
    except TypeError as error:
        if (
            error.__traceback__ is not None and error.__traceback__.tb_next is None
        ):  # nothing of it has run
            raise UserError(
                f"{ask.target}: the method for its reply cannot be called: {error}; it gets the reply, and then the "
                "arguments behind the method: give it `out`, too, as in .then(self.on_reply, out)"
            ) from error
        raise
    if isinstance(result, Awaitable):
        await result


def running_step(what: str) -> RunningStep:
    """Return the running step."""
    txn = active()
    if txn is None or txn.step is None:
        raise OutsideTransaction(
            f"only the handler of a task can {what}; from an entity, emit an event to a workflow that does"
        )
    return txn.step


async def gather(*asks: Awaitable[Any]) -> list[Any]:
    """Wait for several requests; return their replies in the order of the arguments.

    Raises:
        AskFailed: A replying task failed; it is the first failure in the order of the arguments.
    """
    return [await ask for ask in asks]
