"""An application with an attribute of every kind, and a journal that is written by hand."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pyarrow as pa

from penstock import App, Entity, key
from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.journal.api import CHANGES, TRANSACTIONS, Commit, Journal, PartKind
from penstock.model.request import Failure, encode_failure


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Frame:
    wood: str
    width: Decimal
    ident: UUID | None


@dataclass
class Branch:
    name: str
    below: list["Branch"]


class Painter(Entity):
    number: int = key()
    name: str = ""


class Painting(Entity):
    title: str = key()
    number: int = 0
    weight: float = 0.0
    sold: bool = False
    pixels: bytes = b""
    painted: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    day: date = date(2026, 1, 1)
    hour: time = time(12)
    dried: timedelta = timedelta()
    price: Decimal = Decimal("0")
    ident: UUID = UUID(int=0)
    size: Size = Size.SMALL
    hung: Literal["up", "down"] = "up"
    tags: list[str] = []
    colours: set[int] = set()
    offers: dict[str, int] = {}
    spot: tuple[float, int] = (0.0, 0)
    route: tuple[int, ...] = ()
    frame: Frame | None = None
    painter: Painter | None = None
    others: list[Painter] = []
    lines: list[tuple[Painter, int]] = []
    branch: Branch | None = None
    note: str | int | None = None
    anything: Any = None
    loose: dict = {}  # type: ignore[type-arg]
    rooms: dict[str | None, int] = {}
    coats: dict[tuple[int, str], timedelta] = {}


app = App("gallery", Painter, Painting)


class Written:
    """Writes epochs into a journal."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        last = journal.last()
        self.epoch = BEFORE_FIRST if last is None else last.epoch
        self.time_us = 1_700_000_000_000_000
        self.lsn = 0 if last is None else last.positions[LogPartition(0)]

    def changes(self, *rows: tuple[str, str, bytes | None]) -> Epoch:
        """Commit an epoch of changes: class name, key's text, state."""
        table = pa.Table.from_pylist(
            [
                {"epoch": self.epoch + 1, "entity": entity, "key": text, "state": state}
                for entity, text, state in rows
            ],
            CHANGES,
        )
        return self._commit(PartKind.CHANGES, table)

    def painters(self, names: Mapping[int, str | None]) -> Epoch:
        """Commit painters by number; a name of None deletes."""
        return self.changes(
            *(
                ("Painter", str(number), None if name is None else state_of("Painter", name=name))
                for number, name in names.items()
            )
        )

    def requests(
        self,
        count: int,
        failure: Failure | None = None,
        reply: bytes = b"\x07",
        body: bytes | None = None,
    ) -> Epoch:
        """Commit an epoch of so many requests."""
        usual, _ = app.request("Painter", 7, "create", (), {"name": "Ada"})
        rows = [
            {
                "epoch": self.epoch + 1,
                "partition": 0,
                "lsn": self.lsn + index,
                "request_id": f"r{self.lsn + index}",
                "time_us": 1_000_000,
                "request": usual if body is None else body,
                "error": failure.code if failure else None,
                "reply": encode_failure(failure) if failure else reply,
            }
            for index in range(count)
        ]
        self.lsn += count
        return self._commit(PartKind.TRANSACTIONS, pa.Table.from_pylist(rows, TRANSACTIONS))

    def _commit(self, kind: PartKind, table: pa.Table) -> Epoch:
        self.epoch = Epoch(self.epoch + 1)
        part = self.journal.write(kind, table, f"{kind}-0")
        positions = {LogPartition(0): Lsn(self.lsn)}
        self.journal.commit(Commit(self.epoch, positions, (part,), self.time_us))
        return self.epoch


def state_of(entity: str, **values: Any) -> bytes:
    """Encode a state; unnamed attributes have their defaults."""
    kind = app.entities[entity]
    return kind.encode({kind.key_name: None, **kind.defaults, **values})
