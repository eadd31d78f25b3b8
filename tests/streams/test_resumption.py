"""Handlers that run again and do something else: their step fails, and the message says why."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from penstock import (
    App,
    Emit,
    UserError,
    flow,
    states,
    stream,
)
from penstock.engine.limits import Limits
from penstock.testing import Kit as MemoryKit
from tests.streams.waiting_app import (
    Doubler,
    Shelf,
    app_of,
    double,
    events,
    numbers,
    running,
    slow,
    waiting_rows,
)

ENVIRONMENT: dict[str, Any] = {"runs": 0}


class Changing:
    """Does something else at its second run."""

    total: int = 0

    async def on_event(self, number: int, out: Emit[int]) -> None:
        ENVIRONMENT["runs"] += 1
        if ENVIRONMENT["runs"] > 1:
            await ENVIRONMENT["change"](self, number)
        out(await double.ask(number))


async def asks_another(task: Any, number: int) -> None:
    await double.ask(number + 1)


async def asks_elsewhere(task: Any, number: int) -> None:
    await slow.ask(number)


async def ends(task: Any, number: int) -> None:
    raise SystemExit


async def reads(task: Any, number: int) -> None:
    with suppress(UserError):
        task.total += 1


async def loops(task: Any, number: int) -> None:
    while True:
        pass


async def asks_in_vain(task: Any, number: int) -> None:
    """Catches the error of another request."""
    with suppress(UserError):
        double.ask(number + 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (asks_another, "sent other requests when it ran again"),
        (asks_elsewhere, "sent other requests when it ran again"),
        (asks_in_vain, "sent other requests when it ran again"),
        (ends, "raised an exception when it ran again"),
        (reads, "read w.T/-, which it had not read before"),
        (loops, "time_ms = 300"),
    ],
)
def test_a_handler_that_does_something_else(change: Callable[..., Any], message: str) -> None:
    """Its step fails with a message that says why, its atom is set aside, and the next atom runs."""
    ENVIRONMENT.update(runs=0, change=change)
    app = App(
        "x",
        Shelf,
        flow("doubler", stream("none", int)).task(Doubler).sink("nothing", int),
        flow("w", numbers).task(Changing, name="T").sink("out"),
    )
    kit = MemoryKit(app, limits=Limits(time_ms=300), durable_waits=True)
    kit.append(numbers, [1], check=False)
    [[failed]] = kit.atoms("w-failed")
    assert message in failed.message
    if change is not loops:  # which deployment it may have been
        began = r"since it began, on \d{4}-\d\d-\d\d at \d\d:\d\d:\d\d UTC \(`penstock apps` shows"
        assert re.search(began, failed.message)
    assert waiting_rows(kit.runtime) == []
    ENVIRONMENT["runs"] = -2
    kit.append(numbers, [2])
    assert events(kit) == [4]


class Listing:
    total: int = 0

    async def on_event(self, number: int, out: Emit[int]) -> None:
        await double.ask(number)
        out(len(list(states(self))))


class ListingBefore:
    total: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        count = len(list(states(self)))
        double.ask(number).then(self.on_reply, count, out)

    def on_reply(self, reply: int, count: int, out: Emit[int]) -> None:
        out(count)


@pytest.mark.parametrize("task", [Listing, ListingBefore])
def test_a_handler_that_waits_lists_no_keys(task: Any) -> None:
    """The message names the alternatives."""
    with pytest.raises(
        UserError, match=r"cannot use states\(self\).*keep the values that it needs"
    ):
        running(task).append(numbers, [1, 2])


SAVED: list[Any] = []


class Borrowing:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        if SAVED:
            out(await SAVED.pop())
        SAVED.append(double.ask(number))


def test_a_handler_awaits_no_request_of_another() -> None:
    """The message names the requests that it can await."""
    SAVED.clear()
    kit = MemoryKit(app_of(Borrowing))
    with pytest.raises(UserError, match="it can await its own requests"):
        kit.append(numbers, [1, 2])
    SAVED.clear()
