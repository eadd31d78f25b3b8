"""An application on a cluster: `penstock run` on one host, its tasks on the others, and calls over HTTP."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from penstock.base.ids import ONLY_PARTITION
from penstock.cli.running import standby
from penstock.deployment.loading import load_app
from penstock.process import presence
from penstock.process.data_directory import DataDirectory
from penstock.runtime.local.runtime import LocalRuntime
from tests.checkout import SHOP
from tests.cluster.lab import Host, Lab
from tests.differential.committed import answers_of, records_of, state_of
from tests.differential.simulation import Answer
from tests.waiting import wait_for

PORT: Final = 8600
START_S: Final = 180.0
_PAUSE_S: Final = 0.02
_JOINED: Final = "a task has joined"


class RunningApplication:
    """An application on one host, which runs until it is stopped."""

    def __init__(
        self,
        lab: Lab,
        at: int = 0,
        apps: Sequence[str] = (SHOP,),
        *,
        alone: bool = False,
        **settings: Any,
    ) -> None:
        """Start it; its tasks run on all hosts but the first.

        Args:
            at: The host with the driver, or with a standby.
            apps: The applications that run as one; else the shop.
            alone: Whether its host does everything, with the embedded log and files.
        """
        self.lab = lab
        self.at = at
        hosts = len(lab.hosts) - 1
        self.apps = apps
        if alone:
            self.process = lab.run_alone(apps, at, **{"gateway.port": PORT, **settings})
        else:
            chosen = {"hosts": hosts, "cores": hosts, "gateway.port": PORT, **settings}
            self.process = lab.run(apps, at, **chosen)
        try:
            wait_for(self._is_announced, "the application", START_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; it has printed:\n{self.output()}") from error
        self.tasks = 0

    def _is_announced(self) -> bool:
        assert self.process.poll() is None, self.output()
        return "try  " in self.output()

    def output(self) -> str:
        """Return what it has printed."""
        return self.lab.output(self.at)

    def drivers(self, role: str = "driver", **details: str) -> list[psutil.Process]:
        """Return the processes of a role on this host."""
        present = presence.find(self.lab.hosts[self.at].root, role)
        return [
            psutil.Process(each.pid) for each in present if details.items() <= each.details.items()
        ]

    def is_standby(self) -> bool:
        """Say whether its driver waits, ready to take over."""
        return bool(self.drivers(standby.ROLE, **standby.READY))

    def await_standby(self) -> None:
        """Wait until its driver waits, ready to take over."""
        wait_for(self.is_standby, "the standby", START_S)

    def await_tasks(self, more: int) -> float:
        """Wait until so many more tasks have joined, and return the seconds."""
        began = time.monotonic()
        self.tasks += more
        wait_for(lambda: self.output().count(_JOINED) >= self.tasks, "tasks", START_S)
        return time.monotonic() - began

    def await_hosts(self, hosts: Iterable[Host], since: int) -> None:
        """Wait until each of some hosts has a task that has joined after so many characters of the output.

        The number of all tasks that have joined cannot say that: a task whose connection breaks joins once more.
        """

        def have_joined() -> bool:
            joined = [line for line in self.output()[since:].splitlines() if _JOINED in line]
            return all(any(f"address={host.address} " in line for line in joined) for host in hosts)

        wait_for(have_joined, "a task of each host", START_S)

    def order(self, command: str, *options: str) -> None:
        """Give an order, and wait until it is carried out."""
        settings = self.lab.settings()[2:]  # without the master
        words = [sys.executable, "-m", "penstock", command, *self.apps, *settings]
        output = self.lab.top / f"run-of-{command}.log"
        status = self.lab.hosts[self.at].start([*words, *options], output).wait(START_S)
        assert status == 0, output.read_text()

    def call(self, work: Callable[[httpx.Client], Any]) -> Any:
        """Let a function call the application from its host."""

        def calling() -> Any:
            with httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=60) as client:
                return work(client)

        return self.lab.hosts[self.at].within(calling)

    @contextmanager
    def under_calls(self) -> Iterator["Stalls"]:
        """Create items of the shop all the time, until the block ends."""
        stalls, stopping = Stalls(), threading.Event()

        def calling(client: httpx.Client) -> None:
            while not stopping.wait(_PAUSE_S):
                began = time.monotonic()
                status = client.post("/stock/item/create/1").status_code
                stalls.add(began, time.monotonic() - began, status)

        thread = threading.Thread(target=self.call, args=(calling,))
        thread.start()
        try:
            yield stalls
        finally:
            stopping.set()
            thread.join()

    def stop(self) -> None:
        """Stop it, so that every accepted request is committed."""
        self.process.terminate()
        assert self.process.wait(60) == 0, self.output()


@dataclass
class Stalls:
    """How long calls have waited.

    Attributes:
        statuses: The status codes of all answers.
    """

    statuses: set[int] = field(default_factory=set)
    _since: float = 0.0
    _longest_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, began: float, took_s: float, status: int) -> None:
        """Add a call."""
        with self._lock:
            self.statuses.add(status)
            if began + took_s > self._since:
                self._longest_s = max(self._longest_s, took_s)

    def longest_s(self) -> float:
        """Return the longest time of a call since the last question."""
        with self._lock:
            longest, self._longest_s, self._since = self._longest_s, 0.0, time.monotonic()
        return longest


def equals_one_thread(lab: Lab, at: int = 0) -> int:
    """Compare replies and state with those of one thread, on a host, and return the number of requests."""
    data = lab.data if isinstance(lab.data, Path) else lab.hosts[at].root
    # In a process of its own, because the threads of a client of a store stay on the host where they began.
    output = lab.top / "compared.log"
    command = [sys.executable, "-m", "tests.cluster.running", str(data)]
    status = lab.hosts[at].start(command, output).wait()
    assert status == 0, output.read_text()
    return int(output.read_text())


def compared(data: Path) -> int:
    """Compare replies and state with those of one thread, and return the number of requests."""
    app = load_app(SHOP)
    directory = DataDirectory(data)
    with closing(directory.open_journal(app)) as journal, closing(directory.open_log()) as log:
        last = journal.last()
        assert last is not None
        end = last.positions[ONLY_PARTITION]
        records = records_of(journal)
        kept = list(log.read(log.start(), end))
        assert records[len(records) - len(kept) :] == kept, "the journal has the records of the log"
        serial = LocalRuntime(app, secret=journal.secret)
        replies = serial.replay(records)
        assert answers_of(journal) == [
            Answer(one.request_id, one.error, one.data) for one in replies
        ]
        assert state_of(journal) == serial.state
        return int(end)


if __name__ == "__main__":
    sys.stdout.write(str(compared(Path(sys.argv[1]))))
