"""A real driver, hostile requests among honest ones, and the check of every answer.

The check reads the journal and knows nothing of the engine: `Bank` gives the answers to honest
requests, and a thread of its own runs the harmless acts, so that the bytes can be compared.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from penstock.base.ids import BEFORE_FIRST, EntityKey, RequestId
from penstock.engine.execute import Limits
from penstock.errors import LimitExceeded
from penstock.log.api import Record
from penstock.model.request import decode_failure
from penstock.process.data_directory import DataDirectory
from penstock.runtime.local.runtime import LocalRuntime
from tests.faults.driver_process import DriverProcess
from tests.faults.history import EpochRows, read_epochs, values_of
from tests.hostile.handlers import app
from tests.hostile.programs import Bank, Call, Danger, Sent, entries

SPEC: Final = "tests.hostile.handlers:app"
LIMITS: Final = {"time_ms": 1_500, "wall_ms": 4_000, "memory_bytes": 256 << 20}
STUCK_S: Final = 3
ORACLE_MS: Final = 60_000
CODE_MAX: Final = 64
DECIDED: Final = frozenset({LimitExceeded.code, "internal"})
"""Codes of outcomes that a clock, a memory limit or a dead process decided."""


class Defect(Exception):
    """An error of the runtime; names the requests that were being processed."""


class Rig:
    """A data directory, its driver, and the right answer to each request.

    Attributes:
        outcomes: The code of each request, None if it took effect.
    """

    def __init__(self, data: Path, driver: DriverProcess) -> None:
        self._driver = driver
        self._log = DataDirectory(data).open_log()
        self._journal = DataDirectory(data).open_journal_of(app.name)
        self._epoch = BEFORE_FIRST
        self._sent: dict[RequestId, Call] = {}
        self._bank = Bank()
        # Outcomes that a clock decided are not compared, so the oracle may take its time.
        self._oracle = LocalRuntime(
            app, limits=Limits(**{**LIMITS, "time_ms": ORACLE_MS, "wall_ms": ORACLE_MS})
        )
        self._state: dict[EntityKey, bytes] = {}
        self._names = {name: list(kind.attributes) for name, kind in app.entities.items()}
        self.outcomes: dict[RequestId, str | None] = {}

    def run(self, calls: Sequence[Call], deadline_s: float = 120.0) -> float:
        """Append calls at once, and return the seconds until all are answered as they must be.

        Raises:
            Defect: The driver gave up, an answer did not come in time, or one is wrong.
        """
        start = len(self._sent)
        sent: Sent = [(RequestId(f"r{start + n}"), call) for n, call in enumerate(calls)]
        self._sent |= sent
        began = time.monotonic()
        self._log.append(entries(app, sent))
        while len(self.outcomes) < len(self._sent):
            if not self._driver.alive:
                raise Defect(f"the driver gave up at {self._open()}:\n{self._tail()}")
            if time.monotonic() - began > deadline_s:
                raise Defect(f"no answer within {deadline_s} s to {self._open()}:\n{self._tail()}")
            time.sleep(0.02)
            self._read()
        return time.monotonic() - began

    def outcome(self, call: Call) -> str | None:
        """Return the outcome of the newest of some equal calls: its code, None if it took effect."""
        name = next(name for name, one in reversed(self._sent.items()) if one is call)
        return self.outcomes[name]

    def close(self) -> None:
        self._log.close()
        self._journal.close()

    def _open(self) -> str:
        """Write the acts that have no answer yet."""
        left = [call for name, call in self._sent.items() if name not in self.outcomes]
        return "; ".join(str(call) for call in left if call.method == "act") or "honest requests"

    def _tail(self) -> str:
        return self._driver.errors()[-2_000:]

    def _read(self) -> None:
        """Check the epochs that are new in the journal."""
        for epoch in read_epochs(self._journal, self._epoch):
            self._epoch = epoch.epoch
            complaints = list(self._complaints(epoch))
            if complaints:
                raise Defect("\n".join(complaints))

    def _complaints(self, epoch: EpochRows) -> Iterator[str]:
        for row in epoch.rows:
            call = self._sent[row.record.request_id]
            self.outcomes[row.record.request_id] = row.answer[0]
            wrong = self._bank.complaint(call, row.answer) or self._unreadable(row.answer)
            wrong = wrong or self._differing(call, row.record, row.answer)
            if wrong:
                yield f"{row.record.request_id} {call}: {wrong}"
        for key, data in epoch.changes:
            if data is None:
                self._state.pop(key, None)
            else:
                self._state[key] = data
        accounts = values_of(self._state, self._names, "Account")
        balances = {int(name[1:]): one["balance"] for name, one in accounts.items()}
        if balances != self._bank.balances:
            yield f"epoch {epoch.epoch}: balances are {balances}, not {self._bank.balances}"
        if self._state != self._oracle.state:
            keys = {*self._state, *self._oracle.state}
            different = [k for k in keys if self._state.get(k) != self._oracle.state.get(k)]
            yield f"epoch {epoch.epoch}: one thread has another state of {sorted(different)[:5]}"

    @staticmethod
    def _unreadable(answer: tuple[str | None, bytes]) -> str | None:
        code, data = answer
        if code is None:
            return None
        failure = decode_failure(data)
        if failure.code != code or not code.isascii() or len(code) > CODE_MAX:
            return f"the code is {code!r}, in the reply {failure.code!r}"
        return None

    def _differing(
        self, call: Call, record: Record, answer: tuple[str | None, bytes]
    ) -> str | None:
        """Let one thread take the request too; say how its answer differs."""
        if answer[0] in DECIDED:
            return None
        if call.danger is not Danger.NONE or call.method == "survey":
            if answer[0] is None and call.method == "act":
                body, _ = call.harmless.encode(app)
                self._oracle.replay([Record(record.lsn, record.request_id, body, record.time_us)])
            return None
        (reply,) = self._oracle.replay([record])
        if (reply.error, reply.data) == answer:
            return None
        return f"answered {answer!r:.300}, one thread {(reply.error, reply.data)!r:.300}"


@contextmanager
def started(data: Path, **settings: Any) -> Iterator[Rig]:
    """Give a rig whose driver runs; end it in any case."""
    chosen = {"limits": LIMITS, "stuck_s": STUCK_S, "small_epoch": 20, **settings}
    with DriverProcess(SPEC, data, **chosen) as driver:
        if not driver.has("started"):
            raise Defect(f"the driver did not start:\n{driver.errors()[-2_000:]}")
        rig = Rig(data, driver)
        try:
            yield rig
            driver.stop()
        finally:
            rig.close()
