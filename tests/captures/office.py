"""An office with a real database of customers, and the processes of the application that takes its changes."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from benchmarks.cluster import Cluster
from penstock.base.ids import BEFORE_FIRST, EntityKey
from penstock.captures.capture import serve_capture
from penstock.deployment.deployment_start import deploy
from penstock.deployment.loading import load_app
from penstock.engine.streams.generator_positions import capture_key, capture_position_of
from penstock.journal.api import SCHEMAS, PartKind, newest_epoch
from penstock.model.application import App
from penstock.model.streams.change_stream import SourcePosition
from penstock.orders.order import Place
from penstock.orders.paused_workflows import newest_rows
from penstock.process.capture_files import CaptureReport, read_capture_report
from penstock.process.config import CaptureSettings, Config
from penstock.process.data_directory import DataDirectory
from tests.forked import processes
from tests.waiting import wait_for

SPEC = "tests/captures/crm_app.py"
DEADLINE_S = 120.0
USERS = """
    CREATE TABLE users (
        id int PRIMARY KEY, name text NOT NULL, email varchar(200), credit numeric(12, 2) NOT NULL DEFAULT 0,
        since timestamptz NOT NULL DEFAULT '2026-01-31 12:00+01', tags jsonb NOT NULL DEFAULT '[]', notes text
    );
    ALTER TABLE users REPLICA IDENTITY FULL;
