"""The relay: one task runs the requests of an epoch, and another one runs their workflow steps at the same time.

The path of a record from one task to the other:

1. The driver creates the mark of the relay, and starts both tasks.
2. The first task appends frames of records to a file. Each attempt at the task creates a file of its own.
3. The second task takes the frames of the newest file, in order. It waits for more, and the last frame is empty.
4. When the first task has ended, the driver removes the mark. A reader whose file has no end then gives up.
5. The driver compares the files that both name. If they differ, the second task runs again with the file of the first.

Both tasks open the file again for each frame, because a handler may close the files of its process.
"""

import itertools
import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec

from penstock.base.encoder import Encoder
from penstock.base.ids import LogPartition
from penstock.engine.execute import Outcome
from penstock.engine.streams.cascade import Cascade, PublishedAtom, cascade_of
from penstock.log.api import Record
from penstock.model.request import Cut, Failure, decode_failure

RECORDS: Final = 100
"""The most records in a frame."""

_PAUSE_S: Final = 0.002
_LENGTH: Final = struct.Struct("<I")
_END: Final = _LENGTH.pack(0)


class RelayLost(Exception):
    """The writer of a relay has ended, and the relay has no end."""


class ProcessedRecord(NamedTuple):
    """A record whose requests have run, and whose workflow steps are next.

    Attributes:
        failure: The failure of its request; None if it took effect.
        cascade: Its cascade, with the atoms of its requests.
    """

    position: int
    partition: LogPartition
    record: Record
    failure: Failure | None
    reply: bytes
    cascade: Cascade


class _RelayedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A `ProcessedRecord` in a frame."""

    position: int
    partition: LogPartition
    record: Record
    is_failed: bool
    reply: bytes
    atoms: list[PublishedAtom]
    cut: Cut


_encode: Final = Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[_RelayedRecord]).decode


class Mark:
    """The mark of a relay: it exists while the first task runs. The driver creates and removes it."""

    def __init__(self, relay: str) -> None:
        self._path = Path(f"{relay}-open")

    def __enter__(self) -> Self:
        self._path.touch()
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)

    @property
    def exists(self) -> bool:
        """Whether the first task may still write."""
        return self._path.exists()


class RelayWriter:
    """Writes the relay of one attempt at a task. It is a context manager: without an error, it ends the relay."""

    def __init__(self, relay: str) -> None:
        self._records: list[_RelayedRecord] = []
        for attempt in itertools.count():
            self.path = Path(f"{relay}-{attempt:06}")
            with suppress(FileExistsError):
                self.path.touch(exist_ok=False)
                break

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is None:
            self._write()
            self._append(_END)

    def add(
        self,
        position: int,
        partition: LogPartition,
        record: Record,
        outcome: Outcome,
        cascade: Cascade,
    ) -> None:
        """Add a record, and take over the atoms of its cascade.

        Args:
            cascade: Its cascade, after its requests.
        """
        atoms, cascade.published = cascade.published, []
        is_failed = outcome.error is not None
        self._records.append(
            _RelayedRecord(
                position, partition, record, is_failed, outcome.reply, atoms, cascade.cut
            )
        )
        if len(self._records) >= RECORDS:
            self._write()

    def _write(self) -> None:
        if self._records:
            frame = _encode(self._records)
            self._records = []
            self._append(_LENGTH.pack(len(frame)) + frame)

    def _append(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)


class RelayReader:
    """Reads a relay while it grows.

    Attributes:
        path: The file that it reads, once it has found one.
    """

    def __init__(self, relay: str) -> None:
        self._relay = Path(relay)  # it need not exist yet
        self._mark = Mark(relay)
        self._offset = 0
        self.path: Path | None = None
        self.waited_s = 0.0

    def records(self) -> Iterator[ProcessedRecord]:
        """Yield the records, each as soon as it is there.

        Raises:
            RelayLost: The writer has ended, and the relay has no end.
        """
        while frame := self._frame():
            for relayed in _decode(frame):
                yield _processed(relayed)

    def _frame(self) -> bytes:
        """Wait for the next frame; the last one is empty."""
        while True:
            may_grow = self._mark.exists  # before the look, so that no frame is missed
            frame = self._next()
            if frame is not None:
                return frame
            if not may_grow:
                raise RelayLost
            time.sleep(_PAUSE_S)
            self.waited_s += _PAUSE_S

    def _next(self) -> bytes | None:
        """Return the next frame; None if it is not complete."""
        self.path = self.path or self._newest()
        if self.path is None:
            return None
        file = os.open(self.path, os.O_RDONLY)  # a file object would cost as much as ten records
        try:
            head = os.pread(file, _LENGTH.size, self._offset)
            if len(head) < _LENGTH.size:
                return None
            (length,) = _LENGTH.unpack(head)
            frame = os.pread(file, length, self._offset + _LENGTH.size)
        finally:
            os.close(file)
        if len(frame) < length:
            return None
        self._offset += _LENGTH.size + length
        return frame

    def _newest(self) -> Path | None:
        if self._relay.exists():
            return self._relay
        return max(self._relay.parent.glob(f"{self._relay.name}-[0-9]*"), default=None)


def _processed(relayed: _RelayedRecord) -> ProcessedRecord:
    record = relayed.record
    cascade = cascade_of(record.request_id, record.body, record.time_us)
    cascade.published, cascade.cut = relayed.atoms, relayed.cut
    failure = decode_failure(relayed.reply) if relayed.is_failed else None
    return ProcessedRecord(
        relayed.position, relayed.partition, record, failure, relayed.reply, cascade
    )
