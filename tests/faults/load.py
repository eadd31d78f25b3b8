"""Load: requests appended to the log of a running application, some of them twice.

A workload gives the requests and their invariant. `Load` appends them in a thread, keeps
the backlog small, and remembers the position of each acknowledged request.
"""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, Self

from penstock.base.ids import Lsn, RequestId
from penstock.deployment.loading import load_app
from penstock.errors import Corrupt, JournalUnavailable, LogUnavailable
from penstock.log.api import Entry
from penstock.model.application import App
from penstock.process.data_directory import DataDirectory
from tests.checkout import TOP
from tests.differential import cascade_app
from tests.faults.driver_process import DriverProcess
from tests.faults.history import ONLY, Row, State, calls_of, values_of
from tests.waiting import wait_for

BACKLOG = 400
REFUSED = (LogUnavailable, JournalUnavailable, Corrupt)
"""A disk without power refuses; until it is mounted again, it may also read as damaged."""

Call = tuple[str, str | None, str, list[Any], dict[str, Any]]


class Workload(Protocol):
    """Requests of one application."""

    spec: str
    app: App

    def setup(self) -> Iterator[Call]:
        """Yield the requests that must come first."""

    def traffic(self, draw: random.Random) -> Iterator[Call]:
        """Yield requests without end."""

    def conserved(self, state: State, names: dict[str, list[str]], rows: list[Row]) -> None:
        """Assert that nothing was made from nothing, and nothing was lost."""


class Bank:
    """Transfers and payments between a few accounts; some are refused."""

    accounts = 40

    def __init__(self) -> None:
        self.spec = str(TOP / "examples" / "bank")
        self.app = load_app(self.spec)

    def setup(self) -> Iterator[Call]:
        for number in range(self.accounts):
            yield "Account", f"a{number}", "create", [], {"balance": 500}

    def traffic(self, draw: random.Random) -> Iterator[Call]:
        account = self.app.entities["Account"].of_text
        while True:
            one, two, three = (f"a{draw.randrange(self.accounts)}" for _ in range(3))
            amount = draw.randrange(-2, 60)
            match draw.randrange(10):
                case 0:
                    yield "Account", one, "deposit", [amount], {}
                case 1:
                    yield "Account", one, "withdraw", [amount], {}
                case 2:
                    yield "Account", one, "pay", [account(two), amount, account(three), 1], {}
                case 3:
                    yield "Account", one, "transfer", [account("nobody"), amount], {}
                case _:
                    yield "Account", one, "transfer", [account(two), amount], {}

    def entries(self, seed: int, count: int) -> list[Entry]:
        """Return the set-up and some traffic as entries of a log."""
        calls = [*self.setup(), *islice(self.traffic(random.Random(seed)), count)]
        return [
            Entry(RequestId(f"{seed}-{number}"), *self.app.request(*call), time_us=number)
            for number, call in enumerate(calls)
        ]

    def conserved(self, state: State, names: dict[str, list[str]], rows: list[Row]) -> None:
        there = sum(one["balance"] for one in values_of(state, names, "Account").values())
        brought = 0
        for _, _, method, positional, named in calls_of(rows):
            if method == "create":
                brought += named["balance"]
            elif method in ("deposit", "withdraw"):
                brought += positional[0] if method == "deposit" else -positional[0]
        assert there == brought, f"accounts hold {there}, {brought} was brought"


