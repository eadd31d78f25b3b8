"""An application with streams for tests of tables, and a journal of it that is written by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock import App, Emit, Entity, PerTask, flow, key, stream
from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.journal.api import SCHEMAS, Commit, Journal, PartKind
from penstock.journal.atoms import encode_atom


class Shelf(Entity):
    name: str = key()
    books: int = 0

    def put(self, count: int) -> int:
        self.books += count
        return self.books


@dataclass
class Sale:
    shelf: Shelf
    price: int
    time: str | None = None


lines = stream("lines", str)
sales = stream("new-sales", Sale)


class Count:
    total: int = 0
    words: PerTask[int] = 0

    def on_event(self, word: str, out: Emit[tuple[str, int]]) -> None:
        self.total += 1
        self.words += 1
        out((word, self.total))


counts = flow("wordcount", lines).flat_map(str.split).key(str).task(Count).sink("counts")


class Revenue:
    sum: int = 0

    def on_event(self, sale: Sale, out: Emit[int]) -> None:
        self.sum += sale.price
        out(self.sum)


revenue = flow("revenue", sales).key(lambda sale: sale.shelf.name).task(Revenue).sink("revenue")
app = App("words", Shelf, counts, revenue)


@dataclass
class Stored:
    """An event as it is stored, of any type."""

    data: bytes


TIME_US = 1_700_000_000_000_000


class WrittenStreams:
    """Writes epochs into a journal: each with one record, which has published atoms and sent requests."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.epoch = BEFORE_FIRST
        self._atoms: dict[str, int] = {}

    def commit(
        self,
        *atoms: tuple[str, Sequence[Any]],
        states: Mapping[str, bytes | None] | None = None,
        sent: int = 0,
    ) -> Epoch:
        """Commit an epoch.

        Args:
            atoms: The stream and the events of each atom.
            states: Changed rows, by class and key: `Shelf/a`.
            sent: The number of requests that the record has sent.
        """
        self.epoch = Epoch(self.epoch + 1)
        where = {"epoch": self.epoch, "partition": 0, "lsn": self.epoch, "time_us": TIME_US}
        body, _ = app.request("Shelf", "a", "put", (1,), {})
        done = {**where, "request": body, "error": None, "reply": b"\x01"}
        root = f"r{self.epoch}"
        rows = {
            PartKind.TRANSACTIONS: [{**done, "request_id": root}],
            PartKind.SENT: [{**done, "request_id": f"{root}~~{n + 1}"} for n in range(sent)],
            PartKind.EVENTS: [
                {**where, **self._atom(name, self._encoded(name, events)), "step": step}
                for step, (name, events) in enumerate(atoms)
            ],
            PartKind.CHANGES: [
                {"epoch": self.epoch, "entity": entity, "key": text, "state": state}
                for name, state in (states or {}).items()
                for entity, _, text in [name.partition("/")]
            ],
        }
        parts = tuple(
            self.journal.write(kind, pa.Table.from_pylist(given, SCHEMAS[kind]), "0")
            for kind, given in rows.items()
            if given
        )
        positions = {LogPartition(0): Lsn(self.epoch + 1)}
        self.journal.commit(
            Commit(self.epoch, positions, parts, TIME_US + self.epoch, dict(self._atoms))
        )
        return self.epoch

    @staticmethod
    def _encoded(name: str, events: Sequence[Any]) -> list[bytes]:
        encode = app.topology.streams[name].events.encode
        return [event.data if isinstance(event, Stored) else encode(event) for event in events]

    def _atom(self, name: str, events: Sequence[bytes]) -> dict[str, Any]:
        number = self._atoms.get(name, 0)
        self._atoms[name] = number + 1
        row = {"stream": name, "atom": number, "count": len(events)}
        return row | {"events": encode_atom(events)}


def row_of(name: str, **values: Any) -> bytes:
    """Return the row of an entity or a task; attributes that are not named have their defaults."""
    kind = app.stored[name]
    return kind.encode({kind.key_name: None, **kind.defaults, **values})
