"""The nursery of readers spares the processor when readers cannot start, and ends the readers of each pool with the pool."""

import asyncio
import os
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

from penstock.engine.execute import Limits
from penstock.gateway import reader_pool
from penstock.gateway.reader_pool import ReaderNursery, ReaderPool
from penstock.gateway.telemetry.metrics import Metrics
from penstock.runtime.reads.arguments import SizeLimits
from penstock.runtime.reads.messages import ReaderSettings
from penstock.runtime.reads.nursery import PID_BYTES, Brood
from tests.waiting import wait_for


def dead_child(code: int) -> int:
    """Return the process id of a child that has ended with a code and was not waited for."""
    pid = os.fork()
    if not pid:
        os._exit(code)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def test_readers_that_cannot_load_the_application_are_replaced_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each failure doubles the pause; a reader that a call has ended is replaced soon."""
    now_s = 0.0  # a difference of other times is rounded
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        brood = Brood(settings=None, control=theirs)  # type: ignore[arg-type]

        def pause_after(code: int) -> float:
            brood._born_s = {dead_child(code): now_s}
            brood._resume_s = 0.0
            brood.reap()
            assert brood._born_s == {}
            return brood._resume_s - now_s

        failing = [pause_after(os.EX_SOFTWARE) for _ in range(12)]
        assert failing[0] < failing[1] < failing[2]
        assert max(failing) <= 10.0
        assert pause_after(-1) <= 0.2


def has_ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.usefixtures("large_numbers")  # a gateway may have thousands of connections
def test_readers_end_with_their_pool_and_with_the_nursery(tmp_path: Path) -> None:
    """One nursery has the readers of several pools, and no reader stays behind, also if its application is never imported."""
    app = tmp_path / "endless.py"
    app.write_text("import threading\nthreading.Event().wait()\n")
    settings = ReaderSettings(
        spec=str(app),
        data=tmp_path / "data",
        limits=Limits(),
        count=2,
        log_format="text",
        log_level="info",
        sizes=SizeLimits(100, 100),
    )
    nursery = ReaderNursery()
    pools = [nursery.begin(settings) for _ in range(2)]
    assert pools[0][0] == pools[1][0]
    readers: list[list[psutil.Process]] = []
    channels: list[int] = []
    for _, control in pools:
        control.settimeout(120)
        readers.append([])
        for _ in range(settings.count):
            pid, descriptors, _, _ = socket.recv_fds(control, PID_BYTES, 1)
            readers[-1].append(psutil.Process(int.from_bytes(pid)))
            channels += descriptors  # they stay open, as in a gateway that is busy
    first, second = pools[0][1], pools[1][1]
    for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for one in (*readers[1], psutil.Process(pools[1][0])):
            one.send_signal(
                stop
            )  # to the whole group; the gateway ends its readers when it has answered
    first.shutdown(socket.SHUT_WR)
    assert first.recv(1) == b""  # they have ended
    assert [has_ended(reader) for reader in [*readers[0], *readers[1]]] == [
        True,
        True,
        False,
        False,
    ]
    os.kill(pools[1][0], signal.SIGKILL)
    assert second.recv(1) == b""
    for reader in readers[1]:
        wait_for(lambda reader=reader: has_ended(reader), "the end of a reader")  # type: ignore[misc]
    nursery.bury(pools[1][0])
    again, control = nursery.begin(settings)
    assert again != pools[1][0]
    nursery.close()
    assert not psutil.pid_exists(again)
    for open_socket in (first, second, control):
        open_socket.close()
    for descriptor in channels:
        os.close(descriptor)


class _Refused(ReaderNursery):
    """A nursery that the system does not start again at once."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.ends: list[socket.socket] = []

    def begin(self, _: ReaderSettings) -> tuple[int, socket.socket]:
        self.begun += 1
        if self.begun in (2, 3):
            raise BlockingIOError(11, "Resource temporarily unavailable")
        ours, theirs = socket.socketpair()
        self.ends.append(theirs)
        return 1, ours


@pytest.mark.timeout(120)
def test_a_limit_of_processes_leaves_no_gateway_without_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nursery that has died is started again when there is room: the gateway answered no call any more."""
    monkeypatch.setattr(reader_pool, "_RESTART_S", 0.001)
    settings = ReaderSettings(
        spec="shop",
        data=tmp_path,
        limits=Limits(),
        count=1,
        log_format="text",
        log_level="info",
        sizes=SizeLimits(100, 100),
    )

    async def live() -> int:
        nursery = _Refused()
        pool = ReaderPool(nursery, settings, Metrics(tmp_path), 10, Limits().time_limit(None))
        nursery.ends[0].close()
        while len(nursery.ends) < 2:
            await asyncio.sleep(0.001)
        closing = asyncio.create_task(pool.close())
        await asyncio.sleep(0)
        nursery.ends[1].close()
        await closing
        return nursery.begun

    assert asyncio.run(live()) == 4
