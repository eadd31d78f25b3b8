"""A data directory, its backups and copies, for tests that kill, move and fill."""

import signal
import subprocess
from pathlib import Path

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.deployment.loading import load_app
from penstock.history.reader import HistoryReader
from penstock.history.verification import verify
from penstock.log.api import Entry
from penstock.process.config import Config
from penstock.state.digest import digest_of_mapping
from tests import forked
from tests.checkout import SHOP
from tests.history import Call, journal_of
from tests.serial_driver import SerialDriver

EPOCHS: list[list[Call]] = [
    [("Item", "i1", "create", {"price": 3, "stock": 10})],
    [("Item", "i1", "add", (5,)), ("User", "u1", "create", {"credit": 20})],
    [("Item", "i1", "subtract", (2,)), ("User", "u1", "pay", (6,))],
]
LAST = Epoch(2)

PROGRAM = """
import resource, sys
from pathlib import Path
from penstock.errors import PenstockError
from penstock.process.fault import Fault
from penstock.history.backup import Backups
from penstock.history.restore import fork, restore
what, data, directory, target, fault, limit = sys.argv[1:]
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
reached = Fault(fault).reached
try:
    if what == "backup":
        Backups(Path(directory)).make(Path(data), "shop", reached)
        Backups(Path(directory)).keep(1, reached)
    elif what == "restore":
        restore(Path(directory), Path(target), 1, reached)
    else:
        fork(Path(data), "shop", Path(target), 1, reached)
except PenstockError as error:
    sys.exit(f"{error.code}: {error}")
"""


class Place:
    """A data directory, its backups, and where something is restored to."""

    def __init__(self, folder: Path) -> None:
        self.data, self.backups, self.target = (
            folder / name for name in ("data", "backups", "target")
        )
        journal_of(SHOP, self.data, EPOCHS)

    def run(self, what: str, fault: str = "", limit: str = "") -> subprocess.CompletedProcess[str]:
        return forked.run(PROGRAM, what, self.data, self.backups, self.target, fault, limit)

    def kill(self, what: str, fault: str) -> None:
        done = self.run(what, fault)
        assert done.returncode == -signal.SIGKILL, done.stderr

    def add(self, request_id: str) -> None:
        """Process one request more, in an epoch of its own."""
        driver = SerialDriver(SHOP, Config(self.data))
        body, hint = driver.app.request("Item", "i1", "add", (1,), {})
        (lsn,) = driver.log.append([Entry(RequestId(request_id), body, hint, 1)])
        driver.start()
        assert driver.wait_until(Lsn(lsn + 1), 20_000)
        driver.stop()


def digest_at(data: Path, epoch: int) -> str:
    with HistoryReader(data, load_app(SHOP)) as past:
        return digest_of_mapping(past.state_before(Epoch(epoch + 1)))


def check_sound(data: Path) -> None:
    found = verify(data, load_app(SHOP), lambda *_: None)
    assert (found.problems, found.skipped) == ([], [])
