"""The nursery of readers spares the processor when readers cannot start."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from penstock.engine.execute import Limits
from penstock.process.question import encode_question
from penstock.runtime.reads.arguments import SizeLimits
from penstock.runtime.reads.messages import ReaderSettings
from penstock.runtime.reads.nursery import PID_BYTES, Nursery
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
        nursery = Nursery(settings=None, control=theirs)  # type: ignore[arg-type]

        def pause_after(code: int) -> float:
            nursery._born_s = {dead_child(code): now_s}
            nursery._resume_s = 0.0
            nursery._reap()
            assert nursery._born_s == {}
            return nursery._resume_s - now_s

        failing = [pause_after(os.EX_SOFTWARE) for _ in range(12)]
        assert failing[0] < failing[1] < failing[2]
        assert max(failing) <= 10.0
        assert pause_after(-1) <= 0.2
        nursery.close()


def has_ended(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_killed_nursery_leaves_no_reader_that_still_loads(tmp_path: Path) -> None:
    """A reader whose application never returns from its import ends with its nursery."""
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
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-m", "penstock.runtime.reads.nursery", str(theirs.fileno())]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()]
        ) as nursery:
            assert nursery.stdin is not None
            with nursery.stdin as target:
                target.write(encode_question(settings))
            ours.settimeout(120)
            readers = []
            for _ in range(2):
                pid, descriptors, _, _ = socket.recv_fds(ours, PID_BYTES, 1)
                readers.append((psutil.Process(int.from_bytes(pid)), descriptors[0]))
            nursery.send_signal(signal.SIGKILL)
        for reader, descriptor in readers:  # the channel stays open, as in a gateway that is busy
            wait_for(lambda reader=reader: has_ended(reader), "the end of a reader")  # type: ignore[misc]
            os.close(descriptor)
