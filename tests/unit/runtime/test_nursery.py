"""The nursery of readers spares the processor when readers cannot start."""

import os
import socket
import time

from penstock.runtime.reads.nursery import Nursery


def dead_child(code: int) -> int:
    """Return the process id of a child that has ended with a code and was not waited for."""
    pid = os.fork()
    if not pid:
        os._exit(code)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid


def test_readers_that_cannot_load_the_application_are_replaced_after_growing_pauses() -> None:
    """Each failure doubles the pause; a reader that a call has ended is replaced soon."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        nursery = Nursery(settings=None, control=theirs)  # type: ignore[arg-type]

        def pause_after(code: int) -> float:
            nursery._born_s = {dead_child(code): time.monotonic()}
            nursery._resume_s = 0.0
            nursery._bury()
            assert nursery._born_s == {}
            return nursery._resume_s - time.monotonic()

        failing = [pause_after(os.EX_SOFTWARE) for _ in range(12)]
        assert failing[0] < failing[1] < failing[2]
        assert max(failing) <= 10.0
        assert pause_after(-1) <= 0.2
        nursery.close()
