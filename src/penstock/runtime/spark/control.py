"""Control epochs: each consists of one control record, which the driver executes itself.

An executor prepares the effect of its control before the commit of the epoch, so that the commit alone puts it in
force. The place of a control record in the order never changes: after a crash before the commit the same record is
the same epoch again. So an executor may prepare the same effect several times. No user code runs in the driver.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.base.ids import EntityKey, Epoch, RequestId
from penstock.engine.execute import Outcome
from penstock.errors import PenstockError, RequestError, StateUnavailable
from penstock.journal.api import APPENDS, Part, PartKind
from penstock.journal.delta import DeltaJournal
from penstock.log.api import Log, Record
from penstock.model.control import Control, decode_control, is_control
from penstock.model.reply import failure_of
from penstock.model.request import encode_failure
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.fault import Fault
from penstock.runtime.spark.messages import LogRange, TaskResult
from penstock.runtime.spark.publishing import publish
from penstock.runtime.spark.rows import RoundRows


def _nothing() -> None:
    """Change nothing after the commit."""


@dataclass(frozen=True, slots=True)
class ControlEffect:
    """The effect of a control record, prepared.

    Attributes:
        writes: The entities and system rows that it changes; None deletes.
        switch: Is called when the epoch is committed; after an error it is called again.
        partitions: The number of partitions that the commit names; 0: the present number.
        parts: Parts that tasks have written, which belong to the epoch.
        later: The records that the epoch appends to the log: their ids and bodies.
        changed: How many changes the parts have.
    """

    result: Any = None
    writes: Mapping[EntityKey, bytes | None] = field(default_factory=dict)
    switch: Callable[[], None] = _nothing
    partitions: int = 0
    parts: tuple[Part, ...] = ()
    later: tuple[tuple[RequestId, bytes], ...] = ()
    changed: int = 0


class Refused(Exception):
    """A control no longer fits: its reply is a failure with this error, and it changes nothing.

    Attributes:
        switch: Is called when the epoch is committed, as that of an effect.
    """

    def __init__(self, error: PenstockError, switch: Callable[[], None] = _nothing) -> None:
        super().__init__(str(error))
        self.error = error
        self.switch = switch


Executor = Callable[[Any, Epoch], ControlEffect]
"""Prepares the effect of a control in an epoch.

Raises:
    Refused: The control does not fit.
    PenstockError: The environment fails; the driver tries again.
"""


class ControlEpochs:
    """Executes control records for the driver of epochs.

    Attributes:
        executors: The executor of each type of control.
    """

    def __init__(self, config: Config, log: Log, executors: Mapping[type, Executor]) -> None:
        self.executors: Final = dict(executors)
        self._owed: Callable[[], None] = _nothing
        self._config = config
        self._log = log
        self._fault = Fault(config.fault)
        self._journal: DeltaJournal | None = None

    def is_control(self, ranges: list[LogRange]) -> bool:
        """Say whether the ranges of an epoch are one control record."""
        if len(ranges) != 1 or ranges[0].end - ranges[0].start != 1:
            return False
        start, end, partition = ranges[0].start, ranges[0].end, ranges[0].partition
        if not self._log.controls(start, end):
            return False
        (record,) = self._log.read(start, end, partition)
        return is_control(record.body)

    def prepare(self, epoch: Epoch, ranges: list[LogRange]) -> tuple[TaskResult, ControlEffect]:
        """Prepare the effect of the control record of an epoch, and write the parts of the epoch.

        Returns:
            The result with the parts, and the effect, whose `switch` the caller calls after the commit.
        """
        place = ranges[0]
        (record,) = self._log.read(place.start, place.end, place.partition)
        try:
            effect = self._effect(decode_control(record.body), epoch)
            outcome = Outcome(None, msgspec.msgpack.encode(effect.result), (), dict(effect.writes))
        except (Refused, RequestError) as refusal:
            if not isinstance(refusal, Refused):
                refusal = Refused(refusal)
            effect, failure = ControlEffect(switch=refusal.switch), failure_of(refusal.error)
            outcome = Outcome(failure.code, encode_failure(failure), (), {})
        return self._publish(epoch, place, record, outcome, effect), effect

    def switch(self, effect: ControlEffect | None = None) -> None:
        """Put the effect of a committed control in force, or the last one again if that has failed."""
        if effect is not None:
            self._owed = effect.switch
        self._owed()
        self._owed = _nothing

    def close(self) -> None:
        """Close the files."""
        if self._journal is not None:
            self._journal.close()

    def _effect(self, control: Control, epoch: Epoch) -> ControlEffect:
        executor = self.executors.get(type(control))
        if executor is None:
            raise RequestError(f"this driver cannot execute {type(control).__name__}")
        try:
            return executor(control, epoch)
        except OSError as error:  # user code runs in workers alone, so the record is not the cause
            raise StateUnavailable(f"cannot execute a control record: {error}") from error

    def _publish(
        self,
        epoch: Epoch,
        place: LogRange,
        record: Record,
        outcome: Outcome,
        effect: ControlEffect,
    ) -> TaskResult:
        """Write the row of the record, its changes, and its later records, as the parts of the epoch."""
        rows = RoundRows(epoch)
        rows.add(0, place.partition, record, outcome, None)
        rows.wrote(0, outcome.writes)
        if self._journal is None:
            directory = DataDirectory(self._config.data)
            self._journal = directory.open_journal_of(directory.app_name or "")
        tables = rows.tables(dict(outcome.writes))
        name = f"e{epoch}-control-{secrets.token_hex(4)}"
        result = publish(self._journal, self._fault, [tables], name, with_steps=True)
        more = list(effect.parts)
        if effect.later:
            rest = (epoch, place.partition, record.lsn), (record.time_us, 0)
            appends = pa.Table.from_pylist(
                [
                    dict(zip(APPENDS.names, (*rest[0], *later, *rest[1]), strict=True))
                    for later in effect.later
                ],
                schema=APPENDS,
            )
            more.append(self._journal.write(PartKind.APPENDS, appends, name))
        # Who has given the order waits for its answer, and no operator can repeat a record of Penstock.
        return msgspec.structs.replace(result, parts=[*result.parts, *more], failed=0)
