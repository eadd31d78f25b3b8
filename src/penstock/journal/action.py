"""Commits as Delta Lake actions: encoding and decoding one file of a `_delta_log`.

Any Delta reader understands the text. A text that is torn (cut short) or damaged (changed) is
distinguished from a whole text. `commits` reads and writes the files.

The first line is the `commitInfo`. It carries the commit in Penstock's own form, and the length and
the XXH3-128 checksum of that form and of the following lines. The Delta protocol lets an engine keep
such fields there; other readers skip them.
Source: the Delta Transaction Log Protocol (github.com/delta-io/delta/blob/master/PROTOCOL.md).
"""

from enum import StrEnum
from typing import Final

import msgspec
import pyarrow as pa

from penstock.base.ids import Epoch, LogPartition, Lsn
from penstock.files.sealed import checksum_of
from penstock.journal.api import SCHEMAS, Commit, Part

PARTITION_COLUMN: Final = "kind"

FORMAT: Final = "penstock.format"
"""The property of the table that says how its rows are stored."""

CONFIGURATION: Final = {
    FORMAT: "2",  # format 1, which had no property, stored no shapes
    "delta.appendOnly": "true",
    # Another engine that checkpoints this table must not clean the history away.
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": "interval 36500 days",
}

_TYPES: Final = {
    pa.int64(): "long",
    pa.int32(): "integer",
    pa.string(): "string",
    pa.binary(): "binary",
}


class CommitFlaw(StrEnum):
    """Why a text is not a commit."""

    TORN = "is incomplete"
    DAMAGED = "is damaged, or was not written by Penstock"


class Add(msgspec.Struct, frozen=True, rename="camel"):
    """A data file joins the table."""

    path: str
    partition_values: dict[str, str]
    size: int
    modification_time: int  # milliseconds since the Unix epoch
    data_change: bool
    stats: str


class Txn(msgspec.Struct, frozen=True, rename="camel"):
    """The newest version of an application's data in the table."""

    app_id: str
    version: int


class Protocol(msgspec.Struct, frozen=True, rename="camel"):
    """The protocol versions that readers and writers need; the lowest for append-only tables."""

    min_reader_version: int = 1
    min_writer_version: int = 2


class TableFormat(msgspec.Struct, frozen=True):
    """The encoding of data files."""

    provider: str = "parquet"
    options: dict[str, str] = {}


class MetaData(msgspec.Struct, frozen=True, rename="camel"):
    """The table's identity, schema and properties."""

    id: str
    name: str
    format: TableFormat
    schema_string: str
    partition_columns: list[str]
    configuration: dict[str, str]
    created_time: int  # milliseconds since the Unix epoch


