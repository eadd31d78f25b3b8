"""Fair shares: principals that wait are served in turn, and a quiet one is never behind a loud one."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.base.ids import ONLY_PARTITION, Epoch, Lsn
from penstock.errors import Overloaded, Stopping
from penstock.gateway.flow.admission import (
    BYTES_OF_ONE,
    FIXED_TIMES,
    SIZE_FIRST,
    SIZE_MAX,
    Admission,
    FairQueue,
    Progress,
    Ticket,
    Window,
    watched_pauses,
)
from penstock.gateway.flow.limit_table import Caller, LimitTable
from penstock.gateway.telemetry.metrics import FlowMetrics
from penstock.journal.api import Commit
from penstock.journal.tail import AsyncJournalTail
from penstock.model.limit import parse_limits
from penstock.process.config import GatewayConfig
from penstock.process.metrics import MetricsRegistry
from tests.memory_journal import MemoryJournal

DEADLINE_S = 60.0


def test_principals_take_turns() -> None:
    """Each principal gets one request of each round, in the order of its own requests."""
    queue = FairQueue[str]()
    for number in range(100):
        queue.push("loud", 10, f"loud {number}")
    queue.push("quiet", 10, "quiet 0")
    assert [queue.pop() for _ in range(4)] == ["loud 0", "quiet 0", "loud 1", "loud 2"]
    queue.push("late", 10, "late 0")
    assert {queue.pop() for _ in range(2)} == {"loud 3", "late 0"}
    assert len(queue) == 96


def test_large_bodies_cost_more() -> None:
    """A principal with large bodies gets fewer requests, so that its share of bytes is bounded."""
    queue = FairQueue[str]()
    for _ in range(40):
        queue.push("large", 3 * BYTES_OF_ONE, "large")
        queue.push("small", 10, "small")
    taken = [queue.pop() for _ in range(40)]
    assert taken.count("large") == 8
    while queue:
        queue.pop()
    assert not queue._queues
    assert not queue._credits


class FixedWindow(Window):
    """A window of four requests, or without a bound."""

    def __init__(self, bounded: bool) -> None:  # noqa: FBT001 -- one fact
        super().__init__(1.0 if bounded else 0.0)
        self.size = 4

    def note(self, progress: Progress, *, busy: bool) -> None:
        pass


class Gate:
    """The admission of a gateway over a journal in memory, whose epochs the test commits."""

    def __init__(
        self, data: Path, settings: GatewayConfig, limits: str = "", log_end: int = 0
    ) -> None:
        self.journal = MemoryJournal()
        self.tail = AsyncJournalTail(self.journal)
        table = LimitTable(parse_limits(limits))
        metrics = FlowMetrics(MetricsRegistry(data))
        self.admission = Admission(
            settings, table, watched_pauses(data), self.tail, metrics, Lsn(log_end)
        )
        self.admission.window = FixedWindow(self.admission.window.is_bounded)
        self.end = log_end
        self.epoch = -1
        self.appended: list[str] = []

    async def send(self, principal: str, timeout_s: float = DEADLINE_S) -> Ticket:
        caller = Caller(principal, "Item", "add")
        ticket = await self.admission.admit(caller, 10, timeout_s)
        self.appended.append(principal)
        self.admission.appended(ticket, Lsn(self.end))
        self.end += 1
        return ticket

    async def commit(self, end: int) -> None:
        """Commit the requests below a position, and wait until the requests of their turn are appended."""
        self.epoch += 1
        self.journal.commit(Commit(Epoch(self.epoch), {ONLY_PARTITION: Lsn(end)}, (), self.epoch))
        assert await self.tail.until_committed((ONLY_PARTITION, Lsn(end - 1)), DEADLINE_S)
        follower = self.admission._follower
        if end == self.end and not self.admission._queue and follower is not None:
            await follower

    def close(self) -> None:
        self.admission.close()
        self.tail.close()


def run(test: Callable[[Gate], Awaitable[None]], gate: Callable[[], Gate]) -> None:
    """Run a test in an event loop, with a gate that is closed in the end."""

    async def running() -> None:
        one = gate()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await test(one)
        finally:
            one.close()

    asyncio.run(running())


SETTINGS = GatewayConfig()


def test_quiet_principal_does_not_wait_behind_a_loud_one(tmp_path: Path) -> None:
    """Its request is appended at once, while a hundred requests of a loud principal wait; a full share waits."""

    async def test(gate: Gate) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(104):
                group.create_task(gate.send("loud"))
            await until(lambda: len(gate.admission._queue) == 100)
            assert gate.appended == ["loud"] * 4
            await gate.send("quiet")
            await gate.send("quiet")
            third = group.create_task(gate.send("quiet"))  # two of four are its share
            await until(lambda: len(gate.admission._queue) == 101)
            await gate.commit(4)
            await third
            await until(lambda: len(gate.appended) == 8)
            assert gate.appended[6:] == ["loud", "quiet"]
            while gate.end < 107:
                await gate.commit(gate.end)
                await until(lambda: gate.end == 107 or gate.admission._lag() == 4)
        await gate.commit(107)
        assert gate.admission._count == 0
        assert not gate.admission._under_way
        assert not gate.admission._shares._counts

    run(test, lambda: Gate(tmp_path, SETTINGS))


def test_principals_below_their_shares_get_one_more_window(tmp_path: Path) -> None:
    """However many principals come, they fill at most two windows; the others wait for their turns."""

    async def test(gate: Gate) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(gate.send(f"principal {number}"))
            await until(lambda: len(gate.admission._queue) == 12)
            assert len(gate.appended) == 8
            while gate.end < 20:
                await gate.commit(gate.end)
                await until(lambda: gate.end == 20 or gate.admission._lag() >= 4)
        await gate.commit(20)

    run(test, lambda: Gate(tmp_path, SETTINGS))


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks and the tail's thread run until a condition holds; the test has a deadline."""
    while not condition():
        await asyncio.sleep(0.001)


