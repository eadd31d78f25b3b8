"""A journal that a test writes, with the rows that each table of the view must have after each epoch.

The rows are computed from the test's own dictionaries, and not from the journal: no code of Penstock has a part in it.
"""

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pyarrow as pa

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.journal.api import CHANGES, EVENTS, Commit, Journal, Part, PartKind
from penstock.journal.atoms import encode_atom
from penstock.views.search_index import SearchIndex
from tests.views.change_log import Told, folded, told_in
from tests.views.orders_app import HOSTILE, app

TIME_US = 1_700_000_000_000_000
Rows = dict[str, list[tuple[Any, ...]]]


class Book:
    """Writes epochs into a journal, and remembers what each of them shows."""

    def __init__(self, journal: Journal, seed: int = 1) -> None:
        self.journal = journal
        self.random = random.Random(seed)
        self.epoch = BEFORE_FIRST
        self.credits: dict[str, Decimal] = {}
        self.orders: dict[int, dict[str, Any]] = {}
        self.shipped: list[tuple[Any, ...]] = []
        self.atoms = 0
        self.expected: dict[int, Rows] = {-1: self.rows()}

    def write(self, changes: int = 5) -> Epoch:
        """Commit an epoch of random changes."""
        touched: set[tuple[str, Any]] = set()
        atoms: list[list[tuple[int, Decimal]]] = []
        for _ in range(changes):
            touched.add(self._change(atoms))
        return self.commit(touched, atoms)

    def _change(self, atoms: list[list[tuple[int, Decimal]]]) -> tuple[str, Any]:
        draw = self.random
        name = f"c{draw.randrange(20)}"
        number = draw.randrange(60)
        kind = draw.randrange(7)
        if kind == 0 or name not in self.credits:
            self.credits[name] = Decimal(draw.randrange(-(10**6), 10**6)) / 100
            return "Customer", name
        if kind == 1:
            self.credits.pop(name)
            return "Customer", name
        if kind == 2:
            self.orders.pop(number, None)
        elif kind == 3 and number in self.orders:
            self.orders[number]["shipped"] = True
            atoms.append([(number, self.orders[number]["total"])] * draw.randrange(1, 3))
        else:
            order = self.orders.setdefault(number, self._order(name))
            order["lines"][draw.choice(["tea", "milk", "rice"])] = number
        return "Order", number

    def _order(self, customer: str) -> dict[str, Any]:
        draw = self.random
        return {
            "customer": customer,
            "total": Decimal(draw.randrange(10**9)) / 1_000,
            "shipped": False,
            "lines": {},
            "weight": draw.random(),
        }

    def order(self, number: int, *items: str, customer: str = "ann") -> Epoch:
        """Commit an epoch with one order of these items."""
        self.orders[number] = {**self._order(customer), "lines": dict.fromkeys(items, 1)}
        return self.commit({("Order", number)})

    def commit(
        self,
        touched: set[tuple[str, Any]],
        atoms: list[list[tuple[int, Decimal]]] | None = None,
    ) -> Epoch:
        """Commit the present states of some entities, and atoms."""
        self.epoch = Epoch(self.epoch + 1)
        parts = [self._changes(touched)] if touched else []
        if atoms:
            parts.append(self._events(atoms))
        positions = {LogPartition(0): Lsn(self.epoch + 1)}
        counts = {"shipments": self.atoms}
        self.journal.commit(
            Commit(self.epoch, positions, tuple(parts), TIME_US + self.epoch, counts)
        )
        self.expected[self.epoch] = self.rows()
        return self.epoch

    def _changes(self, touched: set[tuple[str, Any]]) -> Part:
        rows = [
            {
                "epoch": self.epoch,
                "entity": entity,
                "key": str(key),
                "state": self._state(entity, key),
            }
            for entity, key in sorted(touched, key=str)
        ]
        return self.journal.write(
            PartKind.CHANGES, pa.Table.from_pylist(rows, CHANGES), "changes-0"
        )

    def _state(self, entity: str, key: Any) -> bytes | None:
        entity_type = app.entities[entity]
        if entity == "Customer":
            if key not in self.credits:
                return None
            return entity_type.encode({"name": key, "credit": self.credits[key], "since": None})
        if key not in self.orders:
            return None
        order = self.orders[key]
        values = {"number": key, "token": None, "patience": timedelta(seconds=key), **order}
        values["customer"] = app.entities["Customer"].of_text(order["customer"])
        return entity_type.encode(values)

    def _events(self, atoms: list[list[tuple[int, Decimal]]]) -> Part:
        rows = []
        for events in atoms:
            encoded = [
                msgspec.msgpack.encode({"number": number, "total": str(total)})
                for number, total in events
            ]
            rows.append(
                {
                    "epoch": self.epoch,
                    "stream": "shipments",
                    "atom": self.atoms,
                    "partition": 0,
                    "lsn": 0,
                    "time_us": TIME_US,
                    "count": len(events),
                    "events": encode_atom(encoded),
                }
            )
            self.shipped += [
                (self.atoms, place, self.epoch, number, str(total))
                for place, (number, total) in enumerate(events)
            ]
            self.atoms += 1
        return self.journal.write(PartKind.EVENTS, pa.Table.from_pylist(rows, EVENTS), "events-0")

    def rows(self) -> Rows:
        """Return the rows that each table must have now, in the order of their keys."""
        orders = sorted(self.orders.items(), key=lambda entry: str(entry[0]))
        open_lines = []
        failed = []
        for number, order in orders:
            items = {} if order["shipped"] else order["lines"]
            if HOSTILE.keys() & items.keys() or "endless" in items:
                failed.append((f"open_lines/{number}", "open_lines", str(number)))
                continue
            stored = sorted(items.items(), key=lambda item: (len(item[0]), item[0]))
            for place, (item, count) in enumerate(stored):
                open_lines.append((str(number), place, number, order["customer"], item, count))
        return {
            "Customer": [(name, name, str(self.credits[name])) for name in sorted(self.credits)],
            "Order": [
                (
                    str(number),
                    number,
                    order["customer"],
                    str(order["total"]),
                    order["shipped"],
                    dict(order["lines"]),
                    order["weight"],
                )
                for number, order in orders
            ],
            "open_lines": open_lines,
            "shipments": list(self.shipped),
            "_failed": failed,
        }


