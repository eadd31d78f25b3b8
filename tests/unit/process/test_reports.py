"""Reports of epochs on disk: they are read as written, with any damage to the files."""

import logging
from pathlib import Path

import msgspec
import pytest

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.files.layout import RUN
from penstock.process.epoch_report import EpochReport
from penstock.process.reports import FILE_NAME, ReportReader, ReportWriter

CALLS = {">Order.checkout": 3, "Order.checkout>Item.subtract": 6}


def report(epoch: int) -> EpochReport:
    return EpochReport(
        epoch=Epoch(epoch), time_us=1_760_000_000_000_000 + epoch, records=3, aborts=1, rounds=2,
        reran=1, tasks=4, phases_ms={"read": 0.2504, "commit": 7.5}, calls=CALLS,
    )  # fmt: skip


def write(data: Path, *epochs: int, bytes_max: int = 1 << 20) -> None:
    writer = ReportWriter(data, bytes_max)
    for epoch in epochs:
        writer.take(report(epoch))


def epochs_after(data: Path, epoch: int) -> list[int]:
    return [one.epoch for one in ReportReader(data).after(Epoch(epoch))]


def test_report_comes_back_whole(tmp_path: Path) -> None:
    """Every field of a report is as the driver wrote it; times of phases are rounded to microseconds."""
    write(tmp_path, 7)
    (stored,) = ReportReader(tmp_path).after(BEFORE_FIRST)
    written = report(7)
    assert stored == msgspec.structs.replace(written, phases_ms={"read": 0.25, "commit": 7.5})
    assert ReportReader(tmp_path).since(written.time_us) == [stored]
    assert ReportReader(tmp_path).since(written.time_us + 1) == []


def test_reader_returns_what_is_new(tmp_path: Path) -> None:
    """A reader that asks after the newest epoch it has seen gets each report once, in order."""
    reader, seen, newest = ReportReader(tmp_path), list[int](), BEFORE_FIRST
    assert reader.after(BEFORE_FIRST) == []
    for some in (range(3), range(3, 3), range(3, 700)):  # the last of many blocks
        write(tmp_path, *some)
        found = [one.epoch for one in reader.after(newest)]
        seen += found
        newest = found[-1] if found else newest
    assert seen == list(range(700))


def test_rotation_loses_only_what_is_oldest(tmp_path: Path) -> None:
    """Two files of bounded size hold the newest reports, which are read through both of them."""
    write(tmp_path, *range(100), bytes_max=4_000)
    found = epochs_after(tmp_path, -1)
    assert found == list(range(found[0], 100))
    assert 0 < found[0] < 100 - 4_000 // 200
    assert epochs_after(tmp_path, 97) == [98, 99]
    sizes = [path.stat().st_size for path in (tmp_path / RUN).iterdir()]
    assert len(sizes) <= 2
    assert max(sizes) < 4_500


@pytest.mark.parametrize("kept", [1, 40, 150])
def test_torn_line_is_passed_over(tmp_path: Path, kept: int) -> None:
    """A line of which a crash wrote a part costs that report, and not the next one."""
    write(tmp_path, 0, 1)
    path = tmp_path / RUN / FILE_NAME
    first, second = path.read_bytes().strip().split(b"\n\n")
    path.write_bytes(b"\n" + first + b"\n\n" + second[:kept])
    assert epochs_after(tmp_path, -1) == [0]
    write(tmp_path, 2)
    assert epochs_after(tmp_path, -1) == [0, 2]


def test_reports_of_a_former_journal_are_not_mixed_in(tmp_path: Path) -> None:
    """If epochs begin at 0 again, earlier reports belong to another history."""
    write(tmp_path, 0, 1, 2, 3)
    write(tmp_path, 0, 1)
    assert epochs_after(tmp_path, -1) == [0, 1]


def test_disk_that_takes_no_report_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver goes on without its reports, and says so once."""
    (tmp_path / RUN).write_text("in the way")
    with caplog.at_level(logging.WARNING):
        write(tmp_path, 0, 1)
    assert [record.message for record in caplog.records] == ["reports of epochs are not written"]