def test_request_that_loses_patience_leaves_its_place(tmp_path: Path) -> None:
    """A request whose turn does not come in time was not accepted, and holds no count."""

    async def test(gate: Gate) -> None:
        for _ in range(4):
            await gate.send("loud")
        with pytest.raises(Overloaded, match=r"no turn within 0\.01 s"):
            await gate.send("loud", timeout_s=0.01)
        assert gate.admission._count == 4
        waiting = asyncio.create_task(gate.send("loud"))
        await until(lambda: gate.admission._count == 5)
        waiting.cancel()
        await asyncio.wait([waiting])
        await gate.commit(4)
        await until(lambda: gate.admission._count == 0)
        assert (await gate.send("loud")).principal == "loud"

    run(test, lambda: Gate(tmp_path, SETTINGS, "* 5 at once"))


def test_full_gateway_admits_a_principal_below_its_share(tmp_path: Path) -> None:
    """When all places are taken, only a principal with an equal share or more is refused."""

    async def test(gate: Gate) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(14):
                group.create_task(gate.send("loud"))
            await until(lambda: len(gate.admission._queue) == 10)
            with pytest.raises(Overloaded, match="10 requests wait here"):
                await gate.send("loud")
            for _ in range(5):
                group.create_task(gate.send("quiet"))
            await until(lambda: len(gate.admission._queue) == 13)  # two are appended
            with pytest.raises(Overloaded):
                await gate.send("quiet")
            while gate.end < 19:
                await gate.commit(gate.end)
                await until(lambda: gate.end == 19 or gate.admission._lag() == 4)

    run(test, lambda: Gate(tmp_path, replace(SETTINGS, waiting_max=10)))


def test_anonymous_callers_do_not_wait(tmp_path: Path) -> None:
    """Without keys and tokens every request is appended at once, because there are no shares."""

    async def test(gate: Gate) -> None:
        for _ in range(20):
            await gate.send("")
        assert len(gate.appended) == 20

    run(test, lambda: Gate(tmp_path, SETTINGS))


def test_window_of_zero_appends_at_once(tmp_path: Path) -> None:
    """`gateway.window_ms = 0` switches the queues off."""

    async def test(gate: Gate) -> None:
        for _ in range(20):
            await gate.send("loud")
        assert len(gate.appended) == 20

    run(test, lambda: Gate(tmp_path, GatewayConfig(window_ms=0)))


def test_failed_append_gives_its_turn_away(tmp_path: Path) -> None:
    """A request that was admitted and not appended makes room for the next."""

    async def test(gate: Gate) -> None:
        tickets = [
            await gate.admission.admit(Caller("loud", "Item", "add"), 10, 1) for _ in range(4)
        ]
        waiting = asyncio.create_task(gate.send("loud"))
        await until(lambda: len(gate.admission._queue) == 1)
        gate.admission.abandon(tickets[0])
        assert (await waiting).principal == "loud"
        for ticket in tickets[1:]:
            gate.admission.abandon(ticket)
        await gate.commit(1)
        await until(lambda: gate.admission._count == 0)

    run(test, lambda: Gate(tmp_path, SETTINGS))


