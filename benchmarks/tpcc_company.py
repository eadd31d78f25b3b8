"""The company of `examples/tpcc` behind a gateway: its population, its terminals, and the check of its conditions."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import httpx
import uvloop

from benchmarks.harness.http import HOST
from benchmarks.harness.latencies import Timed, percentiles_ms, read, send_and_wait
from benchmarks.harness.load import Answer, Load, Request
from examples.tpcc.consistency import CONDITIONS, VIOLATIONS
from examples.tpcc.nurand import Scale
from examples.tpcc.population import Work, population
from examples.tpcc.terminal import Kind, Terminal, Transaction
from penstock.client.encoding import request_of
from penstock.errors import OperationalError
from penstock.model.call import call_of

LOADERS: Final = 16
READS: Final = ("order-status", "stock-level")
UNUSED_ITEM: Final = "unused-item"
SQL_WAIT_S: Final = 60.0
SQL_TIMEOUT_S: Final = 120.0
_OK: Final = 200
_UNAVAILABLE: Final = 503


@dataclass(frozen=True, slots=True)
class Done:
    """A transaction of a terminal with its times."""

    kind: Kind
    rolls_back: bool
    timed: Timed

    @property
    def is_right(self) -> bool:
        """Whether it succeeded, or was rolled back as it should be."""
        if self.rolls_back:
            return UNUSED_ITEM in self.timed.error
        return not self.timed.error


@dataclass(frozen=True, slots=True)
class Checked:
    """The conditions after one epoch.

    Attributes:
        epoch: The epoch.
        violations: How many places violate each condition, by its number; conditions that hold are left out.
        took_s: The seconds of the query.
        during: Whether terminals worked when the query began.
    """

    epoch: int
    violations: dict[int, int]
    took_s: float
    during: bool


def rates_of(done: Sequence[Done], seconds: float) -> dict[str, Any]:
    """Return the rates, the latencies and the failures of transactions; those that ended later than `seconds` do not count."""
    began = min((one.timed.sent_s for one in done), default=0.0)
    right = [
        one
        for one in done
        if one.is_right and one.timed.sent_s + one.timed.committed_s <= began + seconds
    ]
    orders = [one for one in right if one.kind == "new-order" and not one.rolls_back]
    wrong = [one for one in done if not one.is_right]
    return {
        "new_orders_per_minute": round(len(orders) / seconds * 60, 1),
        "transactions_per_s": round(len(right) / seconds, 1),
        "latency_ms": percentiles_ms([one.timed.committed_s for one in right]),
        "failures": len(wrong),
        "failure_examples": sorted({one.timed.error for one in wrong})[:3],
    }


@dataclass(slots=True)
class Company:
    """The application at a port.

    Attributes:
        port: The port of the gateway.
        warehouses: The number of warehouses.
        scale: The numbers of items and customers.
        seed: The seed of population and terminals.
        place: How writes are asked for: `send` takes two requests and measures both latencies, `call` takes one.
        done: The transactions of all terminals.
        checked: The checks of the conditions.
    """

    port: int
    warehouses: int
    scale: Scale
    seed: int = 1
    place: Literal["send", "call"] = "send"
    done: list[Done] = field(default_factory=list)
    checked: list[Checked] = field(default_factory=list)
    _terminals: list[Iterator[Transaction]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)  # of request ids

    def populate(self) -> int:
        """Create the database; return the number of requests.

        Raises:
            OperationalError: A request was refused.
        """
        works = population(self.warehouses, self.scale, self.seed)
        requests = (
            request_for(work, f"load-{number}", "call") for number, work in enumerate(works)
        )
        answers = Load(HOST, self.port, LOADERS).run(requests)
        for answer in answers:
            _expect(answer)
        return len(answers)

    def run(self, terminals: int, seconds: float, *, waits: bool, check_s: float = 0.0) -> None:
        """Let terminals work, and check the conditions meanwhile. A second run goes on with further transactions.

        Args:
            terminals: The number of terminals, each with one transaction at a time.
            seconds: How long they begin transactions; those under way are completed.
            waits: Whether users type and think as long as the specification says.
            check_s: The pause between two checks; 0 checks nothing. A check that has begun is completed.
        """
        uvloop.run(self._run(terminals, seconds, waits=waits, check_s=check_s))

    def check(self) -> Checked:
        """Check the conditions after the newest epoch."""
        return uvloop.run(self._check(during=False))

    async def _run(self, terminals: int, seconds: float, *, waits: bool, check_s: float) -> None:
        deadline = time.perf_counter() + seconds
        for number in range(len(self._terminals), terminals):
            terminal = Terminal(number, self.warehouses, self.scale, self.seed)
            self._terminals.append(iter(terminal))
        stopping = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            if check_s:
                group.create_task(self._keep_checking(check_s, stopping))
            await asyncio.gather(
                *(self._work(one, deadline, waits=waits) for one in self._terminals[:terminals])
            )
            stopping.set()

    async def _work(
        self, transactions: Iterator[Transaction], deadline: float, *, waits: bool
    ) -> None:
        """Perform the transactions of one terminal until the deadline."""
        load = Load(HOST, self.port, 1)
        with load.connection() as connection:
            for one in transactions:
                if waits:
                    await asyncio.sleep(min(one.keying_s, deadline - time.perf_counter()))
                if time.perf_counter() >= deadline:
                    return
                request_id = "" if one.kind in READS else f"tpcc-{next(self._numbers)}"
                if request_id and self.place == "send":
                    request = request_for(one.work, request_id, "send")
                    timed = await send_and_wait(load, connection, request)
                else:
                    timed = await read(load, connection, request_for(one.work, request_id, "call"))
                self.done.append(Done(one.kind, one.rolls_back, timed))
                if waits:
                    await asyncio.sleep(max(0, min(one.think_s, deadline - time.perf_counter())))

    async def _keep_checking(self, pause_s: float, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), pause_s)
                return
            await self._check(during=True)

    async def _check(self, *, during: bool) -> Checked:
        """Ask for the newest epoch, and count the violations after it."""
        epoch = (await self._ask({"query": "SELECT 1"}))["epoch"]
        began = time.perf_counter()
        rows = (await self._ask({"query": VIOLATIONS, "as_of": {"epoch": epoch}}))["rows"]
        if len(rows) != len(CONDITIONS):
            raise OperationalError(f"{len(rows)} conditions were counted, not {len(CONDITIONS)}")
        found = {number: count for number, count in rows if count}
        checked = Checked(epoch, found, time.perf_counter() - began, during)
        self.checked.append(checked)
        return checked

    async def _ask(self, query: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of the SQL view; a view that still starts is asked again."""
        deadline = time.perf_counter() + SQL_WAIT_S
        url = f"http://{HOST}:{self.port}"
        async with httpx.AsyncClient(base_url=url, timeout=SQL_TIMEOUT_S) as client:
            while True:
                response = await client.post("/sql", json=query)
                if response.status_code != _UNAVAILABLE or time.perf_counter() > deadline:
                    break
                await asyncio.sleep(0.2)
        if response.status_code != _OK:
            raise OperationalError(f"SQL: {response.status_code} {response.text[:500]}")
        found: dict[str, Any] = response.json()
        return found


def request_for(work: Work, request_id: str, place: str) -> Request:
    """Return the HTTP request for a call.

    Args:
        work: The call.
        request_id: Its request id; empty for a read.
        place: `call` or `send`.
    """
    call = call_of(work.function, work.arguments, {})
    request = request_of(None, call, request_id or "-", place)
    return Request("POST", request.path, request.content, request_id)


def _expect(answer: Answer) -> None:
    if answer.status != _OK:
        raise OperationalError(f"{answer.request.path}: {answer.status} {answer.body[:500]!r}")
