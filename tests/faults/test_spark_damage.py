"""Damage while nothing runs is found at the next use, and reported or repaired."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.core.context import SparkContext

from penstock.errors import Corrupt, Diverged, PenstockError
from penstock.journal.api import PartKind
from penstock.process.config import Config
from penstock.runtime.spark.runtime import SparkRuntime
from tests.differential.inline import Inline
from tests.faults.load import Bank, Load

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.faults]

SENT = 300


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data directory with a history and requests that wait, next to an older log."""
    data, bank = tmp_path_factory.mktemp("damage") / "data", Bank()
    with Load(bank, data, seed=1, most=0) as load:
        load.finish()
    shutil.copytree(data, data.with_name("older"))
    with Load(bank, data, seed=1, most=SENT) as load:
        load.finish()
    with closing(driver_without_spark(data)) as runtime:
        runtime.advance(SENT)
    with Load(bank, data, seed=2, most=2 * SENT, first=SENT) as load:
        load.finish()
    return data


def driver_without_spark(data: Path) -> Inline:
    """Start the driver of epochs alone; Spark's checkpoint is a hint."""
    bank = Bank()
    return Inline(data, 2, bank.spec, bank.app.name, epoch_records_max=100)


@pytest.fixture
def data(stopped: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(stopped, tmp_path / "data"))


def refused(data: Path) -> PenstockError:
    """Start a runtime that must not start; return its error."""
    with pytest.raises(PenstockError) as error:
        start_and_stop(data)
    assert SparkContext._active_spark_context is None, "it is refused before Spark starts"
    return error.value


def start_and_stop(data: Path) -> None:
    runtime = SparkRuntime(Bank().spec, Config(data, cores=2, partitions=2))
    try:
        runtime.start()
    finally:
        runtime.stop()


def newest(paths: list[Path]) -> Path:
    return max(paths, key=lambda path: path.stat().st_mtime_ns)


def flip(path: Path, find: bytes = b"") -> None:
    """Flip a bit in the middle of a file, or in the last place that holds some bytes."""
    content = bytearray(path.read_bytes())
    at = content.rindex(find) if find else len(content) // 2
    content[at] ^= 0x04
    path.write_bytes(content)


def goes_wrong(data: Path) -> str:
    """Let the driver of epochs process the log; return the message of the damage that stops it."""
    with closing(driver_without_spark(data)) as runtime, pytest.raises(Corrupt) as error:
        runtime.advance(2 * SENT)
    return str(error.value)


def test_flipped_log_record_is_refused(data: Path) -> None:
    """A record that waits and is damaged stops the driver of epochs, which names the log's file."""
    flip(data / "log.sqlite", b"transfer")
    assert "log.sqlite" in goes_wrong(data)


def test_flipped_journal_part_is_refused(data: Path) -> None:
    """A damaged part that is needed to rebuild state stops the driver of epochs, and is named."""
    shutil.rmtree(data / "state")
    part = newest(list((data / "journal" / f"kind={PartKind.CHANGES}").glob("*.parquet")))
    flip(part)
    assert part.name in goes_wrong(data)


def test_flipped_commit_is_refused(data: Path) -> None:
    """A damaged commit of the journal stops the runtime before Spark starts, and is named."""
    commit = max((data / "journal" / "_delta_log").glob("*.json"))
    flip(commit)
    error = refused(data)
    assert isinstance(error, Corrupt)
    assert commit.name in str(error)


def replace_log(data: Path, older: Path) -> None:
    """Put another log where the log is, with all that belongs to it."""
    for path in data.glob("log.sqlite*"):
        path.unlink()
    for path in older.glob("log.sqlite*"):
        shutil.copy(path, data)


def test_log_behind_the_journal_is_refused(data: Path, stopped: Path) -> None:
    """An older log that was restored stops the runtime before Spark starts."""
    replace_log(data, stopped.with_name("older"))
    error = refused(data)
    assert isinstance(error, Diverged)
    assert f"up to {SENT}" in str(error)
