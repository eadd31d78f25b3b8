"""A target that fails: its view says why, and what helps; other views go on; it goes on by itself when the target is back.

The password is in no log and in no file. Both views show the same tables, so that the one that goes on shows each epoch.
"""

import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import psycopg
import pytest

from benchmarks.cluster import Cluster
from penstock import App
from penstock.process.data_directory import DataDirectory
from penstock.process.view_files import (
    ViewReport,
    ViewState,
    change_orders,
    folder_of,
    read_report,
)
from tests.faults.disk import Disk, missing_for_disks
from tests.postgres_server import PASSWORD
from tests.views.appliers import appliers
from tests.views.book import Book, Rows, shown_in, shown_in_postgres
from tests.views.orders_app import in_two, in_two_files
from tests.waiting import wait_for

pytestmark = [pytest.mark.faults, pytest.mark.long]

BROKEN, BESIDE = "reporting", "beside"
SCHEMA = "faults"
ENDS_SESSIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND usename = 'clerk'"
)


class Desk:
    """A data directory whose journal a test writes, with a view that the test breaks and one beside it."""

    def __init__(self, data: Path, book: Book, shown: Callable[[], tuple[int, Rows]]) -> None:
        self.data = data
        self.book = book
        self._shown: dict[str, Callable[[], tuple[int, Rows]]] = {
            BROKEN: shown,
            BESIDE: partial(shown_in, file_of(data, BESIDE)),
        }

    def agrees(self, *names: str) -> None:
        """Wait until views show the newest epoch, and compare all of their tables."""
        for name in names:
            wait_for(
                lambda: self._epoch(name) == self.book.epoch,  # noqa: B023
                f"epoch {self.book.epoch} of {name}",
            )
            assert self._shown[name]()[1] == self.book.expected[self.book.epoch]

    def _epoch(self, name: str) -> int:
        try:
            return self._shown[name]()[0]
        except Exception:  # noqa: BLE001 -- it has no tables, or does not answer
            return -2

    def fails(self, reason: str, remedy: str) -> None:
        """Wait until the broken view says this; meanwhile the other one shows each epoch."""

        def told() -> ViewReport | None:
            self.book.write(20)
            self.agrees(BESIDE)
            report = self.report()
            is_told = report.state is ViewState.WAITING and reason in report.reason
            return report if is_told else None  # a later one may be of the next try

        report = wait_for(told, f"the reason {reason}")
        assert remedy in report.remedy
        assert bool(report.remedy) == bool(remedy)

    def report(self) -> ViewReport:
        report = read_report(self.data, BROKEN)
        assert report is not None
        return report

    def rebuilds(self) -> None:
        change_orders(
            self.data,
            BROKEN,
            lambda orders: msgspec.structs.replace(orders, rebuild=orders.rebuild + 1),
        )


def file_of(data: Path, name: str) -> Path:
    return folder_of(data, name) / "view.sqlite"


@contextmanager
def desk_of(
    app: App, data: Path, url: str, shown: Callable[[], tuple[int, Rows]]
) -> Iterator[Desk]:
    with closing(DataDirectory(data).open_journal(app)) as journal:
        journal.deploy()
        book = Book(journal)
        book.write(50)
        with appliers(app, data, urls={BROKEN: url}):
            yield Desk(data, book, shown)