"""


class Office:
    """A database of its own on the server, and a data directory."""

    def __init__(self, postgres: Cluster, data: Path, name: str) -> None:
        self.postgres = postgres
        self.data = data
        self.name = name
        with psycopg.connect(postgres.address, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        self.address = postgres.address.replace("dbname=postgres", f"dbname={name}")
        settings = CaptureSettings(self.address, slot=f"slot_{name}", publication="crm")
        self.config = Config(data, app=SPEC, captures={"crm": settings})
        self.app: App = load_app(SPEC)
        directory = DataDirectory(data)
        directory.create("")
        with closing(directory.open_journal(self.app)) as journal:
            journal.deploy()
            deploy(data, SPEC, self.app, journal)

    def give(self, *statements: str) -> None:
        """Carry out statements at the database, each group in one transaction."""
        with psycopg.connect(self.address) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Return the answer of the database."""
        with psycopg.connect(self.address) as connection:
            return connection.execute(query.encode()).fetchall()

    def await_free_slot(self) -> None:
        """Return when the server has noticed that the process which took its changes is dead."""
        active = f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = 'slot_{self.name}' AND active"
        wait_for(lambda: not self.ask(active), "the slot is free")

    def users(self, *numbers: int) -> list[dict[str, Any] | None]:
        """Return the entities of users."""
        rows = newest_rows(self.config, [EntityKey(f"User/{number}") for number in numbers])
        user = self.app.entity("User")
        return [
            None if row is None else user.decode(number, row)
            for number, row in zip(numbers, rows, strict=True)
        ]

    def names(self) -> dict[int, str]:
        """Return the name of each user that has an entity, from the whole journal."""
        user = self.app.entity("User")
        found: dict[int, str] = {}
        for row in self._rows(PartKind.CHANGES, "entity", "User"):
            number = int(row["key"])
            if row["state"] is None:
                found.pop(number, None)
            else:
                found[number] = str(user.decode(number, row["state"])["name"])
        return found

    def changes(self) -> list[Any]:
        """Return all events of the stream, in order."""
        decode = self.app.stream("crm").events.decode
        return [
            decode(event)
            for row in self._rows(PartKind.EVENTS, "stream", "crm")
            for event in msgspec.msgpack.decode(row["events"], type=list[msgspec.Raw])
        ]

    def _rows(self, part: PartKind, column: str, value: str) -> list[dict[str, Any]]:
        with closing(DataDirectory(self.data).open_journal(self.app)) as journal:
            columns = SCHEMAS[part].names
            tables = journal.rows(part, BEFORE_FIRST, newest_epoch(journal), columns)
            return [row for _, table in tables for row in table.to_pylist() if row[column] == value]

    def position(self) -> SourcePosition | None:
        """Return the position of the stream."""
        (row,) = newest_rows(self.config, [capture_key("crm")])
        return capture_position_of(row)

    def is_read(self) -> bool:
        """Whether the tables were read to their end."""
        position = self.position()
        return position is not None and position.source_lsn > 0

    def appended(self) -> int:
        """Return the number of records in the log."""
        with closing(DataDirectory(self.data).open_log()) as log:
            return log.end()

    def await_records(self, count: int) -> None:
        """Wait until the log has so many records."""
        wait_until(lambda: self.appended() >= count, lambda: f"{self.report()}")

    def work(self, seed: int) -> None:
        """Give transactions of all sorts; the name of a row counts its changes."""
        rng = random.Random(seed)
        with psycopg.connect(self.address) as connection:
            for _ in range(12):
                first = rng.randrange(1, 3_000)
                last = first + rng.choice([0, 3, 1_200])
                match rng.randrange(4):
                    case 0:
                        text = (
                            f"DELETE FROM users WHERE id BETWEEN {first} AND {min(last, first + 3)}"
                        )
                    case 1:
                        text = (
                            f"INSERT INTO users (id, name) SELECT n, '0' FROM generate_series({first}, {last}) AS n "
                            "ON CONFLICT DO NOTHING"
                        )
                    case _:
                        text = f"UPDATE users SET name = name || '+' WHERE id BETWEEN {first} AND {last}"
                connection.execute(text.encode())
                connection.commit()

    @staticmethod
    def told_of_each(events: list[Any]) -> dict[str, list[tuple[int, int]]]:
        """Return the transactions that have changed each row, in order, after checks that each goes on from the one before."""
        rows: dict[str, str] = {}
        told: dict[str, list[tuple[int, int]]] = {}
        for event in events:
            if event.before is not None:
                assert rows.get(event.key) == event.before.name, event
            elif event.kind in ("snapshot", "insert"):
                assert event.key not in rows, event
            if event.row is None:
                rows.pop(event.key, None)
            else:
                rows[event.key] = event.row.name
            if event.key:
                told.setdefault(event.key, []).append((event.source_lsn, event.part))
        return told

    def state(self) -> str:
        """Return the state in the newest report."""
        report = self.report()
        return "" if report is None else report.state

    def place(self) -> Place:
        """Return the place of an operator's order."""
        return Place(self.config, self.app, "ada")

    def report(self) -> CaptureReport | None:
        """Return the newest report of the capture."""
        return read_capture_report(self.data, "crm")

    def await_users(self, expected: dict[int, str]) -> None:
        """Wait until the entities are these users."""
        wait_until(lambda: self.names() == expected, lambda: f"{self.names()}, {self.report()}")

    def await_refusal(self) -> str:
        """Wait until the capture refuses, and return why, with the remedy."""

        def refuses() -> bool:
            report = self.report()
            return report is not None and report.state == "refused"

        wait_until(refuses, lambda: f"{self.report()}")
        report = self.report()
        assert report is not None
        return f"{report.reason}; {report.remedy}"

    def await_reason(self, text: str) -> None:
        """Wait until the report has a text, which no former report has."""
        wait_until(lambda: text in str(self.report()), lambda: f"{self.report()}")

    def with_settings(self, **settings: Any) -> None:
        """Change the settings of the capture."""
        changed = replace(self.config.captures["crm"], **settings)
        self.config = replace(self.config, captures={"crm": changed})


def wait_until(condition: Callable[[], bool], why: Callable[[], str] = str) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


@contextmanager
def capturing(office: Office) -> Iterator[int]:
    """Take changes in a process, and kill it at the end; yields the number of the process."""
    process = processes().Process(target=_capture, args=(office.config,))
    process.start()
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.join()


def _capture(config: Config) -> None:
    serve_capture(load_app(SPEC), "crm", config)
