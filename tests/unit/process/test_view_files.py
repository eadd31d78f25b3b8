"""The files of views: reports are hints, orders are durable, and a hold stays until it is ended."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.base.ids import Epoch
from penstock.errors import Corrupt
from penstock.process.view_files import (
    Held,
    ViewOrders,
    ViewReport,
    ViewState,
    change_orders,
    end_hold,
    folder_of,
    held,
    hold,
    read_orders,
    read_report,
    read_reports,
    write_report,
)
from tests import forked

REPORT = ViewReport(
    "reporting", "postgres", ViewState.WAITING, Epoch(7), 2, "no answer", "wait", 5, 9
)


def test_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Each view has one; a torn file is no report, and views come by name."""
    assert read_reports(tmp_path) == []
    write_report(tmp_path, REPORT)
    newer = replace(REPORT, state=ViewState.FOLLOWING, reason="", filled=None)
    write_report(tmp_path, newer)
    other = replace(REPORT, name="a")
    write_report(tmp_path, other)
    (tmp_path / "views" / "torn").mkdir()
    (tmp_path / "views" / "torn" / "report.json").write_text("{")
    assert read_reports(tmp_path) == [other, newer]
    assert read_report(tmp_path, "reporting") == newer
    assert read_report(tmp_path, "torn") is None


def test_full_disk_ends_no_applier(tmp_path: Path) -> None:
    """A report that cannot be written leaves the older one."""
    write_report(tmp_path, REPORT)
    folder = folder_of(tmp_path, "reporting")
    folder.chmod(0o500)
    try:
        (tmp_path / "views" / "b").write_text("a file where a folder should be")
        write_report(tmp_path, replace(REPORT, name="b"))
    finally:
        folder.chmod(0o700)
    assert read_reports(tmp_path) == [REPORT]


_COUNTS = """
import sys
from pathlib import Path
from msgspec.structs import replace
from penstock.process.view_files import change_orders

for _ in range(20):
    change_orders(Path(sys.argv[1]), "v", lambda orders: replace(orders, rebuild=orders.rebuild + 1))
"""


def test_orders_of_several_processes_add_up(tmp_path: Path) -> None:
    """The file changes under a lock, so that no order is lost; a view without orders has none."""
    assert read_orders(tmp_path, "v") == ViewOrders()
    with ThreadPoolExecutor(3) as threads:
        for done in threads.map(lambda _: forked.run(_COUNTS, tmp_path), range(3)):
            assert done.returncode == 0, done.stderr
    assert read_orders(tmp_path, "v").rebuild == 60


def test_damaged_orders_are_no_orders(tmp_path: Path) -> None:
    """A paused view must not go on because a byte has changed."""
    change_orders(tmp_path, "v", lambda orders: replace(orders, paused=True))
    path = folder_of(tmp_path, "v") / "orders.json"
    path.write_bytes(path.read_bytes().replace(b"true", b"null"))
    with pytest.raises(Corrupt, match=r"orders\.json: the content .*give the order again"):
        read_orders(tmp_path, "v")


def test_hold_stays_until_it_is_ended(tmp_path: Path) -> None:
    """Its reason can be read; to end no hold is no error, and a damaged hold is not the end of it."""
    end_hold(tmp_path)
    assert held(tmp_path) is None
    copied = Held("forked from shop", 5)
    hold(tmp_path, copied)
    assert held(tmp_path) == copied
    (tmp_path / "held.json").write_text("{}")
    with pytest.raises(Corrupt, match=r"held\.json"):
        held(tmp_path)
    end_hold(tmp_path)
    assert held(tmp_path) is None
