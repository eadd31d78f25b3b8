"""Work of low priority leaves the priority as it was."""

import os
import subprocess
import sys
import threading

import pytest

from penstock.process import process_limits


def nice_of(thread: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, thread)


def test_priority_is_lower_in_the_block_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads of the process and of its children have it, and have their own again afterwards."""
    usual, end, begun = nice_of(0), threading.Event(), threading.Event()
    seen: list[int] = []

    def rest() -> None:
        seen.append(threading.get_native_id())
        begun.set()
        end.wait(60)

    thread = threading.Thread(target=rest)
    thread.start()
    begun.wait(60)
    steps = process_limits.STEPS if process_limits._may_raise(usual) else 0
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        with process_limits.lowered():
            inside = [nice_of(member) for member in (0, seen[0], child.pid)]
        outside = [nice_of(member) for member in (0, seen[0], child.pid)]
        child.communicate(b"\n")
    end.set()
    thread.join()
    assert inside == [usual + steps] * 3
    assert outside == [usual] * 3


def test_priority_that_could_not_be_raised_again_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby without the privilege would be a slow driver."""
    usual = nice_of(0)
    monkeypatch.setattr(process_limits, "_may_raise", lambda _usual: False)
    with process_limits.lowered():
        assert nice_of(0) == usual
