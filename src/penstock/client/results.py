"""What SQL answers: rows as plain values, or an Arrow table, and of which epoch they are."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.base.ids import Epoch
from penstock.client.operation import HttpResponse
from penstock.errors import ConfigError, OperationalError

if TYPE_CHECKING:
    import pyarrow as pa

EPOCH_KEY: Final = b"penstock.epoch"
"""Under which the metadata of an Arrow table's schema names its epoch, in decimal digits."""


class Column(msgspec.Struct, frozen=True):
    """A column of an answer; `type` is the view's name for it."""

    name: str
    type: str


class Rows(msgspec.Struct, frozen=True):
    """Rows of an answer, in order, all of one epoch.

    Attributes:
        epoch: The committed epoch that was read.
        columns: Names and types.
        rows: One tuple for each, of plain JSON values.
    """

    epoch: Epoch
    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def dicts(self) -> list[dict[str, Any]]:
        """Return each row by the names of its columns."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


class Change(msgspec.Struct, frozen=True):
    """What an epoch made of an entity.

    Attributes:
        epoch: The epoch.
        time: When it was committed.
        key: The entity's key.
        kind: `create`, `update` or `delete`.
        before: Its attributes, the key among them, as plain JSON values; None where it was not.
        after: The same, after the epoch.
    """

    epoch: Epoch
    time: datetime
    key: Any
    kind: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


_decode_changes: Final = msgspec.json.Decoder(Change).decode_lines


@dataclass(frozen=True, slots=True)
class Query:
    """The body of `POST /sql`.

    Attributes:
        query: One SELECT.
        parameters: For its `?` by position, or its `$name` by name.
        rows_max: Refuse an answer with more rows; None leaves it to the server.
        as_of: The epoch or the instant that is asked for; None: the present.
    """

    query: str
    parameters: Any
    rows_max: int | None = None
    as_of: int | datetime | None = None

    def body(self, min_epoch: Epoch) -> dict[str, Any]:
        """Return it as JSON has it; the answer shall have seen an epoch, where that is 0 or more."""
        told: dict[str, Any] = {"query": self.query, "parameters": self.parameters}
        if self.rows_max is not None:
            told["rows_max"] = self.rows_max
        if min_epoch >= 0:
            told["min_epoch"] = min_epoch
        match self.as_of:
            case None:
                pass
            case datetime():
                told["as_of"] = {"timestamp": self.as_of.isoformat()}
            case _:
                told["as_of"] = {"epoch": self.as_of}
        return told


def rows_of(answer: HttpResponse) -> Rows:
    """Return the rows of an answer.

    Raises:
        OperationalError: It is none.
    """
    try:
        return msgspec.json.decode(answer.content, type=Rows)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OperationalError(f"the answer to a query cannot be read: {error}") from error


def changes_of(answer: HttpResponse) -> list[Change]:
    """Return the changes of an answer.

    Raises:
        OperationalError: It is none.
    """
    try:
        return _decode_changes(answer.content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OperationalError(f"the feed of changes cannot be read: {error}") from error


def object_of(answer: HttpResponse) -> dict[str, Any]:
    """Return the object that an answer is.

    Raises:
        OperationalError: It is none.
    """
    try:
        return msgspec.json.decode(answer.content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise OperationalError(f"the answer cannot be read: {error}") from error


def require_arrow() -> None:
    """Make sure that tables can be read, before anything is asked.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    try:
        import pyarrow.ipc  # noqa: F401, PLC0415 -- 100 MB that only tables need
    except ImportError as error:
        raise ConfigError(
            "sql() answers an Arrow table and needs pyarrow, which is not installed; "
            "rows() answers plain values and needs nothing"
        ) from error


def table_of(answer: HttpResponse, epoch: Epoch) -> "pa.Table":
    """Return the Arrow table of an answer; its schema's metadata names the epoch.

    Raises:
        OperationalError: It is none.
    """
    import pyarrow as pa  # noqa: PLC0415 -- see `require_arrow`
    import pyarrow.ipc  # noqa: PLC0415

    try:
        table = pyarrow.ipc.open_stream(answer.content).read_all()
    except pa.ArrowInvalid as error:
        raise OperationalError(f"the answer to a query cannot be read: {error}") from error
    named = {**(table.schema.metadata or {}), EPOCH_KEY: str(epoch).encode()}
    return table.replace_schema_metadata(named)