class Flows:
    """Requests and appends whose cascades send requests, publish atoms, and append further records."""

    accounts = cascade_app.NAMES

    def __init__(self) -> None:
        self.spec = str(TOP / "tests" / "differential" / "cascade_app.py")
        self.app = load_app(self.spec)

    def entries(self, seed: int, count: int) -> list[Entry]:
        """Return the set-up and some traffic as entries of a log."""
        draw = random.Random(seed)
        account = self.app.entities["Account"].of_text
        made = [self.app.request("Account", name, "create") for name in self.accounts]
        entries = [Entry(RequestId(f"made-{n}"), *body, n) for n, body in enumerate(made)]
        for number in range(count):
            one, two = draw.choice(self.accounts), draw.choice(self.accounts)
            hint = b""
            match draw.randrange(4):
                case 0:
                    body = self.app.append("numbers", [draw.randrange(40) for _ in range(3)])
                case 1:
                    body = self.app.append("moved", [(one, draw.randrange(9))])
                case 2:
                    body, hint = self.app.request("Account", one, "move", [account(two), 3])
                case _:
                    body, hint = self.app.request("Account", one, "pass_on", [account(two), 3])
            entries.append(Entry(RequestId(f"{seed}-{number}"), body, hint, number))
        return entries

    def conserved(self, state: State, names: dict[str, list[str]], rows: list[Row]) -> None:
        """Each reply and each atom is compared with the oracle's; the accounts are all there."""
        assert len(values_of(state, names, "Account")) == len(self.accounts)


class LargeAtoms:
    """Appends of atoms that are divided by key, and some that fail."""

    def __init__(self) -> None:
        self.spec = str(TOP / "tests" / "differential" / "large_app.py")
        self.app = load_app(self.spec)

    def entries(self, seed: int, count: int) -> list[Entry]:
        """Return appends as entries of a log."""
        draw = random.Random(seed)
        bodies = [
            self.app.append("numbers", draw.choices(range(1, 102), k=draw.randrange(4, 30)))
            for _ in range(count)
        ]
        return [Entry(RequestId(f"{seed}-{n}"), body, b"", n) for n, body in enumerate(bodies)]

    def conserved(self, state: State, names: dict[str, list[str]], rows: list[Row]) -> None:
        """Each reply and each atom is compared with the oracle's."""


class Shop:
    """Checkouts of a few orders over a few items and users; some are refused."""

    count = 40

    def __init__(self) -> None:
        self.spec = str(TOP / "benchmarks" / "harness" / "shop.py")
        self.app = load_app(self.spec)

    def setup(self) -> Iterator[Call]:
        item, user = self.app.entities["Item"].of_text, self.app.entities["User"].of_text
        draw = random.Random(7)
        for number in range(self.count):
            yield "Item", f"i{number}", "create", [], {"price": 1 + number % 5, "stock": 60}
            yield "User", f"u{number}", "create", [], {"credit": 300}
        for number in range(self.count):
            yield "Order", f"o{number}", "create", [], {"user_id": user(f"u{number}")}
            for _ in range(draw.randrange(1, 4)):
                wanted = item(f"i{draw.randrange(self.count)}")
                yield "Order", f"o{number}", "addItem", [wanted, draw.randrange(1, 4)], {}

    def traffic(self, draw: random.Random) -> Iterator[Call]:
        while True:
            number = draw.randrange(self.count)
            match draw.randrange(12):
                case 0:
                    yield "Item", f"i{number}", "add", [draw.randrange(20)], {}
                case 1:
                    yield "User", f"u{number}", "add_funds", [draw.randrange(60)], {}
                case 2:
                    yield "User", "nobody", "pay", [1], {}
                case _:
                    yield "Order", f"o{number}", "reorder", [], {}

    def conserved(self, state: State, names: dict[str, list[str]], rows: list[Row]) -> None:
        money = sum(one["credit"] for one in values_of(state, names, "User").values())
        stock = sum(one["stock"] for one in values_of(state, names, "Item").values())
        for order in values_of(state, names, "Order").values():
            money += order["total_cost"] * order["checkouts"]
            stock += sum(quantity for _, quantity in order["items"]) * order["checkouts"]
        brought, shelved = 0, 0
        for _, _, method, positional, named in calls_of(rows):
            brought += named.get("credit", 0)
            shelved += named.get("stock", 0)
            brought += positional[0] if method == "add_funds" else 0
            shelved += positional[0] if method == "add" else 0
        assert (money, stock) == (brought, shelved), (
            "money and stock, and the amounts that were added"
        )


