"""Messages between the driver and its tasks: commands, results and settings, as MessagePack.

Requests and states are never part of a message: tasks read the log and the stores themselves, and
report hashes, counts and file names.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, LogPartition, Lsn
from penstock.engine.access import AccessSet, Positions, TaskAccess
from penstock.engine.calls import Sample
from penstock.engine.execute import Limits
from penstock.engine.imported import Existing
from penstock.engine.mentions import Mentions
from penstock.journal.api import Part
from penstock.log.api import Record
from penstock.log.kafka_config import KafkaConfig
from penstock.model.control import Prepare, Prepared, Subscribe
from penstock.model.request import Failure
from penstock.model.schedule import Schedule
from penstock.model.schema_version import Versions
from penstock.model.table_scan import TableScan
from penstock.model.versions.waiting_types import WaitingTypes
from penstock.process.config import Config


class LogRange(msgspec.Struct, frozen=True, array_like=True):
    """Records [start, end) of one log partition."""

    partition: LogPartition
    start: Lsn
    end: Lsn


def request_count(ranges: Sequence[LogRange]) -> int:
    """Return the number of records in some ranges."""
    return sum(part.end - part.start for part in ranges)


def first_requests(ranges: Sequence[LogRange], count: int) -> list[LogRange]:
    """Return the ranges of an epoch's first `count` requests, in its order: (LSN, partition)."""
    order = sorted((lsn, part.partition) for part in ranges for lsn in range(part.start, part.end))
    taken = Counter(partition for _, partition in order[:count])
    return [
        LogRange(part.partition, part.start, Lsn(part.start + taken[part.partition]))
        for part in ranges
    ]


class RoundOutput(msgspec.Struct, frozen=True, array_like=True):
    """Files with the rows of one task of one round, and which of these rows are void."""

    path: str
    superseded: bytes  # positions, uint32


