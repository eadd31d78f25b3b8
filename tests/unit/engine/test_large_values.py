"""Values whose encoding is too large for the memory limit: their request fails, and the process goes on."""

from typing import Any

import pytest

from penstock import App, Emit, Entity, LimitExceeded, emit, flow, key, send, stream
from penstock.engine.limits import Limits
from penstock.testing import Kit
from tests.forked import run

Rows = list[list[bytes]]
LIMITS = Limits(time_ms=60_000, wall_ms=60_000, memory_bytes=64 << 20)


def bomb() -> Rows:
    """Return a value of a few kilobytes of memory whose encoding has some gigabytes."""
    return [[bytes(100_000)] * 1_000] * 40


wanted = stream("wanted", int)
told = stream("told", Rows)


class Filler:
    def on_event(self, event: int, out: Emit[Rows]) -> None:
        out(bomb())


filled = flow("filled", wanted).task(Filler).sink("full")


class Depot(Entity):
    name: str = key()
    rows: Rows = []
    anything: Any = None

    def reply(self) -> Rows:
        return bomb()

    def reply_text(self) -> str:
        return "x" * (45 << 20)

    def reply_loosely(self) -> Any:
        return {"rows": bomb()}

    def store(self) -> None:
        self.rows = bomb()

    def store_loosely(self) -> None:
        self.anything = {"rows": bomb()}

    def tell(self) -> None:
        emit(told, bomb())

    def tell_often(self) -> None:
        while True:
            emit(told, [[bytes(1_000_000)]])

    def pass_on(self) -> None:
        send(Depot.take, self, bomb())

    def pass_on_often(self) -> None:
        while True:
            send(Depot.take, self, [[bytes(1_000_000)]])

    def take(self, rows: Rows) -> int:
        return len(rows)


app = App("depot", Depot, wanted, told, filled)


def made() -> Kit:
    kit = Kit(app, limits=LIMITS)
    kit.call.Depot.create("a")
    return kit


def in_a_process(check: str) -> None:
    """Call a function of this file in another process: a limit of memory is one of the whole process."""
    module = "tests.unit.engine.test_large_values"
    done = run(f"import {module} as tests; tests.{check}")
    assert done.returncode == 0, done.stderr


def fails(method: str) -> None:
    kit = made()
    with pytest.raises(LimitExceeded, match="memory_bytes = 67108864"):
        getattr(kit.call.Depot("a"), method)()
    assert kit.call.Depot("a").take([]) == 0


def fails_in_a_task() -> None:
    kit = made()
    for number in range(2):
        kit.append(wanted, [number], check=False)
        (failure,) = kit.runtime.failures
        assert "memory_bytes = 67108864" in str(failure)
    kit.append(wanted, range(100), check=False)
    assert "memory_bytes = 67108864" in str(kit.runtime.failures[0])


@pytest.mark.parametrize(
    "method",
    [
        "reply", "reply_text", "reply_loosely", "store", "store_loosely", "tell", "tell_often", "pass_on", "pass_on_often",
    ],
)  # fmt: skip
def test_a_value_beyond_the_memory_limit_fails_its_request(method: str) -> None:
    """Whether it is a reply, a row, an event or an argument, and also if many of them add up."""
    in_a_process(f"fails({method!r})")


def test_an_event_of_a_task_beyond_the_memory_limit_fails_its_step() -> None:
    """The step fails, and the next one takes its atom."""
    in_a_process("fails_in_a_task()")
