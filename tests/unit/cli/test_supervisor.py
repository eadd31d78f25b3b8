"""The supervisor, with small children: which it restarts, which it gives up, and when each ends."""

import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from penstock.cli.running import supervisor as module
from penstock.cli.running.supervisor import Child, Supervisor
from penstock.errors import ConfigError, OperationalError
from penstock.process.process_limits import NO_TASKS

DEADLINE_S = 60.0
SERVES = """
    import os, signal, sys
    from pathlib import Path
    role, folder = sys.argv[1], Path(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        (folder / f"ready-{os.getpid()}").touch()
        sys.stdin.read()
    finally:
        with (folder / "ends").open("a") as ends:
            ends.write(role + "\\n")
"""
STUBBORN = """
    import os, signal, sys
    from pathlib import Path
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (Path(sys.argv[2]) / f"ready-{os.getpid()}").touch()
    while True: signal.pause()
"""
SUPERVISES = """
    import sys
    from pathlib import Path
    from penstock.cli.running.supervisor import Child, Supervisor
    folder = Path(sys.argv[1])
    ready = lambda pid: (folder / f"ready-{pid}").exists()
    children = [Child(role, [sys.executable, "-c", sys.argv[2], role, str(folder)], ready)
                for role in ("driver", "gateway")]
    supervisor = Supervisor(children, lambda *_: None, lambda *_: None)
    while not supervisor.ready:
        supervisor.look()
    print(*supervisor.pids("driver"), *supervisor.pids("gateway"), flush=True)
    sys.stdin.read()
"""


class Yard:
    """A folder in which children leave traces, and the messages of the supervisor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[tuple[str, str]] = []
        self.told: list[tuple[str, str]] = []

    def child(self, role: str, program: str = SERVES, stop_s: float = DEADLINE_S) -> Child:
        command = [sys.executable, "-c", textwrap.dedent(program), role, str(self.folder)]
        return Child(role, command, self.is_ready, stop_s=stop_s)

    def is_ready(self, pid: int) -> bool:
        return (self.folder / f"ready-{pid}").exists()

    def ends(self) -> list[str]:
        path = self.folder / "ends"
        return path.read_text().split() if path.exists() else []

    @contextmanager
    def running(
        self, *children: Child, changing: Callable[[], Sequence[Child]] = tuple
    ) -> Iterator[Supervisor]:
        supervisor = Supervisor(
            children,
            lambda role, line: self.said.append((role, line)),
            lambda role, line: self.told.append((role, line)),
            changing,
        )
        try:
            yield supervisor
        finally:
            supervisor.kill()
            supervisor.stop()


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def look_until(supervisor: Supervisor, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, supervisor.waiting
        supervisor.look()
        threading.Event().wait(0.005)


def test_children_start_and_become_ready(yard: Yard) -> None:
    """The supervisor is ready when every child is, and names those that it waits for."""
    with yard.running(yard.child("driver"), yard.child("gateway")) as supervisor:
        assert supervisor.waiting == ["driver", "gateway"]
        look_until(supervisor, lambda: supervisor.ready)
        assert supervisor.waiting == []
        assert yard.is_ready(*supervisor.pids("driver"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_child_that_ends_is_started_again(yard: Yard, how: signal.Signals) -> None:
    """However a child ends, another takes its place, the others stay, and lines say so."""
    driver = replace(yard.child("driver"), again=["--deployed"])
    with yard.running(driver, yard.child("gateway")) as supervisor:
        look_until(supervisor, lambda: supervisor.ready)
        assert "--deployed" not in psutil.Process(*supervisor.pids("driver")).cmdline()
        (killed,), others = supervisor.pids("driver"), supervisor.pids("gateway")
        os.kill(killed, how)
        look_until(supervisor, lambda: not psutil.pid_exists(killed))
        look_until(supervisor, lambda: supervisor.ready)
        assert supervisor.pids("driver") != [killed]
        assert psutil.Process(*supervisor.pids("driver")).cmdline()[-1] == "--deployed"
        assert supervisor.pids("gateway") == others
    (first, ended), second = yard.told
    assert first == "driver"
    assert ended.endswith("it is started again at once")
    assert second == ("driver", "runs again")


def test_wrong_setting_is_not_tried_twice(yard: Yard) -> None:
    """A child that says that its caller must change something ends the supervisor."""
    refused = yard.child("driver", "import sys; print('wrong', file=sys.stderr); sys.exit(2)")
    with yard.running(refused, yard.child("gateway")) as supervisor:
        with pytest.raises(ConfigError, match="driver"):
            look_until(supervisor, lambda: supervisor.ready)
        assert ("driver", "wrong") in yard.said
    assert yard.told == []


def test_hopeless_child_is_given_up(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that never gets anywhere is tried ever more slowly, and a bounded number of times."""
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    with (
        yard.running(yard.child("view", "raise SystemExit(1)")) as supervisor,
        pytest.raises(OperationalError, match=r"8 times in a row.*exit code 1"),
    ):
        look_until(supervisor, lambda: False)
    pauses = [line.rsplit("again ", 1)[1] for _, line in yard.told]
    assert pauses == [
        *("at once", "in 0.01 s", "in 0.02 s", "in 0.04 s"),
        *("in 0.08 s", "in 0.16 s", "in 0.32 s"),
    ]


