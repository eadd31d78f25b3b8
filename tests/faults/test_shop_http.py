"""The shop over HTTP: nothing is lost or sold twice, with any process killed meanwhile."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchmarks.harness.http import running
from penstock.base.ids import BEFORE_FIRST
from penstock.journal.api import PartKind
from penstock.journal.delta import DeltaJournal
from penstock.process import presence
from tests.checkout import SHOP
from tests.faults.shop_consistency import BUYERS, STOCK, consistency
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for


def test_hot_item_is_sold_exactly_as_often_as_it_is_there(tmp_path: Path) -> None:
    """A thousand buyers of a hundred pieces: a hundred get one, and every buyer is told."""
    with RunningGateway(SHOP, tmp_path) as gateway:
        port = urlsplit(gateway.url).port
        assert port is not None
        consistency(port, seed=1).check()


@pytest.mark.spark
@pytest.mark.faults
@pytest.mark.timeout(300)
def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    """A driver and a gateway are killed in the middle: all four numbers are exact."""
    with running(tmp_path / "data", gateways=2) as port:

        def killing() -> "Kills":
            return Kills(tmp_path / "data")

        outcome = consistency(port, seed=2, during=lambda: killing().under_way())
        outcome.check()
        assert outcome.retried > 0, "a gateway's clients had to ask again"
    assert checkouts_of(tmp_path / "data") == {"paid": STOCK, "refused": BUYERS - STOCK}


class Kills:
    """Kills a driver and a gateway, each as soon as it works; `test_spark_kills` kills many drivers."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._thread = threading.Thread(target=self._kill_all, name="kills")
        self.failures: list[BaseException] = []

    @contextmanager
    def under_way(self) -> Iterator[None]:
        self._thread.start()
        yield
        self._thread.join()
        assert not self.failures, self.failures

    def _kill_all(self) -> None:
        try:
            for role, count in (("driver", 1), ("gateway", 2)):
                wait_for(lambda: len(presence.find(self._data, role)) == count, role)  # noqa: B023
                epoch = self._epoch()
                if role == "driver":  # in the middle of its work
                    wait_for(lambda: self._epoch() > epoch, "an epoch", deadline_s=60)  # noqa: B023
                os.kill(presence.find(self._data, role)[0].pid, signal.SIGKILL)
        except BaseException as error:  # noqa: BLE001 -- raised where the test looks
            self.failures.append(error)

    def _epoch(self) -> int:
        journal = DeltaJournal(self._data / "journal", "shop")
        last = journal.last()
        journal.close()
        return -1 if last is None else int(last.epoch)


def checkouts_of(data: Path) -> dict[str, int]:
    """Count the checkouts by their outcome, from the journal's replies alone."""
    journal = DeltaJournal(data / "journal", "shop")
    found = {"paid": 0, "refused": 0}
    for commit in journal.commits(BEFORE_FIRST):
        for part in commit.parts_of(PartKind.TRANSACTIONS):
            for row in journal.read(part, ["request", "error"]).to_pylist():
                if b"checkout" in row["request"]:
                    found["paid" if row["error"] is None else "refused"] += 1
    journal.close()
    return found