def test_fresh_gateway_counts_the_requests_of_others(tmp_path: Path) -> None:
    """Requests that were in the log before count from the first request on, and end with their epochs."""

    async def test(gate: Gate) -> None:
        for _ in range(4):
            await gate.send("loud")
        waiting = asyncio.create_task(gate.send("loud"))
        await until(lambda: len(gate.admission._queue) == 1)
        await gate.commit(5)
        await gate.commit(9)
        assert len(gate.appended) == 4
        await gate.commit(10)
        await waiting
        assert len(gate.appended) == 5

    run(test, lambda: Gate(tmp_path, SETTINGS, log_end=9))


def test_full_log_of_others_refuses_a_request(tmp_path: Path) -> None:
    """A gateway that starts over a long backlog refuses requests before it has appended any."""

    async def test(gate: Gate) -> None:
        with pytest.raises(Overloaded, match="9 requests wait in the log, at most 8 may"):
            await gate.send("")
        await gate.commit(1)
        await gate.send("")

    run(test, lambda: Gate(tmp_path, replace(SETTINGS, lag_max=8), log_end=9))


def test_gateway_that_stops_refuses_requests_without_a_turn(tmp_path: Path) -> None:
    """Requests that wait for their turn get `Stopping` at once; those in the log go on."""

    async def test(gate: Gate) -> None:
        admitted = await gate.admission.admit(Caller("loud", "Item", "add"), 10, DEADLINE_S)
        for _ in range(3):
            await gate.send("loud")
        waiting = [asyncio.create_task(gate.send(name)) for name in ("loud",) * 3]
        await until(lambda: len(gate.admission._queue) == 3)
        gate.admission.refuse_waiting()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Stopping] * 3
        with pytest.raises(Stopping):
            await gate.send("loud")
        assert (gate.admission._count, gate.admission._appending) == (4, 1)
        gate.admission.abandon(admitted)
        await gate.commit(3)
        await until(lambda: gate.admission._count == 0)

    run(test, lambda: Gate(tmp_path, SETTINGS))


@pytest.mark.parametrize("each_s", [0.00005, 0.001, 0.05])
@pytest.mark.parametrize("fixed_s", [0.01, 0.1])
def test_window_holds_the_requests_of_one_epoch(each_s: float, fixed_s: float) -> None:
    """For fast and slow handlers an epoch takes the given time, or a few fixed times if that is longer."""
    window = Window(0.2)
    run_epochs(window, fixed_s, each_s)
    expected_s = max(0.2, FIXED_TIMES * fixed_s)
    assert fixed_s + window.size * each_s == pytest.approx(expected_s, rel=0.25)


def run_epochs(window: Window, fixed_s: float, each_s: float, own: float = 1.0) -> None:
    """Let a driver process the window in each epoch; each tenth epoch has a single request."""
    committed, now_s = 0, 0.0
    for epoch in range(100):
        count = round(window.size / own) if epoch % 10 else 1
        committed, now_s = committed + count, now_s + fixed_s + count * each_s
        window.note(Progress(epoch, committed, round(committed * own), now_s), busy=True)


def test_window_is_divided_between_gateways() -> None:
    """A gateway has the part of the window that is its part of the requests, and at least an equal part."""
    alone, busy, quiet = Window(0.2), Window(0.2, gateways=4), Window(0.2, gateways=4)
    run_epochs(alone, 0.01, 0.001)
    run_epochs(busy, 0.01, 0.001, own=0.5)
    run_epochs(quiet, 0.01, 0.001, own=0.01)
    assert busy.size == pytest.approx(alone.size / 2, rel=0.1)
    assert quiet.size == pytest.approx(alone.size / 4, rel=0.1)


def test_epochs_of_equal_time_do_not_let_the_window_grow_without_end() -> None:
    """If the number of requests does not change the time, the window stays within its bound."""
    window = Window(0.2)
    run_epochs(window, 0.1, 0.0)
    assert window.size == SIZE_MAX


def test_idle_time_is_no_rate() -> None:
    """Epochs with pauses between them say nothing about the driver, and do not change the window."""
    window = Window(1.0)
    for second in range(10):
        window.note(Progress(second, second, second, float(second)), busy=False)
    assert window.size == SIZE_FIRST
