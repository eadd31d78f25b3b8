"""A runtime without Spark: one thread, real log, real journal, the executor of the local runtime.

It has the methods that the command line needs (`start`, `stop`, `wait_until`, `on_epoch`, reports),
so that commands are tested with everything real but the JVM.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.base.ids import EntityKey, Epoch, LogPartition, Lsn, entity_key, split_entity_key
from penstock.deployment.deployment_start import deploy
from penstock.deployment.loading import load_app
from penstock.engine.calls import CallSampler, estimate, members_of
from penstock.engine.execute import Executor, Outcome
from penstock.journal.api import CHANGES, TRANSACTIONS, Commit, Part, PartKind
from penstock.log.api import Record
from penstock.log.pump import Pump
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.epoch_report import EpochReport

ONLY = LogPartition(0)


class SerialDriver:
    """Processes the log of a data directory in epochs, in a thread.

    `break_state` may damage an epoch's changes before they are journalled. With `deploys`, it records its
    code as the driver does.
    """

    def __init__(
        self,
        spec: str,
        config: Config,
        *,
        break_state: Callable[[EntityKey, bytes | None], bytes | None] | None = None,
        deploys: bool = False,
    ) -> None:
        self.app = load_app(spec)
        self.config = config
        self.on_epoch: list[Callable[[EpochReport], None]] = []
        config.data.mkdir(parents=True, exist_ok=True)
        directory = DataDirectory(config.data)
        # In Kafka, it is this process that reads the topic for its host.
        self.log = directory.open_log(config if directory.has_log_in_kafka(config) else None)
        self.journal = DataDirectory(config.data).open_journal(self.app)
        if deploys:
            self.journal.deploy()
            deploy(config.data, spec, self.app, self.journal)
        self._break_state = break_state or (lambda key, data: data)
        self._state: dict[EntityKey, bytes] = {}
        self._position = Lsn(0)
        self._epoch = Epoch(-1)
        self._members = members_of(self.app)
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._damage: list[Exception] = []
        self._pump = Pump(self.log, self._damage.append)
        self._thread = threading.Thread(target=self._run, name="serial driver", daemon=True)
        for commit in self.journal.commits(Epoch(-1)):
            self._fold(commit)

    def start(self) -> None:
        self.journal.deploy()
        self._thread.start()
        self._pump.start()

    def abandon(self) -> None:
        self._stopping.set()

    def stop(self) -> None:
        self._stopping.set()
        self._pump.stop()
        self._thread.join()
        self.log.close()
        self.journal.close()

    def wait_until(self, lsn: Lsn, timeout_ms: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._position >= lsn, timeout_ms / 1_000)

    def check(self) -> None:
        """Raise the error that stopped the pump: nothing else makes it give up."""
        if self._damage:
            raise self._damage[0]

    def _fold(self, commit: Commit) -> None:
        """Take over the epochs that an earlier driver has committed."""
        for part in commit.parts_of(PartKind.CHANGES):
            for row in self.journal.read(part).to_pylist():
                key = entity_key(row["entity"], row["key"])
                if row["state"] is None:
                    self._state.pop(key, None)
                else:
                    self._state[key] = row["state"]
        self._epoch, self._position = commit.epoch, commit.positions[ONLY]

    def _run(self) -> None:
        while not self._stopping.is_set():
            end = self.log.wait(self._position, 20)
            if end > self._position:
                self._process(min(end, Lsn(self._position + self.config.epoch_records_max)))

    def _process(self, end: Lsn) -> None:
        began = time.perf_counter()
        executor = Executor(self.app, self._state.get, self.config.limits)
        executor.secret = self.journal.secret
        executor.delivers = True  # appends are answered; it has no workflows that take their events
        executor.sampler = CallSampler(self._members)
        roots = Counter[str]()
        records = self.log.read(self._position, Lsn(end))
        self._epoch = Epoch(self._epoch + 1)
        outcomes: list[tuple[Record, Outcome]] = []
        changes: dict[EntityKey, bytes | None] = {}
        for record in records:
            outcome = executor.run(record.request_id, record.body, record.time_us)
            outcomes.append((record, outcome))
            roots.update([executor.root] if executor.root else [])
            for key, data in outcome.writes.items():
                changes[key] = self._break_state(key, data)
                if data is None:
                    self._state.pop(key, None)
                else:
                    self._state[key] = data
        executed = time.perf_counter()
        self._commit(end, outcomes, changes)
        phases = {"round1": executed - began, "commit": time.perf_counter() - executed}
        aborts = sum(outcome.error is not None for _, outcome in outcomes)
        milliseconds = {name: seconds * 1_000 for name, seconds in phases.items()}
        calls = estimate([roots], [executor.sampler.samples()])
        report = EpochReport(
            epoch=self._epoch,
            time_us=time.time_ns() // 1_000,
            records=len(records),
            aborts=aborts,
            rounds=1,
            reran=0,
            tasks=1,
            phases_ms=milliseconds,
            calls=calls,
        )
        for listener in self.on_epoch:
            listener(report)
        with self._changed:
            self._position = Lsn(end)
            self._changed.notify_all()

    def _commit(
        self,
        end: Lsn,
        outcomes: list[tuple[Record, Outcome]],
        changes: dict[EntityKey, bytes | None],
    ) -> None:
        transactions = [
            {
                "epoch": self._epoch,
                "partition": 0,
                "lsn": record.lsn,
                "request_id": record.request_id,
                "time_us": record.time_us,
                "request": record.body,
                "error": outcome.error,
                "reply": outcome.reply,
            }
            for record, outcome in outcomes
        ]
        changed = []
        for full, data in changes.items():
            entity, key = split_entity_key(full)
            changed.append({"epoch": self._epoch, "entity": entity, "key": key, "state": data})
        parts = (
            self._part(PartKind.TRANSACTIONS, transactions, TRANSACTIONS),
            self._part(PartKind.CHANGES, changed, CHANGES),
        )
        self.journal.commit(Commit(self._epoch, {ONLY: end}, parts, time.time_ns() // 1_000))

    def _part(self, kind: PartKind, rows: list[dict[str, Any]], schema: pa.Schema) -> Part:
        return self.journal.write(kind, pa.Table.from_pylist(rows, schema), f"{kind}-0")