class RunTransactions(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Run transactions of an epoch."""

    epoch: Epoch
    round: int
    task: int
    ranges: list[LogRange]
    positions: bytes | None  # uint32; None: the whole epoch
    tracked: bool  # report the access set
    keep: bool  # write the rows as a round output
    publish: bool  # write parts: the valid rows of `outputs` and of this run
    outputs: list[RoundOutput]
    output_bytes_max: int  # bytes of replies and changes after which the run stops early
    partitions: int  # the number of stores
    decided: dict[int, bytes] = {}  # position: the failure to record instead of running it
    atoms: dict[str, int] = {}  # the number of atoms of each stream before the epoch
    with_steps: bool = False  # run the workflow steps of each record after its requests
    relay: str = ""  # write the records that may have workflow steps here (`step_relay`)
    records: list[tuple[LogPartition, Record]] | None = (
        None  # those of `positions`; None: the task reads the log
    )


class RunShare(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Run a share of the keys of the divided tasks, for the first appends of an epoch (`large_atoms`)."""

    epoch: Epoch
    outputs: list[RoundOutput]  # of all tasks
    share: int
    shares: int
    output_bytes_max: int
    partitions: int  # the number of stores


class RunSteps(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Run the workflow steps of an epoch, whose requests have run, or run at the same time."""

    epoch: Epoch
    outputs: list[RoundOutput]  # of all tasks
    atoms: dict[str, int]  # the number of atoms of each stream before the epoch
    output_bytes_max: int
    partitions: int  # the number of stores
    relay: str = ""  # take the records from here, and not from `outputs` (`step_relay`)
    shares: list[str] = []  # the files of `RunShare`


class ApplyEpoch(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Bring the stores of some partitions to an epoch."""

    owned: list[int]
    epoch: Epoch
    partitions: int  # the number of stores
    former: int = 0  # the number of stores that are copied into empty stores; 0: no store is copied


class RunMaintenance(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Run maintenance (`retention.maintenance`) in a child process."""

    work: bytes
    nice: int


class LoadCode(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Load the code of a deployment, which may take effect after an epoch."""

    spec: str
    epoch: Epoch
    dropped: tuple[str, ...] = ()  # the stored classes that it may lack


class BuildIndexes(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Write the rows of the indexes of loaded code, where they differ from those of the state, as a part of an epoch."""

    spec: str
    epoch: Epoch
    dropped: tuple[str, ...]
    former: dict[str, str]  # the definitions of the indexes that the state has
    partitions: int  # the number of stores
    prepared: Prepared | None = None  # the build whose rows are in the state


class PrepareRows(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Write the rows of a step of a build as a part of an epoch."""

    epoch: Epoch
    step: Prepare
    partitions: int  # the number of stores


class ImportRows(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Write the changes that some staged rows of an import make, as parts of an epoch."""

    epoch: Epoch
    entity: str  # the stored name of the class
    tag: int  # of the shape of the rows
    pieces: list[str]  # the names of their files
    existing: Existing
    partitions: int  # the number of stores


class LeaveIndexes(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Return the changes of indexes that the erasure of an entity makes; its indexes are those of the code in force, and builds."""

    epoch: Epoch
    entity: EntityKey
    partitions: int  # the number of stores


class ImportedPieces(msgspec.Struct, frozen=True, array_like=True):
    """The effect of some pieces of an import; see `engine.imported`.

    Attributes:
        refusal: Why none of the rows can be imported.
        scans: The first piece of each scan by which published tables take the new entities.
    """

    created: int = 0
    replaced: int = 0
    unchanged: int = 0
    refused: int = 0
    named: tuple[str, ...] = ()
    refusal: str = ""
    scans: list[TableScan] = []


class LoadedClasses(msgspec.Struct, frozen=True, array_like=True):
    """The classes of loaded code.

    Attributes:
        schemas: The versions of each stored class, with those of this code.
        tags: The tag of the shape of each class of this code.
        late: The workflows that begin with earlier atoms of their sources.
        scans: The first piece of each scan that published tables may need.
        schedules: The times of functions.
        captures: The names of the streams of changes.
        indexes: The definitions of the indexes of this code.
    """

    schemas: dict[str, Versions]
    tags: dict[str, int]
    late: list[Subscribe]
    waiting: WaitingTypes
    views: tuple[str, ...]
    effects: tuple[str, ...]
    scans: list[TableScan]
    schedules: list[Schedule] = []
    captures: tuple[str, ...] = ()
    indexes: dict[str, str] = {}


class Seat(msgspec.Struct, frozen=True, array_like=True):
    """Where a resident task on another host finds its driver, and what it needs there (`warden`).

    Attributes:
        address: The address and the port of the driver.
        credentials: The certificate and the key of the run, as PEM.
        host_data: The root of the host; see `files.layout`.
        store: The object store with the data of the application; empty if they are in a directory that all hosts see.
        driver_data: The root of the driver's host, below which the driver has unpacked the code.
        run: The name of the run.
        stuck_s: As the setting.
        answers: Whether the host gives rows to others (`holders`).
    """

    address: tuple[str, int]
    credentials: bytes
    host_data: str
    driver_data: str
    run: str
    stuck_s: float
    store: str = ""
    answers: bool = False


class Reside(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Stay, and run the commands that come from a socket (`resident_task`).

    Attributes:
        socket: The path of the socket; on another host the name of the job, which the driver expects.
        seat: None on the driver's host.
    """

    socket: str
    seat: Seat | None = None


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first message of a task on another host.

    Attributes:
        job: As `Reside.socket`.
        python: The minor version of its Python, such as `3.11`.
        penstock: The version of Penstock.
        host: The name of the root of its host, which the tasks of one host share.
        pid: The process that runs commands.
        start: Its start, which tells it from a later process with the same id.
        deaths: Notes of workers that have died on this host during this run, and whose death nobody has told.
        port: The port at which the host gives rows to others; 0 if it does not (`holders`).
    """

    job: str
    python: str
    penstock: str
    host: str
    pid: int
    start: str
    deaths: dict[str, str] = {}
    port: int = 0


Address = tuple[str, int]
"""An address, and a port."""


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """A host that holds a part of the state.

    Attributes:
        host: Its name, as in `Hello`.
        addresses: The addresses at which it gives rows to others; empty while it has no task.
    """

    host: str
    addresses: list[Address]


class Peers(msgspec.Struct, frozen=True, array_like=True):
    """The hosts that hold the state together.

    Attributes:
        copies: The number of hosts of each partition.
        next: The names of those that will hold it when they have built their partitions; empty if nothing changes.
    """

    copies: int
    hosts: list[Peer]
    next: list[str] = []


WorkerCommand = (
    RunTransactions
    | RunShare
    | RunSteps
    | ApplyEpoch
    | RunMaintenance
    | LoadCode
    | BuildIndexes
    | PrepareRows
    | ImportRows
    | LeaveIndexes
)
TaskCommand = WorkerCommand | Reside


class TaskResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of a task.

    Attributes:
        position, entity, wrote: The columns of the access set: uint32, uint64, bool.
        escaped: Positions that escaped: uint32.
        mentioned: The mentions in written rows: uint64, pairs.
        output: Path of the round output; empty without one.
        relay: Path of the file of the relay that was written, or read to its end; empty without one.
        failed: Requests in the parts that no caller waits for, and whose failure no application has declared.
        atoms: The number of atoms in the parts, by stream.
        events: The number of their events, by stream.
        flows: Whether workflow steps of the epoch are still to run.
        largest: The most events of an atom of its requests.
        roots: The methods and functions that the transactions in the parts called, and how often.
        samples: Calls between members that this run observed.
        lines: The encoded lines that the handlers of the transactions in the parts have written with `logging`
            (`process.held_lines`).
        phases_ms: Milliseconds of each phase.
        stopped_at: The first position that did not run, because the output was too large.
        maintenance: The encoded report of maintenance.
        loaded: The encoded `LoadedClasses` of `LoadCode`, `ImportedPieces` of `ImportRows`, or the rows of
            `LeaveIndexes`; of `PrepareRows` and `BuildIndexes`, whether further rows are to be removed, and the number of the
            written ones.
        died: Whether the process that ran the command has died on another host; then `failure` says so, too (`warden`).
        deaths: What its notes say about its death, by file.
    """

    position: bytes = b""
    entity: bytes = b""
    wrote: bytes = b""
    escaped: bytes = b""
    mentioned: bytes = b""
    output: str = ""
    relay: str = ""
    parts: list[Part] = []
    aborts: int = 0
    failed: int = 0
    atoms: dict[str, int] = {}
    events: dict[str, int] = {}
    flows: bool = False
    largest: int = 0
    roots: dict[str, int] = {}
    samples: dict[str, Sample] = {}
    phases_ms: dict[str, float] = {}
    stopped_at: int | None = None
    maintenance: bytes = b""
    loaded: bytes = b""
    failure: Failure | None = None
    died: bool = False
    deaths: dict[str, str] = {}
    lines: list[bytes] = []

    def mentions(self) -> Mentions:
        """Return the mentions, for the memory of accesses."""
        return np.frombuffer(self.mentioned, np.uint64).reshape(-1, 2)

    def access(self) -> TaskAccess:
        """Return the access set and the escapes, for the epoch's state machine."""
        return TaskAccess(
            AccessSet(
                np.frombuffer(self.position, np.uint32),
                np.frombuffer(self.entity, np.uint64),
                np.frombuffer(self.wrote, np.bool_),
            ),
            np.frombuffer(self.escaped, np.uint32),
        )


Code = tuple[str, Epoch]
"""An application, and the first epoch of its deployment: code that is deployed again must be loaded again."""


class WorkerSettings(msgspec.Struct, frozen=True, array_like=True):
    """The settings that every task of a runtime needs; only a deployment changes them."""

    spec: str
    data: str
    scratch: str  # of this run of the driver alone
    limits: Limits
    record_bytes_max: int
    retention_s: int
    fault: str
    log_format: str = "text"
    log_level: str = "info"
    since: Epoch = BEFORE_FIRST
    log: str = ""
    kafka: KafkaConfig = KafkaConfig()

    @property
    def code(self) -> Code:
        """The code of the tasks."""
        return self.spec, self.since


def worker_settings(
    spec: str, config: Config, scratch: Path, since: Epoch = BEFORE_FIRST
) -> WorkerSettings:
    """Return the settings of the workers of a runtime.

    Args:
        spec: The application, as for `load_app`.
        since: The first epoch of the deployment of the application.
    """
    return WorkerSettings(
        spec,
        str(config.data.absolute()),
        str(scratch),
        config.limits,
        config.record_bytes_max,
        config.retention_s,
        config.fault,
        config.log_format,
        config.log_level,
        since,
        config.log,
        config.kafka,
    )


class TaskMessage(msgspec.Struct, frozen=True, array_like=True):
    """A command with the settings for it.

    Attributes:
        settings: Encoded `WorkerSettings`, which a worker decodes only when they change.
        deaths: The notes of deaths that the driver has of this epoch, by file, for a task on another host.
        peers: The hosts that hold the state together; None if each has all of it.
    """

    settings: bytes
    command: TaskCommand
    deaths: dict[str, str] = {}
    peers: Peers | None = None


def first_not_run(results: Sequence[TaskResult]) -> int | None:
    """Return the first position that did not run; None if all ran."""
    return min(
        (result.stopped_at for result in results if result.stopped_at is not None), default=None
    )


def pack_positions(positions: Positions) -> bytes:
    """Return positions as the bytes of uint32."""
    return positions.astype(np.uint32, copy=False).tobytes()


_ENCODER: Final = msgspec.msgpack.Encoder()
encode = _ENCODER.encode
decode_command = msgspec.msgpack.Decoder(TaskCommand).decode
decode_message = msgspec.msgpack.Decoder(TaskMessage).decode
decode_rows = msgspec.msgpack.Decoder(dict[EntityKey, bytes | None]).decode
decode_loaded = msgspec.msgpack.Decoder(LoadedClasses).decode
decode_imported = msgspec.msgpack.Decoder(ImportedPieces).decode
decode_hello = msgspec.msgpack.Decoder(Hello).decode
decode_result = msgspec.msgpack.Decoder(TaskResult).decode
decode_settings = msgspec.msgpack.Decoder(WorkerSettings).decode
