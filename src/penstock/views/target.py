"""`Target`: the port of a store that shows tables of an application, and the values that go through it.

A target holds the tables of one view and the position of the view: the epoch up to which it has taken the journal. A
change of the tables and the new position are written in one transaction of the target, which fails if the position is
not the one that the writer has read. So of two writers that do not know each other, one wins, and no row differs.

`testing.target_suite` says of an implementation whether it keeps the contract.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias

import msgspec

from penstock.base.ids import Epoch

KEY: Final = "_key"
PLACE: Final = "_place"
ATOM: Final = "_atom"
UNSHOWN: Final = "_unshown"
"""The last column of each table: for each value that the target cannot hold, the reason."""

FAILED: Final = "_failed"
"""The table of each view that lists the rows which are absent because their row function failed."""


class Kind(StrEnum):
    """The kinds of columns, and the Python values of each; every value may be None.

    TEXT: str. INTEGER: int of 64 bits with a sign. FLOAT: float, also infinite or NaN. DECIMAL: Decimal, also infinite
    or NaN. BYTES: bytes. TIMESTAMP: an aware datetime in UTC. DURATION: timedelta. JSON: JSON text. The others: the
    Python type of that name.
    """

    TEXT = "text"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DECIMAL = "decimal"
    BYTES = "bytes"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    UUID = "uuid"
    JSON = "json"


class ColumnShape(msgspec.Struct, frozen=True, array_like=True):
    """A column of a table."""

    name: str
    kind: Kind


class TableShape(msgspec.Struct, frozen=True, array_like=True):
    """A table of a view.

    Its first columns are the row key: the owner of the row (the text of an entity's key, or the number of an atom), and
    its place if an owner may have several rows. The last column is `UNSHOWN`, of the kind JSON.

    Attributes:
        key_width: The number of columns of the row key, 1 or 2.
        columns: All columns, in order.
    """

    name: str
    key_width: int
    columns: tuple[ColumnShape, ...]

    @classmethod
    def of(cls, name: str, key_width: int, kinds: Mapping[str, Kind]) -> Self:
        """Return a table with columns of these kinds, and `UNSHOWN` behind them."""
        columns = (ColumnShape(*each) for each in (*kinds.items(), (UNSHOWN, Kind.JSON)))
        return cls(name, key_width, tuple(columns))

    @property
    def owner(self) -> str:
        """The name of the column with the owner of a row."""
        return self.columns[0].name

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the columns of the row key."""
        return tuple(column.name for column in self.columns[: self.key_width])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(column.name for column in self.columns)


Owner: TypeAlias = str | int
Row: TypeAlias = tuple[Any, ...]
"""The values of all columns in order; that of `UNSHOWN` is a dictionary from columns to reasons, or None."""


class Position(msgspec.Struct, frozen=True):
    """The place of a view in the log.

    Attributes:
        lineage: The same for a journal and all its copies.
        journal: The identity of the journal.
        epoch: The last epoch that the tables show.
        checksum: The checksum of the commit of this epoch.
        definition: The fingerprint of the tables' definition.
    """

    lineage: str
    journal: str
    epoch: Epoch
    checksum: str
    definition: str


class Standing(NamedTuple):
    """The position and the failed rows of a target.

    Attributes:
        position: The position; None if the target has never been filled.
        failed: The number of rows in the table `FAILED`.
    """

    position: Position | None
    failed: int = 0


class TableChange(NamedTuple):
    """A change of one table.

    Attributes:
        shape: The table.
        touched: The owners whose rows may have changed, each once.
        rows: All rows that these owners have after the change; the rows that are not here are removed.
    """

    shape: TableShape
    touched: Sequence[Owner]
    rows: Sequence[Row]


class TargetProblem(Exception):
    """A target cannot be read or written now.

    Attributes:
        reason: What has happened, in a sentence without secrets.
        remedy: What the operator does; empty if waiting helps.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason}; {remedy}" if remedy else reason)
        self.reason = reason
        self.remedy = remedy


class Refused(TargetProblem):
    """The view cannot be shown as it is declared; trying again does not help."""


class QueryFailed(TargetProblem):
    """The SQL view has worked on the queries of tables, and has no answer."""


class Overtaken(TargetProblem):
    """The position is not the expected one: another process has written to the target."""

    def __init__(self) -> None:
        super().__init__("another process has written to this view")


class Target(Protocol):
    """The tables of one view in a store; for one thread.

    Each method raises `TargetProblem`; then nothing has changed, or, if the store did not answer, everything has, which
    `position` tells.
    """

    def position(self) -> Standing:
        """Return the position, and the number of failed rows."""

    def load(
        self,
        before: Position | None,
        after: Position,
        shapes: Sequence[TableShape],
        rows: Iterable[TableChange],
    ) -> None:
        """Replace all tables of the view, and its position, in one transaction.

        Readers see the former rows until then. Tables that stay keep their grants, indexes and dependent views; a table
        or column that the view has no more is dropped, unless something depends on it.

        Args:
            before: The position that the target must have.
            shapes: The tables, with those that have no row.
            rows: The rows in parts, as changes whose `touched` is empty; no row key comes twice.

        Raises:
            Overtaken: The target has another position.
        """

    def apply(self, before: Position, after: Position, changes: Sequence[TableChange]) -> None:
        """Change some tables, and the position, in one transaction.

        Args:
            before: The position that the target must have.
            changes: At most one for each table.

        Raises:
            Overtaken: The target has another position.
        """

    def purge(self) -> None:
        """Destroy the rest of rows that were removed: in free pages, dead versions and former files.

        The tables and the position stay.

        Raises:
            TargetProblem: A reader keeps them, say; a later call tries it again.
        """

    def drop(self, before: Position) -> None:
        """Remove all tables that the view has made, and its position, in one transaction; tables of users stay.

        Args:
            before: The position that the target must have.

        Raises:
            Overtaken: The target has another position.
            TargetProblem: Something of a user's depends on a table; the reason has its name.
        """

    def close(self) -> None:
        """Release the store."""
