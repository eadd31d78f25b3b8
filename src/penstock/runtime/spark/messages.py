"""What the driver tells its tasks and what they answer: plain data, MessagePack on the wire.

Requests and states never travel here; tasks read the log and the stores themselves. What comes
back is hashes, counts and file names.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from penstock.base.ids import Epoch, LogPartition, Lsn
from penstock.engine.access import AccessSet, Positions, TaskAccess
from penstock.engine.calls import Sample
from penstock.engine.execute import Limits
from penstock.journal.api import Part


class LogRange(msgspec.Struct, frozen=True, array_like=True):
    """Records [start, end) of one log partition."""

    partition: LogPartition
    start: Lsn
    end: Lsn


def request_count(ranges: Sequence[LogRange]) -> int:
    """Return how many records some ranges hold."""
    return sum(one.end - one.start for one in ranges)


def first_requests(ranges: Sequence[LogRange], count: int) -> list[LogRange]:
    """Return the ranges of an epoch's first `count` requests, in its order: (LSN, partition)."""
    order = sorted((lsn, one.partition) for one in ranges for lsn in range(one.start, one.end))
    taken = Counter(partition for _, partition in order[:count])
    return [
        LogRange(one.partition, one.start, Lsn(one.start + taken[one.partition])) for one in ranges
    ]


class RoundOutput(msgspec.Struct, frozen=True, array_like=True):
    """A file with the rows that one run of one task produced, before it is known which stand."""

    path: str
    superseded: bytes  # positions (uint32) whose rows are void


class RunTransactions(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Run some transactions of an epoch, and write what stands if `publish` is set."""

    epoch: Epoch
    round: int
    task: int
    ranges: list[LogRange]
    positions: bytes | None  # uint32; None: all of the epoch
    tracked: bool  # report touches
    keep: bool  # leave a draft
    publish: bool  # write part files: the drafts' rows that stand, and this run's
    drafts: list[RoundOutput]
    output_bytes_max: int  # replies and changes after which the run is cut short
    decided: dict[int, bytes] = {}  # position: the failure that is recorded; it does not run


class ApplyEpoch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Bring the store of one partition to an epoch."""

    partition: int
    epoch: Epoch


class RunMaintenance(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Look after history (`history.upkeep`), in a process beside the worker."""

    work: bytes
    nice: int


TaskCommand = RunTransactions | ApplyEpoch | RunMaintenance


class TaskResult(msgspec.Struct, frozen=True, array_like=True):
    """What a task did; `touched`, `entities` and `wrote` are the columns of `AccessSet`.

    `samples` is what this run saw of who calls whom; `roots` is what the transactions in the
    parts called, and how often.
    """

    touched: bytes = b""
    entities: bytes = b""
    wrote: bytes = b""
    escaped: bytes = b""
    draft: str = ""
    parts: list[Part] = []
    aborts: int = 0
    roots: dict[str, int] = {}
    samples: dict[str, Sample] = {}
    phases_ms: dict[str, float] = {}
    cut: int | None = None  # the first of its positions that did not run
    upkeep: bytes = b""  # what was done, as `history.upkeep` says it
    failure: tuple[str, str, str] | None = None  # code, class and message of one of our errors

    def access(self) -> TaskAccess:
        """Return the access set and the escapes, for the epoch's state machine."""
        return TaskAccess(
            AccessSet(
                np.frombuffer(self.touched, np.uint32),
                np.frombuffer(self.entities, np.uint64),
                np.frombuffer(self.wrote, np.bool_),
            ),
            np.frombuffer(self.escaped, np.uint32),
        )


class WorkerSettings(msgspec.Struct, frozen=True, array_like=True):
    """What every task of a runtime needs to know; the same for all its life."""

    spec: str
    data: str
    scratch: str  # of this run of the driver alone
    partitions: int
    limits: Limits
    record_bytes_max: int
    retention_s: int
    fault: str
    log_format: str = "text"
    log_level: str = "info"


def first_not_run(reports: Sequence[TaskResult]) -> int | None:
    """Return the first position that did not run; None where all did."""
    return min((one.cut for one in reports if one.cut is not None), default=None)


def pack_positions(positions: Positions) -> bytes:
    """Return positions as bytes."""
    return positions.astype(np.uint32, copy=False).tobytes()


_ENCODER: Final = msgspec.msgpack.Encoder()
encode = _ENCODER.encode
decode_command = msgspec.msgpack.Decoder(RunTransactions | ApplyEpoch | RunMaintenance).decode
decode_result = msgspec.msgpack.Decoder(TaskResult).decode
decode_settings = msgspec.msgpack.Decoder(WorkerSettings).decode