COLUMNS = {
    "Customer": ("_key", "name", "credit"),
    "Order": ("_key", "number", "customer", "total", "shipped", "lines", "weight"),
    "open_lines": ("_key", "_place", "number", "customer", "item", "count"),
    "shipments": ("_atom", "_place", "_epoch", "number", "total"),
    "_failed": ("_key", "table", "key"),
}
_PAGE = 1_000


def shown_in(path: Path) -> tuple[int, Rows]:
    """Return the epoch and the rows of an SQLite view, read in one transaction, as `Book.rows` has them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        return _shown_by_sql(lambda query: connection.execute(query).fetchall())


def shown_in_postgres(address: str, schema: str) -> tuple[int, Rows]:
    """Return the same of a view in PostgreSQL."""
    with psycopg.connect(address) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute(f'SET search_path TO "{schema}"'.encode())
        return _shown_by_sql(lambda query: connection.execute(query.encode()).fetchall())


def shown_in_index(folder: Path) -> tuple[int, Rows]:
    """Return the same of a search index, read in one commit."""
    with closing(SearchIndex(folder).reading()) as reading:
        assert reading.position is not None
        found: Rows = {}
        for name, columns in COLUMNS.items():
            rows: list[tuple[Any, ...]] = []
            while len(rows) % _PAGE == 0:
                page = {"table": name, "limit": _PAGE, "offset": len(rows)}
                hits = reading.search(page).hits
                decoded = [msgspec.json.decode(hit.row) for hit in hits]
                rows += [tuple(row[column] for column in columns) for row in decoded]
                if not hits:
                    break
            found[name] = sorted(rows, key=lambda row: row[:2])
        return reading.position.epoch, _as_in_the_book(found)


def shown_in_kafka(servers: str, prefix: str) -> tuple[int, Rows]:
    """Return the same of change logs, read once the brokers have ended the last transaction in each topic."""
    while (told := _told(servers, prefix)) != _told(servers, prefix):
        pass
    epoch, messages = told
    rows = {name: [*folded(each).values()] for name, each in messages.items()}
    found = {
        name: sorted(
            (tuple(row[column] for column in columns) for row in rows[name]),
            key=lambda row: row[:2],
        )
        for name, columns in COLUMNS.items()
    }
    return epoch, _as_in_the_book(found)


def _told(servers: str, prefix: str) -> tuple[int, dict[str, list[Told]]]:
    epoch = epoch_in_kafka(servers, prefix)
    return epoch, {name: told_in(servers, f"{prefix}.{name}") for name in COLUMNS}


def epoch_in_kafka(servers: str, prefix: str) -> int:
    """Return the epoch that change logs show; -2 before there is one."""
    positions = told_in(servers, f"{prefix}._position")
    return int(positions[-1].value["position"]["epoch"]) if positions else -2


def _shown_by_sql(query: Callable[[str], list[tuple[Any, ...]]]) -> tuple[int, Rows]:
    ((epoch,),) = query("SELECT epoch FROM _penstock_view")
    rows = {}
    for name, columns in COLUMNS.items():
        chosen = ", ".join(f'"{column}"' for column in columns)
        rows[name] = query(f'SELECT {chosen} FROM "{name}" ORDER BY 1, 2')
    return epoch, _as_in_the_book(rows)


def _as_in_the_book(rows: Rows) -> Rows:
    """Give decimals as texts, and JSON as values, whatever the store has."""
    for name in ("Customer", "shipments"):
        rows[name] = [(*row[:-1], str(row[-1])) for row in rows[name]]
    rows["Order"] = [
        (*row[:3], str(row[3]), bool(row[4]), _decoded(row[5]), row[6]) for row in rows["Order"]
    ]
    return rows


def _decoded(lines: Any) -> Any:
    return json.loads(lines) if isinstance(lines, str) else lines