class Load:
    """Appends a workload in a thread until it is closed; every tenth request is sent again."""

    def __init__(
        self,
        workload: Workload,
        data: Path,
        seed: int,
        *,
        most: int = 1 << 60,
        first: int = 0,
        refusable: bool = False,
    ) -> None:
        """Send the set-up and start; at most `most` requests in all, counted from `first`.

        If it is `refusable`, the thread ends when log or journal refuse.
        """
        self._refusable = refusable
        data.mkdir(parents=True, exist_ok=True)
        self._workload = workload
        self._log = DataDirectory(data).open_log()
        self._journal = DataDirectory(data).open_journal_of(workload.app.name)
        self._draw = random.Random(seed)
        self._most = most
        self._closing = threading.Event()
        self._traffic = workload.traffic(self._draw)
        self._number = first
        self._sent: list[Entry] = []
        self.failure: BaseException | None = None
        self.acknowledged: dict[RequestId, Lsn] = {}
        if first == 0:
            self._append([self._entry(call) for call in workload.setup()])
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._log.close()
        self._journal.close()

    def stop(self) -> None:
        """Send no more."""
        self._closing.set()
        self._thread.join()
        assert self.failure is None, self.failure

    def finish(self) -> None:
        """Wait until all has been sent."""
        self._thread.join()
        assert self.failure is None, self.failure

    def send(self, count: int) -> None:
        """Send further requests from this thread, when the other thread has finished."""
        self.finish()
        while count > 0:
            size = min(count, 5_000)
            self._append([self._entry(next(self._traffic)) for _ in range(size)])
            count -= size

    def send_until_refused(self) -> None:
        """Send further requests from this thread, after the other thread has ended."""
        self.stop()
        with suppress(*REFUSED):
            while True:
                self._append([self._entry(next(self._traffic)) for _ in range(20)])

    @property
    def sent(self) -> int:
        """How many requests were made, and perhaps sent."""
        return self._number

    def is_all_committed(self) -> bool:
        """Whether each record of the log has its epoch."""
        return self.committed == self._log.end()

    def is_full(self) -> bool:
        """Whether the load waits for epochs, because its backlog is long."""
        return self._log.end() - self.committed >= BACKLOG // 2

    def wait_for_more(self, driver: DriverProcess, more: int) -> None:
        """Wait until further requests are committed."""
        goal = self.committed + more

        def come() -> bool:
            assert driver.alive, driver.errors()[-3_000:]
            return self.committed >= goal

        wait_for(come, f"the commit of position {goal}")

    def send_again(self) -> None:
        """Send every request once more; each gets its first position, and the log stays."""
        end = self._log.end()
        for first in range(0, len(self._sent), 1_000):
            self._append(self._sent[first : first + 1_000])
        assert self._log.end() == end, "a retry was taken for a new request"

    @property
    def committed(self) -> Lsn:
        """How far the journal has come."""
        last = self._journal.last()
        return Lsn(0) if last is None else last.positions[ONLY]

    def _run(self) -> None:
        try:
            while not self._closing.is_set() and self._number < self._most:
                if self._number - self.committed < BACKLOG:
                    size = min(self._draw.randrange(1, 40), self._most - self._number)
                    batch = [self._entry(next(self._traffic)) for _ in range(size)]
                    self._append(batch)
                    self._append(self._draw.sample(self._sent, 1 + len(batch) // 10))
                # Hundreds of requests each second, so that many epochs are under way when something is killed; at
                # full speed, the tests would mostly process requests while they wait for a start of Java.
                self._closing.wait(0.05)
        except BaseException as error:
            if self._refusable and isinstance(error, REFUSED):
                return
            self.failure = error
            raise

    def _entry(self, call: Call) -> Entry:
        body, hint = self._workload.app.request(*call)
        name = RequestId(f"request-{self._number}")
        self._number += 1
        entry = Entry(name, body, hint, time.time_ns() // 1_000)
        self._sent.append(entry)
        return entry

    def _append(self, entries: list[Entry]) -> None:
        for entry, lsn in zip(entries, self._log.append(entries), strict=True):
            known = self.acknowledged.setdefault(entry.request_id, lsn)
            assert known == lsn, f"{entry.request_id} was at {known}, now at {lsn}"
