"""Drivers of several hosts over one object store: one has the right to drive, and another gets it when that one ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Fenced
from penstock.files.layout import LEASE
from penstock.files.roots import shared_root, use_store
from penstock.process import driver_claim, lease
from penstock.process.driver_claim import DriverClaim, give_up_for_dead, lease_standing
from tests.object_store import BUCKET, StoreServer

LONG_S: Final = 60.0

HOLDER: Final = """
import sys, time
from pathlib import Path
from penstock.process.driver_claim import DriverClaim

lost = []
right = DriverClaim(Path(sys.argv[1]), lost.append)
right.get()
print("has it", flush=True)
while not lost:
    time.sleep(0.02)
print(lost[0], flush=True)
"""


@pytest.fixture
def hosts(
    store_server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Path]:
    """The folders of two hosts with one shared root."""
    access = store_server.access()
    for name, key in (
        ("AWS_ENDPOINT", "endpoint"),
        ("AWS_ACCESS_KEY_ID", "access_key_id"),
        ("AWS_SECRET_ACCESS_KEY", "secret_access_key"),
        ("AWS_REGION", "region"),
    ):
        monkeypatch.setenv(name, access[key])
    folders = tmp_path / "one", tmp_path / "two"
    for folder in folders:
        use_store(folder, f"s3://{BUCKET}/{tmp_path.name}")
    return folders


@pytest.fixture
def claims() -> Iterator[Callable[[Path], DriverClaim]]:
    """Makes claims, which are released at the end."""
    made: list[DriverClaim] = []

    def make(folder: Path) -> DriverClaim:
        made.append(DriverClaim(folder))
        return made[-1]

    yield make
    for one in made:
        one.release()


def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.02)


def holder(folder: Path) -> "subprocess.Popen[str]":
    """Start a process that has the lease."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "has it\n"
    return process


def test_released_lease_is_taken_at_once(
    hosts: tuple[Path, Path], claims: Callable[[Path], DriverClaim]
) -> None:
    """A driver that stops gives the lease up; its standing names it until then."""
    first, second = claims(hosts[0]), claims(hosts[1])
    first.get()
    standing = lease_standing(hosts[1])
    assert standing is not None
    assert standing.holder.startswith(f"process {os.getpid()} on ")
    assert not second.is_got()
    first.release()
    until(second.is_got)


def test_killed_holder_is_replaced_on_another_host_and_on_its_own(
    hosts: tuple[Path, Path], claims: Callable[[Path], DriverClaim]
) -> None:
    """On its own host at once, because its lock is free; elsewhere when the lease has not changed for some seconds."""
    process = holder(hosts[0])
    watcher = claims(hosts[1])
    assert not watcher.is_got()
    process.kill()
    process.communicate()
    until(watcher.is_got)
    watcher.release()
    process = holder(hosts[0])
    process.kill()
    process.communicate()
    claims(hosts[0]).get()


def test_lease_of_a_dead_driver_is_given_up_by_its_supervisor(
    hosts: tuple[Path, Path],
    claims: Callable[[Path], DriverClaim],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A standby of another host takes it at once, and not when it expires; that of a live driver stays."""
    monkeypatch.setattr(lease, "EXPIRES_S", 1e9)
    process = holder(hosts[0])
    watcher = claims(hosts[1])
    assert not watcher.is_got()
    give_up_for_dead(hosts[0])
    standing = lease_standing(hosts[1])
    assert standing is not None
    assert standing.is_live, "its process has the lock"
    process.kill()
    process.communicate()
    give_up_for_dead(hosts[1])
    give_up_for_dead(hosts[0])
    until(watcher.is_got)


def test_watcher_hears_of_epochs_without_a_look_at_the_journal(
    hosts: tuple[Path, Path], claims: Callable[[Path], DriverClaim]
) -> None:
    """The lease tells of the newest epoch of its holder."""
    first, second = claims(hosts[0]), claims(hosts[1])
    first.get()
    assert not second.is_got()
    assert second.newest == BEFORE_FIRST
    first.tell(Epoch(7))
    until(lambda: second.newest == 7)


def test_stopped_holder_loses_the_lease_and_hears_of_it(
    hosts: tuple[Path, Path], claims: Callable[[Path], DriverClaim]
) -> None:
    """A driver that was stopped for longer than the lease lasts is not the driver any more when it is woken."""
    process = holder(hosts[0])
    watcher = claims(hosts[1])
    try:
        os.kill(process.pid, signal.SIGSTOP)
        until(watcher.is_got)
        os.kill(process.pid, signal.SIGCONT)
        text, _ = process.communicate(timeout=LONG_S)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    assert text == "another host has taken the lease over; this driver stops\n"
    assert watcher.is_got()


def test_second_driver_is_refused_with_the_name_of_the_first(
    hosts: tuple[Path, Path],
    claims: Callable[[Path], DriverClaim],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A driver that cannot wait says who has the lease, and what to do."""
    monkeypatch.setattr(driver_claim, "_PATIENCE_S", 0.1)
    claims(hosts[0]).get()
    with pytest.raises(Fenced, match=r"is held by process \d+ on .*--standby"):
        claims(hosts[1]).get()


def test_lease_that_cannot_be_read_lasts_as_long_as_any(
    hosts: tuple[Path, Path], claims: Callable[[Path], DriverClaim]
) -> None:
    """Bytes that are no lease are watched, and then replaced."""
    shared_root(hosts[0]).replace(LEASE, b"no lease")
    claims(hosts[0]).get()
    assert lease_standing(hosts[0]) is not None
