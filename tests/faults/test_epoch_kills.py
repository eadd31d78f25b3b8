"""The driver of epochs is killed at every step that it has without Spark; nothing is lost or doubled."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.log.sqlite import SqliteLog
from penstock.orders.partitions import append_move
from penstock.process.data_directory import DataDirectory
from penstock.process.fault import CONTROL_STEPS, LARGE_ATOM_STEPS, STEPS, STREAM_STEPS
from tests import forked
from tests.faults.driver_process import KILLED
from tests.faults.history import Watch
from tests.faults.load import Bank, Flows, LargeAtoms

pytestmark = [pytest.mark.long, pytest.mark.faults]

SPARK_STEPS = {
    "offsets-planned",
    "before-spark-commit",
}  # tests/faults/test_spark_kills.py has them
PROGRAM = """
import sys
from pathlib import Path
from tests.faults.epoch_process import main

main(Path(sys.argv[1]), *sys.argv[2:])
"""
REQUESTS = 400
FLOWS = 160
MOVES = (8, 3, 1, 4, 2, 5)


def process(data: Path, fault: str, load: str = "bank") -> int:
    return forked.run(PROGRAM, data, fault, load).returncode


def flip_state(data: Path) -> None:
    """Flip bits all over a partition's store."""
    (store,) = (data / "state").glob("partition-0-of-*[0-9]")
    files = [path for path in store.rglob("*") if path.stat().st_size]
    largest = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    for at in range(100, len(content), 997):
        content[at] ^= 0x10
    largest.write_bytes(content)


def delete_state(data: Path) -> None:
    shutil.rmtree(data / "state")


DAMAGE = {"between-parts": flip_state, "after-commit": delete_state}


@pytest.mark.turns(
    1, "engine", "runtime", "journal", "log", "state", of="a driver killed at every step"
)
def test_kill_at_every_step_changes_no_outcome(tmp_path: Path, seed: int) -> None:
    """After a kill at each step, and damage to the state, every request took effect once and in order."""
    bank, data = Bank(), tmp_path / "data"
    data.mkdir()
    watch = Watch(bank.app, data, bank.conserved)
    log = SqliteLog(data / "log.sqlite")
    entries = bank.entries(seed, REQUESTS)
    lsns = log.append(entries)
    log.close()
    acknowledged = {entry.request_id: lsn for entry, lsn in zip(entries, lsns, strict=True)}
    for step in STEPS:
        if step in SPARK_STEPS:
            continue
        assert process(data, f"{step}@2") == KILLED, step
        watch.check(acknowledged)
        if step in DAMAGE:
            DAMAGE[step](data)
    assert process(data, "") == 0
    watch.check(acknowledged, all_answered=True)


@pytest.mark.parametrize("load", ["flows", "overlapped"])
@pytest.mark.turns(
    1, "engine", "runtime", "journal", "log", "state", of="a driver killed at every step"
)
def test_kill_at_every_step_publishes_each_atom_once(tmp_path: Path, seed: int, load: str) -> None:
    """After a kill at each step, each atom is published once, and each later record is appended once."""
    flows, data = Flows(), tmp_path / "data"
    data.mkdir()
    watch = Watch(flows.app, data, flows.conserved)
    log = SqliteLog(data / "log.sqlite")
    entries = flows.entries(seed, FLOWS)
    lsns = log.append(entries)
    log.close()
    acknowledged = {entry.request_id: lsn for entry, lsn in zip(entries, lsns, strict=True)}
    for step in (*STEPS, *STREAM_STEPS):
        if step not in SPARK_STEPS:
            assert process(data, f"{step}@2", load) == KILLED, step
            watch.check(acknowledged)
    assert process(data, "", load) == 0
    watch.check(acknowledged, all_answered=True)


@pytest.mark.turns(
    1, "engine", "runtime", "journal", "log", "state", of="a driver killed at every step"
)
def test_kill_in_shares_of_a_large_atom(tmp_path: Path, seed: int) -> None:
    """After a kill in a share, and between the shares and the rest, each atom is published once."""
    large, data = LargeAtoms(), tmp_path / "data"
    data.mkdir()
    watch = Watch(large.app, data, large.conserved)
    log = SqliteLog(data / "log.sqlite")
    entries = large.entries(seed, 12)
    lsns = log.append(entries)
    log.close()
    acknowledged = {entry.request_id: lsn for entry, lsn in zip(entries, lsns, strict=True)}
    for step in LARGE_ATOM_STEPS:
        assert process(data, f"{step}@2", "large") == KILLED, step
        watch.check(acknowledged)
    assert process(data, "", "large") == 0
    watch.check(acknowledged, all_answered=True)


@pytest.mark.turns(
    1, "engine", "runtime", "journal", "log", "state", "orders", of="a driver killed at every step"
)
def test_kill_at_every_step_of_a_move_changes_no_outcome(tmp_path: Path, seed: int) -> None:
    """After a kill at each step, also between two stores, each record counts once, and the last number is in force."""
    bank, data = Bank(), tmp_path / "data"
    data.mkdir()
    watch = Watch(bank.app, data, bank.conserved)
    log = SqliteLog(data / "log.sqlite")
    entries = bank.entries(seed, REQUESTS // 2)
    acknowledged: dict[RequestId, Lsn] = {}
    for number, partitions in enumerate(MOVES):
        part = entries[number :: len(MOVES)]
        lsns = log.append(part)
        acknowledged |= {entry.request_id: lsn for entry, lsn in zip(part, lsns, strict=True)}
        append_move(log, partitions)
    log.close()
    for step in (*CONTROL_STEPS, *(f"in-apply@{count}" for count in (1, 5, 13, 18))):
        assert process(data, step) == KILLED, step
        watch.check(acknowledged)
    assert process(data, "") == 0
    watch.check(acknowledged, all_answered=True)
    with closing(DataDirectory(data).open_journal(bank.app)) as journal:
        last = journal.last()
    assert last is not None
    assert last.partitions == MOVES[-1]
