"""A restored or forked directory beside the living original, with the original's target in its settings: it writes no row."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from penstock.base.ids import Epoch, RequestId
from penstock.deployment.deployment_start import deploy
from penstock.history.backup import Backups
from penstock.history.restore import fork, restore
from penstock.log.api import Entry
from penstock.model.call import Preparing, encoded
from penstock.process.data_directory import DataDirectory
from penstock.process.view_files import ViewState, change_orders, end_hold, read_report
from tests.differential.inline import Inline
from tests.views.appliers import appliers
from tests.views.money_app import Purse, app
from tests.waiting import wait_for

pytestmark = pytest.mark.long

SPEC = "tests.views.money_app:app"
NAME = "books"
EARLIER = Epoch(4)


class Original:
    """An application that goes on, and the file that shows its wallets."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.file = folder / "reports.sqlite"
        self.data.mkdir()
        with closing(DataDirectory(self.data).open_journal(app)) as journal:
            journal.deploy()
            deploy(self.data, SPEC, app, journal)
        self.runtime = Inline(self.data, 1, SPEC, app.name)
        self.payments = 0
        call = Preparing(app, lambda made: made)
        self._pay = call.Wallet("ann").pay(Purse("bob"), 1)
        self._send(call.Wallet.create("ann"))
        self._send(call.Purse.create("bob"))

    def pay(self) -> None:
        self._send(self._pay)
        self.payments += 1

    def _send(self, call: object) -> None:
        body, hint = encoded(app, call)  # type: ignore[arg-type]  # what Preparing returns
        name = RequestId(f"r{self.runtime.log.end()}")
        self.runtime.log.append([Entry(name, body, hint, 0)])
        self.runtime.advance(self.runtime.log.end())

    def coins(self) -> int:
        with closing(sqlite3.connect(self.file)) as connection:
            return int(connection.execute('SELECT coins FROM "Wallet"').fetchone()[0])

    def writer(self) -> str:
        """Return the identity of the journal that has written the file."""
        with closing(sqlite3.connect(self.file)) as connection:
            return str(connection.execute("SELECT journal FROM _penstock_view").fetchone()[0])


@pytest.fixture
def original(tmp_path: Path) -> Iterator[Original]:
    original = Original(tmp_path)
    yield original
    original.runtime.close()


def restored(original: Original, copy: Path) -> None:
    backups = original.data.parent / "backups"
    Backups(backups).make(original.data, app.name)
    restore(backups, copy, EARLIER)


def forked(original: Original, copy: Path) -> None:
    fork(original.data, app.name, copy, None)


def state_of(data: Path, state: ViewState) -> Callable[[], bool]:
    def is_reported() -> bool:
        report = read_report(data, NAME)
        return report is not None and report.state is state

    return is_reported


@pytest.mark.parametrize("made", [restored, forked])
def test_copy_leaves_the_target_of_the_original_alone(
    original: Original, tmp_path: Path, made: Callable[[Original, Path], None]
) -> None:
    """It is held; resumed by mistake, it is refused; only an order to rebuild gives it the target."""
    copy, urls = tmp_path / "copy", {NAME: f"sqlite://{original.file}"}
    with appliers(app, original.data, NAME, urls=urls):
        for _ in range(5):
            original.pay()
        wait_for(lambda: original.file.exists() and shows(original), "the wallets")
        writer = original.writer()
        made(original, copy)
        with appliers(app, copy, NAME, urls=urls):
            wait_for(state_of(copy, ViewState.HELD), "the hold")
            for _ in range(5):
                original.pay()
                wait_for(lambda: shows(original), "the payment")
            end_hold(copy)
            wait_for(state_of(copy, ViewState.REFUSED), "the refusal")
            report = read_report(copy, NAME)
            assert report is not None
            assert "filled from a copy of this journal" in report.reason
            assert report.remedy == f"run penstock view rebuild {NAME}"
            for _ in range(5):
                original.pay()
                wait_for(lambda: shows(original), "the payment")
            assert original.writer() == writer
    with appliers(app, copy, NAME, urls=urls):
        change_orders(copy, NAME, lambda orders: msgspec.structs.replace(orders, rebuild=1))
        wait_for(lambda: original.writer() != writer, "the rebuild")


def shows(original: Original) -> bool:
    try:
        return original.coins() == -original.payments
    except (sqlite3.OperationalError, TypeError):
        return False  # there is no table, or no row yet