def test_child_that_nobody_needs_is_never_given_up(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view that dies again and again ends nothing else, and is tried as often as need be."""
    monkeypatch.setattr(module, "PAUSE_S", 0.001)
    view = replace(yard.child("view", "raise SystemExit(70)"), needed=False)
    with yard.running(yard.child("driver"), view) as supervisor:
        look_until(supervisor, lambda: len(yard.told) > module.FAILURES_MAX + 2)
        assert supervisor.pids("driver")


def test_child_whose_work_ends_is_not_started_again(yard: Yard) -> None:
    """A child that dies before the end of its work gets another try; a stop makes all work begin again."""
    program = """
        import sys
        from pathlib import Path
        tries = Path(sys.argv[2]) / "tries"
        with tries.open("a") as file:
            file.write("try ")
        sys.exit(1 if tries.read_text() == "try " else 0)
    """
    child = replace(yard.child("generator", program), needed=False, ends=True)

    def tries() -> int:
        return len((yard.folder / "tries").read_text().split())

    with yard.running(yard.child("driver"), child) as supervisor:
        look_until(supervisor, lambda: supervisor.ready)
        assert (tries(), supervisor.waiting) == (2, [])
        for _ in range(3):
            supervisor.look()
        assert supervisor.pids("generator") == []
        supervisor.stop()
        assert supervisor.waiting == ["driver", "generator"]
        look_until(supervisor, lambda: supervisor.ready)
        assert tries() == 3


def test_pause_between_tries_is_bounded(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a child fails, the next try is near."""
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    monkeypatch.setattr(module, "PAUSE_MAX_S", 0.02)
    with (
        yard.running(yard.child("view", "raise SystemExit(1)")) as supervisor,
        pytest.raises(OperationalError),
    ):
        look_until(supervisor, lambda: False)
    assert [line.rsplit("again ", 1)[1] for _, line in yard.told[1:]] == [
        "in 0.01 s",
        *["in 0.02 s"] * 5,
    ]


def test_child_that_gets_on_is_never_given_up(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only ends in a row count: progress between them resets the count."""
    monkeypatch.setattr(module, "PAUSE_S", 5.0)
    command = yard.child("driver", "raise SystemExit(1)").command
    child = Child("driver", command, yard.is_ready, progress=lambda: len(yard.told))
    with yard.running(child) as supervisor:
        look_until(supervisor, lambda: len(yard.told) > module.FAILURES_MAX)
    assert all(line.endswith("at once") for _, line in yard.told[1:])


def test_child_with_patience_starts_after_the_others(yard: Yard) -> None:
    """It takes no processor time from their start, and runs the code that they have put in force: the source may have changed."""
    may_be_ready = threading.Event()
    driver = replace(
        yard.child("driver"), ready=lambda _: may_be_ready.is_set(), again=["--deployed"]
    )
    view = replace(yard.child("view"), patience_s=3_600.0, again=["--deployed"])
    with yard.running(driver, view) as supervisor:
        for _ in range(10):
            supervisor.look()
        assert supervisor.pids("driver")
        assert not supervisor.pids("view")
        may_be_ready.set()
        look_until(supervisor, lambda: supervisor.ready)
        assert psutil.Process(*supervisor.pids("view")).cmdline()[-1] == "--deployed"
        assert "--deployed" not in psutil.Process(*supervisor.pids("driver")).cmdline()


def with_spare(yard: Yard, program: str = SERVES) -> tuple[Child, Child]:
    """Return a driver and a standby, which takes its place."""
    waits = yard.child("standby", program)
    return yard.child("driver"), replace(
        waits, needed=False, patience_s=math.inf, spare_of="driver"
    )


def test_spare_takes_the_place_of_a_child_that_ends(yard: Yard) -> None:
    """Its process is the driver then, and another standby starts when that driver is ready."""
    with yard.running(*with_spare(yard)) as supervisor:

        def is_driver(pid: int) -> bool:
            return supervisor.pids("driver") == [pid]

        look_until(supervisor, lambda: not supervisor.waiting)
        for _ in range(3):
            (driver,), (spare,) = supervisor.pids("driver"), supervisor.pids("standby")
            os.kill(driver, signal.SIGKILL)
            look_until(supervisor, partial(is_driver, spare))
            look_until(supervisor, lambda: not supervisor.waiting)
            assert supervisor.pids("standby") != [spare]
    assert (
        yard.told
        == [
            ("driver", "ended with SIGKILL; the standby takes over"),
            ("driver", "runs again"),
        ]
        * 3
    )


def test_spare_that_ends_is_started_again(yard: Yard) -> None:
    """The child whose spare it is goes on."""
    with yard.running(*with_spare(yard)) as supervisor:
        look_until(supervisor, lambda: not supervisor.waiting)
        (driver,), (spare,) = supervisor.pids("driver"), supervisor.pids("standby")
        os.kill(spare, signal.SIGKILL)
        look_until(supervisor, lambda: supervisor.waiting == ["standby"])
        assert supervisor.ready, "the application does not need its standby"
        look_until(supervisor, lambda: not supervisor.waiting)
        assert supervisor.pids("driver") == [driver]


@pytest.mark.parametrize("code", [1, 2])
def test_spare_that_cannot_run_is_left_out(
    yard: Yard, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor says so, and the children go on as if there were no spare."""
    monkeypatch.setattr(module, "PAUSE_S", 0.001)
    with yard.running(*with_spare(yard, f"raise SystemExit({code})")) as supervisor:
        look_until(supervisor, lambda: not supervisor.waiting)
        (driver,) = supervisor.pids("driver")
        assert yard.told[-1][1].startswith("cannot run, and is not started again")
        os.kill(driver, signal.SIGKILL)
        look_until(supervisor, lambda: ("driver", "runs again") in yard.told)
        assert supervisor.pids("driver") != [driver]


def test_patience_ends(yard: Yard) -> None:
    """A child does not wait for ever for a child that never becomes ready."""
    driver = replace(yard.child("driver"), ready=lambda _: False)
    view = replace(yard.child("view"), patience_s=0.05)
    with yard.running(driver, view) as supervisor:
        look_until(supervisor, lambda: bool(supervisor.pids("view")))
        assert not supervisor.ready


def test_children_stop_in_the_reverse_order(yard: Yard) -> None:
    """The child that started last ends first, and each role has ended before the next is asked to."""
    children = [yard.child(role) for role in ("driver", "view", "gateway", "gateway")]
    with yard.running(*children) as supervisor:
        look_until(supervisor, lambda: supervisor.ready)
        supervisor.stop()
        assert yard.ends() == ["gateway", "gateway", "view", "driver"]
        look_until(supervisor, lambda: supervisor.ready)  # and they can be started anew


def test_child_that_still_starts_ends_before_those_that_work(yard: Yard) -> None:
    """No other child can need its work, so it is asked first, and only once."""
    starting = replace(yard.child("driver"), ready=lambda pid: False)
    with yard.running(starting, yard.child("gateway")) as supervisor:
        look_until(supervisor, lambda: len(list(yard.folder.glob("ready-*"))) == 2)
        supervisor.look()
        supervisor.stop()
        assert sorted(yard.ends()) == ["driver", "gateway"]


def test_child_that_does_not_stop_is_killed(yard: Yard) -> None:
    """A child has a limited time to end; the supervisor does not wait longer."""
    with yard.running(yard.child("driver", STUBBORN, stop_s=0.1)) as supervisor:
        look_until(supervisor, lambda: supervisor.ready)
        (pid,) = supervisor.pids("driver")
        supervisor.stop()
        assert not psutil.pid_exists(pid)
    assert yard.told == [("driver", "has not ended within 0.1 s; it is killed")]


def test_what_a_child_writes_is_passed_on(yard: Yard) -> None:
    """Both outputs arrive as lines with the role, also when their bytes are not UTF-8."""
    program = """
        import sys
        sys.stdout.buffer.write(b"one\\n\\xff\\n"); sys.stdout.flush()
        print("three", file=sys.stderr)
        sys.stdin.read()
    """
    with yard.running(yard.child("driver", program)) as supervisor:
        look_until(supervisor, lambda: len(yard.said) == 3)
    assert yard.said == [
        ("driver", "one"),
        ("driver", "\N{REPLACEMENT CHARACTER}"),
        ("driver", "three"),
    ]


def test_children_end_when_their_supervisor_is_killed(yard: Yard) -> None:
    """`kill -9` of the supervisor leaves no child running."""
    arguments = [textwrap.dedent(SUPERVISES), str(yard.folder), textwrap.dedent(SERVES)]
    supervisor = subprocess.Popen(
        [sys.executable, "-c", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout is not None
    children = [psutil.Process(int(pid)) for pid in supervisor.stdout.readline().split()]
    assert len(children) == 2
    supervisor.kill()
    supervisor.communicate()
    _, alive = psutil.wait_procs(children, timeout=DEADLINE_S)
    assert alive == []
    assert sorted(yard.ends()) == ["driver", "gateway"]


def test_further_children_come_and_go(yard: Yard) -> None:
    """The supervisor starts them when they are named, ends them when they are not, and the others stay."""
    wanted: list[Child] = []
    with yard.running(yard.child("driver"), changing=lambda: wanted) as supervisor:
        look_until(supervisor, lambda: supervisor.ready)
        driver = supervisor.pids("driver")
        wanted += [yard.child("first"), yard.child("second")]
        look_until(supervisor, lambda: bool(supervisor.pids("first") and supervisor.pids("second")))
        second = supervisor.pids("second")
        look_until(supervisor, lambda: not supervisor.waiting)
        del wanted[0]
        look_until(supervisor, lambda: not supervisor.pids("first"))
        assert yard.ends() == ["first"]
        wanted.insert(0, yard.child("first"))
        look_until(supervisor, lambda: bool(supervisor.pids("first")))
        assert (supervisor.pids("driver"), supervisor.pids("second")) == (driver, second)
        look_until(supervisor, lambda: not supervisor.waiting)
        supervisor.stop()
        assert sorted(yard.ends()[1:3]) == ["first", "second"]
        assert yard.ends()[3:] == ["driver"]
    assert yard.told == []


def test_further_child_that_does_not_end_is_killed(yard: Yard) -> None:
    """It has the time that it was given, and no look waits for it meanwhile."""
    wanted = [yard.child("stubborn", STUBBORN, stop_s=0.1)]
    with yard.running(yard.child("driver"), changing=lambda: wanted) as supervisor:
        look_until(supervisor, lambda: not supervisor.waiting and bool(supervisor.pids("stubborn")))
        wanted.clear()
        look_until(supervisor, lambda: not supervisor.pids("stubborn"))


def test_further_child_with_wrong_options_is_tried_again(yard: Yard) -> None:
    """A view that cannot be fed stops nothing, and delays no announcement that the application runs."""
    wanted = [yard.child("applier", "raise SystemExit(2)")]
    with yard.running(yard.child("driver"), changing=lambda: wanted) as supervisor:
        look_until(supervisor, lambda: len(yard.told) >= 3)
        look_until(supervisor, lambda: supervisor.ready)
        assert {role for role, _ in yard.told} == {"applier"}


@pytest.mark.parametrize("refused", ["process", "thread"])
def test_a_limit_of_the_system_ends_no_application(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """A child that ends at the limit is started again when there is room, and the others do their work meanwhile."""
    with yard.running(yard.child("driver"), yard.child("gateway")) as supervisor:
        look_until(supervisor, lambda: supervisor.ready)
        driver, (gateway,) = supervisor.pids("driver")[0], supervisor.pids("gateway")

        def refuse(*_: object, **__: object) -> None:
            if refused == "process":
                raise BlockingIOError(11, "Resource temporarily unavailable")
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as limited:
            if refused == "process":
                limited.setattr(subprocess, "Popen", refuse)
            else:
                limited.setattr(threading.Thread, "start", refuse)
            os.kill(driver, signal.SIGKILL)
            look_until(supervisor, lambda: len(yard.told) >= 2)
        assert supervisor.failing == ["driver"]
        look_until(supervisor, lambda: supervisor.ready)
        assert supervisor.pids("gateway") == [gateway]
    assert (
        "driver",
        f"was not started: {NO_TASKS}; it is started again in 0.25 s",
    ) in yard.told