class DeltaAction(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One line; exactly one field is set."""

    protocol: Protocol | None = None
    meta_data: MetaData | None = None
    add: Add | None = None
    txn: Txn | None = None


class _Commit(msgspec.Struct, frozen=True, omit_defaults=True):
    epoch: int
    positions: list[tuple[int, int]]
    parts: tuple[Part, ...]
    time_us: int
    atoms: dict[str, int] = {}
    partitions: int = 0
    record_checksum: str = ""
    deployment: str = ""


class _Table(msgspec.Struct, frozen=True):
    secret: str


class _CommitInfo(msgspec.Struct, frozen=True, rename="camel"):
    timestamp: int
    operation: str
    operation_parameters: dict[str, str]
    is_blind_append: bool
    engine_info: str
    penstock: str
    penstock_bytes: int
    penstock_checksum: str


class _ProtocolHead(msgspec.Struct, frozen=True, rename="camel"):
    commit_info: _CommitInfo


class CommitText(msgspec.Struct, frozen=True):
    """A whole text: the commit in Penstock's own form, and the lines of the actions."""

    penstock: str
    actions: bytes


def version_of(epoch: Epoch) -> int:
    """Return the table version of an epoch; version 0 creates the table."""
    return epoch + 1


def epoch_of_version(version: int) -> Epoch:
    """Return the epoch of a table version; -1 for the version that creates the table."""
    return Epoch(version - 1)


def commit_text(commit: Commit, app: str) -> bytes:
    """Return the text of an epoch's commit."""
    assert app, "an application has a name"
    time_ms = commit.time_us // 1000
    actions = [
        DeltaAction(add=add_of(part, commit.epoch, commit.epoch, time_ms)) for part in commit.parts
    ]
    actions.append(DeltaAction(txn=Txn(app, commit.epoch)))
    positions = sorted((int(partition), int(lsn)) for partition, lsn in commit.positions.items())
    inner = msgspec.json.encode(
        _Commit(
            commit.epoch,
            positions,
            commit.parts,
            commit.time_us,
            dict(commit.atoms),
            commit.partitions,
            commit.record_checksum,
            commit.deployment,
        )
    ).decode()
    return _frame("WRITE", time_ms, inner, actions)


def commit_of(text: CommitText) -> Commit:
    """Return the commit in a whole text."""
    inner = msgspec.json.decode(text.penstock, type=_Commit)
    positions = {LogPartition(partition): Lsn(lsn) for partition, lsn in inner.positions}
    return Commit(
        Epoch(inner.epoch),
        positions,
        inner.parts,
        inner.time_us,
        inner.atoms,
        inner.partitions,
        inner.record_checksum,
        inner.deployment,
    )


def table_text(app: str, identity: str, time_ms: int, secret: bytes) -> bytes:
    """Return the text of version 0, which creates the table.

    Args:
        time_ms: When it is created, milliseconds since the Unix epoch.
        secret: `Journal.secret`; it is stored in a field that other engines skip.
    """
    fields = {field.name: field.type for schema in SCHEMAS.values() for field in schema}
    types = {PARTITION_COLUMN: "string"} | {
        name: _TYPES[arrow_type] for name, arrow_type in fields.items()
    }
    columns = [
        {"name": name, "type": type_name, "nullable": True, "metadata": {}}
        for name, type_name in types.items()
    ]
    schema = msgspec.json.encode({"type": "struct", "fields": columns}).decode()
    table = MetaData(
        identity, app, TableFormat(), schema, [PARTITION_COLUMN], dict(CONFIGURATION), time_ms
    )
    actions = [DeltaAction(protocol=Protocol()), DeltaAction(meta_data=table)]
    inner = msgspec.json.encode(_Table(secret.hex())).decode()
    return _frame("CREATE TABLE", time_ms, inner, actions)


def secret_of(text: CommitText) -> bytes:
    """Return the secret in the whole text of version 0; empty if the journal has none."""
    if not text.penstock:
        return b""
    return bytes.fromhex(msgspec.json.decode(text.penstock, type=_Table).secret)


def table_of(text: CommitText) -> MetaData | None:
    """Return the table's metadata, from the whole text of version 0."""
    metadata = (action.meta_data for action in actions_of(text))
    return next((value for value in metadata if value is not None), None)


def actions_of(text: CommitText) -> list[DeltaAction]:
    """Return the actions of a whole text, in order."""
    return msgspec.json.Decoder(DeltaAction).decode_lines(text.actions)


def parse(data: bytes) -> CommitText | CommitFlaw:
    """Check a text against its length and checksum.

    A text without the end of its last line is whole.
    """
    # A file system that lost the last blocks at a power loss may show zeros in their place.
    line, separator, actions = data.rstrip(b"\0").partition(b"\n")
    if not separator:
        return CommitFlaw.TORN
    try:
        info = msgspec.json.decode(line, type=_ProtocolHead).commit_info
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return CommitFlaw.DAMAGED
    actions = actions.removesuffix(b"\n")
    if _checksum_of(info.penstock, actions) == info.penstock_checksum:
        return CommitText(info.penstock, actions)
    return CommitFlaw.TORN if len(actions) < info.penstock_bytes else CommitFlaw.DAMAGED


def _frame(operation: str, time_ms: int, inner: str, actions: list[DeltaAction]) -> bytes:
    lines = b"\n".join(msgspec.json.encode(action) for action in actions)
    info = _CommitInfo(
        timestamp=time_ms,
        operation=operation,
        operation_parameters={"mode": "Append", "partitionBy": f'["{PARTITION_COLUMN}"]'},
        is_blind_append=True,
        engine_info="penstock",
        penstock=inner,
        penstock_bytes=len(lines),
        penstock_checksum=_checksum_of(inner, lines),
    )
    return msgspec.json.encode(_ProtocolHead(info)) + b"\n" + lines + b"\n"


def _checksum_of(inner: str, lines: bytes) -> str:
    return checksum_of(inner.encode() + b"\n" + lines)


def add_of(part: Part, first: Epoch, last: Epoch, time_ms: int) -> Add:
    """Return the action that adds a file to the table.

    Args:
        time_ms: When it was written, milliseconds since the Unix epoch.
    """
    # The bounds let other engines skip the files of epochs that a query does not ask for.
    bounds = {"minValues": {"epoch": first}, "maxValues": {"epoch": last}}
    nulls = {"nullCount": {"epoch": 0}}
    stats = {"numRecords": part.rows} | (bounds | nulls if part.rows else {})
    return Add(
        part.path,
        {PARTITION_COLUMN: part.kind},
        part.size,
        time_ms,
        True,  # noqa: FBT003 - a field of the format
        msgspec.json.encode(stats).decode(),
    )
