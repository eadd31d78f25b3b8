"""A shop whose orders are charged by a provider over HTTP, with effects of each kind; the tests run it, and the processes that they start."""

import ctypes
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from penstock import (
    App,
    AskFailed,
    Emit,
    Entity,
    Final,
    Outcome,
    ask,
    effect,
    effect_id,
    flow,
    key,
    limit,
    secret,
    send,
    send_after,
    stream,
)


def posted(path: str, order: str) -> str:
    """Post an order to the provider, and return its answer."""
    request = urllib.request.Request(
        f"{secret('PROVIDER')}/{path}/{order}", b"", {"Idempotency-Key": effect_id()}
    )
    with urllib.request.urlopen(request) as answer:
        text: bytes = answer.read()
        return text.decode()


@effect(tries=3, timeout=timedelta(seconds=1))
def charge(order: str, cents: int) -> str:
    """Charge a card."""
    try:
        return posted("charge", order)
    except urllib.error.HTTPError as error:
        if error.code == 402:
            raise Final("declined") from None
        raise


@effect(tries=3, timeout=timedelta(seconds=1))
async def notify(order: str) -> str:
    """Notify a customer, on the event loop."""
    return posted("notify", order)


@effect(once=True, timeout=timedelta(seconds=20))
def mail(order: str) -> str:
    """Send a mail, once."""
    return posted("mail", order)


def _raise_base() -> str:
    raise BaseException("a BaseException")


def _write_to_pipes() -> str:
    for descriptor in range(3, 64):
        with suppress(OSError):
            os.write(descriptor, b"\xff" * 100)
    return "written"


def _tell_secret() -> str:
    raise ValueError(f"the key is {secret('CARD_KEY')}")


_MISDEEDS: dict[str, Callable[[], Any]] = {
    "exit": lambda: os._exit(7),
    "system-exit": lambda: sys.exit(3),
    "base": _raise_base,
    "fault": lambda: ctypes.string_at(0),
    "memory": lambda: str(len([bytes(1 << 20) for _ in range(1 << 20)])),
    "number": lambda: 5,
    "large": lambda: "x" * (64 << 20),
    "object": object,
    "hang": lambda: time.sleep(1_000),
    "pipe": _write_to_pipes,
    "secret": _tell_secret,
    "secret-result": lambda: f"key {secret('CARD_KEY')}",
    "no-secret": lambda: secret("NO_SUCH_SECRET"),
}


@effect(tries=2, timeout=timedelta(seconds=5))
def poison(how: str) -> str:
    """Do what an effect must not do."""
    result: str = _MISDEEDS[how]()
    return result


@effect
@limit("1 at once", "50/s")
def slowly(number: int) -> tuple[float, float]:
    """Return when the call began and ended."""
    began = time.monotonic()
    time.sleep(0.05)
    return began, time.monotonic()


@effect(tries=2, timeout=timedelta(seconds=1.5))
def mixed(how: str) -> str:
    """Return at once, nearly always."""
    if how == "nap":
        time.sleep(0.5)
    elif how != "quick":
        _MISDEEDS[how]()
    return how


class Order(Entity):
    """An order; `outcomes` has each outcome that it was told."""

    order_id: str = key()
    outcomes: list[str] = []

    def check_out(self) -> None:
        """Charge the card."""
        send(charge, self.order_id, 500).then(self.told)

    def tell(self) -> None:
        """Notify the customer."""
        send(notify, self.order_id).then(self.told)

    def post(self) -> None:
        """Send a mail."""
        send(mail, self.order_id).then(self.told)

    def misbehave(self, how: str) -> None:
        """Do what an effect must not do."""
        send(poison, how).then(self.told)

    def remind(self) -> None:
        """Charge the card later."""
        send_after(timedelta(hours=1), charge, self.order_id, 500).then(self.told)

    def crowd(self, count: int) -> None:
        """Send many effects with a limit."""
        for number in range(count):
            send(slowly, number).then(self.timed)

    def mix(self, kinds: list[str]) -> None:
        """Send effects most of which are short."""
        for how in kinds:
            send(mixed, how).then(self.counted)

    def counted(self, outcome: Outcome[str]) -> None:
        """Note an outcome with its tries."""
        self.outcomes.append(f"{outcome.tries} {outcome.status} {outcome.error}".strip())

    def timed(self, outcome: Outcome[tuple[float, float]]) -> None:
        """Note the times of a call."""
        assert outcome.value is not None
        self.outcomes.append("{} {}".format(*outcome.value))

    def told(self, outcome: Outcome[str]) -> None:
        """Note an outcome."""
        self.outcomes.append(f"{outcome.status}: {outcome.value or outcome.error}")


purchases = stream("purchases", str)


class Purchase:
    """Charges, and undoes it if the second charge fails: a saga."""

    bought: int = 0

    async def on_event(self, order: str, out: Emit[str]) -> None:
        """Charge twice."""
        first = await ask(charge, order, 100)
        try:
            second = await ask(charge, f"declined-{order}", 200)
        except AskFailed as error:
            undone = await ask(notify, f"undo-{order}")
            out(f"{first} undone by {undone}: {error}")
            return
        self.bought += 1
        out(f"{first} {second}")


bought = flow("purchase", purchases).task(Purchase).sink("bought")
app = App("till", Order, charge, notify, mail, poison, mixed, slowly, bought)
