"""`HostReporter`: it looks up how this host stands, and says so to all others every ten seconds; see `process.hosts`."""

import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.cause import cause_text
from penstock.base.ids import BEFORE_FIRST
from penstock.errors import PenstockError
from penstock.files.heartbeat import Heartbeat
from penstock.files.layout import HOSTS
from penstock.files.roots import shared_root
from penstock.files.shared_root import SharedRoot
from penstock.journal.api import told_commit
from penstock.journal.delta import DeltaJournal
from penstock.process.config import Config, PriceConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.hosts import HostReport
from penstock.process.metrics import STORE_REQUESTS, sums_of
from penstock.process.presence import host_id, running_processes

_FORGOTTEN_S: Final = 86_400.0
_DAY_S: Final = 86_400

WRITES: Final = frozenset({"put", "list"})
READS: Final = frozenset({"get", "head"})


@dataclass(slots=True)
class _Spending:
    """What the processes of a host ask of the store."""

    data: Path
    prices: PriceConfig
    _last: tuple[float, float, float] = field(default=(0.0, 0.0, 0.0))

    def rates(self) -> tuple[float, float, float]:
        """Return writes and reads of a second since the last call, and the cents of a day like this."""
        counts = sums_of(self.data, STORE_REQUESTS, "kind")
        puts = sum(count for verb, count in counts.items() if verb in WRITES)
        gets = sum(count for verb, count in counts.items() if verb in READS)
        before, self._last = self._last, (time.monotonic(), puts, gets)
        over_s = self._last[0] - before[0]
        if not before[0] or over_s <= 0 or puts < before[1] or gets < before[2]:
            return 0.0, 0.0, float(self.prices.host_day_cents)
        put_s, get_s = (puts - before[1]) / over_s, (gets - before[2]) / over_s
        million_s = _DAY_S / 1e6
        cents = put_s * million_s * self.prices.million_puts_cents
        cents += get_s * million_s * self.prices.million_gets_cents
        return round(put_s, 2), round(get_s, 2), round(cents + self.prices.host_day_cents, 2)


class HostReporter:
    """Says how this host stands; one for each supervisor.

    All that it says is looked up by the thread of its heartbeat.
    """

    def __init__(
        self,
        settings: Config,
        url: str,
        trouble: Callable[[], str],
        view_epoch: Callable[[Path], int | None],
    ) -> None:
        """Say nothing yet.

        Args:
            trouble: Returns what does not work, for people; empty if all does.
            view_epoch: Returns the epoch of the SQL view in a data directory; None if none runs.
        """
        self._settings = settings
        self._data = settings.data
        self._trouble = trouble
        self._view_epoch = view_epoch
        self._spending = _Spending(settings.data, settings.prices)
        self._root = shared_root(settings.data)
        self._log_lag: Callable[[], int] | None = None
        self._journal: DeltaJournal | None = None
        self._first = HostReport(
            name=socket.gethostname(),
            url=url,
            penstock=version("penstock"),
            python="{}.{}".format(*sys.version_info),
        )

    def report(self) -> HostReport:
        """Return how this host stands now; what cannot be looked up is its trouble."""
        troubles = [self._trouble()]
        report = self._first
        looks: list[Callable[[HostReport], Mapping[str, object]]] = [
            self._disk,
            self._processes,
            self._clock,
            self._copies,
            self._messages,
            self._requests,
        ]
        for look in looks:
            try:
                report = msgspec.structs.replace(report, **look(report))
            except (PenstockError, OSError) as error:
                troubles.append(cause_text(error))
        return msgspec.structs.replace(report, trouble="; ".join(filter(None, troubles)))

    def _disk(self, _: HostReport) -> Mapping[str, object]:
        disk = shutil.disk_usage(self._data)
        return {"disk_free": disk.free, "disk_bytes": disk.total}

    def _processes(self, _: HostReport) -> Mapping[str, object]:
        roles = [process.role for process in running_processes(self._data)]
        return {"processes": {role: roles.count(role) for role in dict.fromkeys(roles)}}

    def _clock(self, _: HostReport) -> Mapping[str, object]:
        return {"clock_s": round(clock_ahead_s(self._root), 1)}

    def _copies(self, _: HostReport) -> Mapping[str, object]:
        directory = DataDirectory(self._data)
        # It stays open, and so costs one read for each report; opening it costs six, and two lists.
        if self._journal is None and (app := directory.app_name) is not None:
            self._journal = directory.open_journal_of(app)
        journal = self._journal
        if journal is None or (last := told_commit(journal, self._root)) is None:
            return {}
        held = directory.held_partitions(journal, last.partitions)
        if held:
            reached = min(held.values())
        else:
            with closing(directory.open_stores(journal)) as stores:
                stores.follow(last)
                reached = stores.reached()
        return {
            "epoch": last.epoch,
            "state_epoch": None if reached == BEFORE_FIRST else reached,
            "held": len(held),
            "partitions": last.partitions,
            "view_epoch": self._view_epoch(self._data),
        }

    def _messages(self, _: HostReport) -> Mapping[str, object]:
        if self._log_lag is None:
            self._log_lag = DataDirectory(self._data).log_lag(self._settings)
        return {} if self._log_lag is None else {"log_lag": self._log_lag()}

    def _requests(self, _: HostReport) -> Mapping[str, object]:
        puts, gets, cents = self._spending.rates()
        return {"puts_per_s": puts, "gets_per_s": gets, "cents_per_day": cents}


def clock_ahead_s(root: SharedRoot) -> float:
    """Return how far the clock of this host is ahead of that of the store, in seconds; about, because a question takes time."""
    slow_s, fast_s = root.now_s()
    own_s = time.time_ns() / 1e9
    return fast_s - slow_s if abs(own_s - fast_s) <= abs(own_s - slow_s) else slow_s - fast_s


@contextmanager
def reporting(reporter: HostReporter, settings: Config) -> Iterator[None]:
    """Say how this host stands until the block ends; forget hosts that have been silent for a day."""
    root = shared_root(settings.data)
    with suppress(OSError):
        for name in list(root.names(HOSTS)):
            if root.age_s(f"{HOSTS}/{name}") > _FORGOTTEN_S:
                root.remove(f"{HOSTS}/{name}")
    heart = Heartbeat(root, f"{HOSTS}/{host_id(settings.data)}", reporter.report)
    heart.begin(may_be_late=True)
    try:
        yield
    finally:
        heart.end()