@pytest.fixture(scope="module")
def desk(postgres: Cluster, login: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    run(postgres, f"CREATE SCHEMA {SCHEMA} AUTHORIZATION clerk")
    shown = partial(shown_in_postgres, postgres.address, SCHEMA)
    with desk_of(in_two, tmp_path_factory.mktemp("data"), login, shown) as desk:
        yield desk


def run(postgres: Cluster, *statements: str) -> None:
    """Execute statements as the owner of the server."""
    with psycopg.connect(postgres.address, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


class Fault(NamedTuple):
    """What is done to the database, what the view says, and what mends it; nothing: an order to rebuild."""

    breaks: list[str]
    reason: str
    remedy: str
    mends: list[str]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(
            ["ALTER ROLE clerk PASSWORD 'another'", ENDS_SESSIONS],
            "password authentication failed",
            "set the right user and password in views.reporting.url",
            [f"ALTER ROLE clerk PASSWORD '{PASSWORD}'"],
        ),
        Fault(
            ['REVOKE INSERT, UPDATE ON faults."Order" FROM clerk'],
            "permission denied for table Order",
            "grant it to the user of views.reporting.url",
            ['GRANT INSERT, UPDATE ON faults."Order" TO clerk'],
        ),
        Fault(
            ['ALTER TABLE faults."Order" DROP COLUMN weight'],
            "weight",
            "penstock view rebuild reporting",
            [],
        ),
        Fault(
            ['ALTER TABLE faults."Order" ALTER COLUMN number TYPE numeric'],
            "number",
            "penstock view rebuild reporting",
            ['ALTER TABLE faults."Order" ALTER COLUMN number TYPE bigint'],
        ),
        Fault(
            ['CREATE UNIQUE INDEX one_total ON faults."Order" (total, number)'],
            "one_total",
            "drop",
            ["DROP INDEX faults.one_total"],
        ),
        Fault(
            ["DROP SCHEMA faults CASCADE"],
            "permission denied for database",
            "grant it to the user of views.reporting.url",
            ["CREATE SCHEMA faults AUTHORIZATION clerk"],
        ),
    ],
    ids=["password", "grant", "column", "type", "index", "schema"],
)
def test_view_waits_alone(
    desk: Desk,
    postgres: Cluster,
    caplog: pytest.LogCaptureFixture,
    fault: Fault,
) -> None:
    """Reason and remedy are reported; when the cause is gone, or by an order to rebuild, the view agrees again."""
    caplog.set_level(logging.DEBUG)
    desk.agrees(BROKEN, BESIDE)
    run(postgres, *fault.breaks)
    desk.fails(fault.reason, fault.remedy)
    run(postgres, *fault.mends)
    if not fault.mends:
        desk.rebuilds()
    desk.agrees(BROKEN, BESIDE)
    written = [path.read_text(errors="replace") for path in desk.data.glob("**/*.json")]
    for secret in (PASSWORD, "se%3Acr%25t", "se:cr"):
        assert secret not in caplog.text
        assert not any(secret in text for text in written)


def test_server_that_is_down_costs_no_other_view(
    desk: Desk, postgres: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """While the server is down the other view shows each epoch, and the log says so once; then nothing has to be done."""
    desk.agrees(BROKEN, BESIDE)
    postgres.stop()
    try:
        desk.fails("PostgreSQL", "")
        for _ in range(20):
            desk.book.write(20)
        desk.agrees(BESIDE)
        reasons = [each.reason for each in caplog.records if each.message == "applier.waits"]  # type: ignore[attr-defined]
        assert len(reasons) == len(set(reasons)) > 0
    finally:
        postgres.start()
    desk.agrees(BROKEN, BESIDE)


@pytest.fixture
def disk() -> Iterator[Disk]:
    """Mount a small disk that the server may enter."""
    if missing := missing_for_disks():
        pytest.skip(missing)
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="penstock-disk-"))
    folder.chmod(0o755)
    try:
        with Disk(folder, 16) as mounted:
            yield mounted
    finally:
        shutil.rmtree(folder)


def test_full_disk_of_a_file_is_told(disk: Disk, tmp_path: Path) -> None:
    """A view whose file is on a full disk waits, and goes on when there is room; the journal is on another disk."""
    path = disk.path / "reports.sqlite"
    with desk_of(in_two_files, tmp_path, f"sqlite://{path}", partial(shown_in, path)) as desk:
        desk.agrees(BROKEN, BESIDE)
        disk.fill()
        desk.fails("the disk is full", "make room")
        disk.make_space()
        desk.agrees(BROKEN, BESIDE)


def test_full_disk_of_a_server_is_told(disk: Disk, desk: Desk, postgres: Cluster) -> None:
    """A table of the server is on a full disk; the reason and the remedy are those of the server."""
    desk.agrees(BROKEN, BESIDE)
    shutil.chown(disk.path, "postgres")
    run(
        postgres,
        f"CREATE TABLESPACE small LOCATION '{disk.path}'",
        "ALTER TABLE faults.shipments SET TABLESPACE small",
    )
    disk.fill()
    desk.book.write(2_000)  # more rows than the last page of the table has room for
    desk.fails("No space left", "make room on the disk of the server")
    disk.make_space()
    desk.agrees(BROKEN, BESIDE)
    run(
        postgres,
        "ALTER TABLE faults.shipments SET TABLESPACE pg_default",
        "DROP TABLESPACE small",
    )
