"""Limits of a running handler: an endless loop or allocation ends, and costs its request alone."""

import builtins
import contextlib
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from types import FunctionType
from typing import Any

import msgspec
import pytest

from penstock import App, ConfigError, Entity, LimitExceeded, UserError, key
from penstock.base.ids import EntityKey, Lsn, RequestId
from penstock.engine.execute import Executor, Limits
from penstock.log.api import Record
from penstock.native.choice import core
from penstock.process import guard
from penstock.process.guard import Guard, TamperedWith
from penstock.testing import Kit
from tests.checkout import TOP

LOCK = threading.RLock()


def _write(lock: Any, lasts_s: float) -> None:
    lock.acquire()
    end = time.thread_time() + lasts_s
    while time.thread_time() < end:
        pass
    lock.release()


# Whoever looks at its frame takes it for code of the module.
write = FunctionType(_write.__code__, {"__name__": "logging.handlers", "time": time})


class Greedy(Entity):
    name: str = key()
    count: int = 0

    def step(self) -> int:
        self.count += 1
        return self.count

    def loop(self) -> None:
        self.count = 99
        while True:
            pass

    def loop_stubbornly(self) -> None:
        self.count = 99
        while True:
            try:
                while True:
                    pass
            except BaseException:  # noqa: BLE001 -- as in a careless handler
                return

    def retry(self) -> None:
        """Swallow each interrupt, as retry loops do."""
        self.count = 99
        while True:
            try:
                self.try_again()
            except BaseException:  # noqa: BLE001 -- as in a careless handler
                continue

    def try_again(self) -> None:
        for _ in range(10):
            try:
                self.count += 1
            except BaseException:  # noqa: BLE001 -- as in a careless handler
                self.count -= 1

    def wait_again(self) -> None:
        self.count = 99
        while True:
            with contextlib.suppress(BaseException):
                time.sleep(0.05)

    def press(self) -> None:
        """Raise SIGINT, as Ctrl-C does, while the handler runs."""
        signal.raise_signal(signal.SIGINT)

    def swallow_press(self) -> None:
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)

    def replace(self) -> None:
        """Replace a built-in name where nothing refuses it."""
        vars(builtins)["oct"] = lambda _: "7"

    def replace_method(self) -> None:
        Executor._encode = lambda *_: b"\x07"  # type: ignore[method-assign]

    def change_signals(self, how: str) -> None:
        """Let a signal raise in the transactions that follow, or let none come."""
        match how:
            case "handler":
                signal.signal(signal.SIGALRM, signal.default_int_handler)
            case "timer":
                signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            case "alarm":
                signal.alarm(1)
            case "descriptor":
                signal.set_wakeup_fd(-1)
            case _:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGPROF})

    def swallow(self) -> None:
        """Swallow every interrupt, and stay inside of the `try` for nearly all of the time."""
        while True:
            try:
                while True:
                    pass
            except BaseException:  # noqa: BLE001 -- as in a careless handler
                pass

    def write_lines(self, lasts_s: float) -> None:
        """Write a line, which takes some time, and then be in no code of Python's own."""
        write(LOCK, lasts_s)
        while True:
            pass

    def mask_and_work(self) -> int:
        """Let signals wait, until the timers have sent some."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGPROF})
        end = time.thread_time() + 0.4
        while time.thread_time() < end:
            self.count += 1
        return 7

    def spin_without_frames(self) -> int:
        """Call as deeply as possible, work there without a call, and return how often that began."""
        spins = [0]
        dive(spins, range(20_000_000))
        return spins[0]

    def length(self) -> str:
        return oct(0)

    def recurse(self, other: "Greedy") -> int:
        self.count = 99
        return other.recurse(self)

    def recurse_in_repr(self) -> str:
        value: Any = []
        for _ in range(100_000):  # since Python 3.14 the stack of the thread is the limit
            value = [value]
        return repr(value)

    def answer(self) -> bytes:
        return bytes(1 << 20)

    def allocate(self) -> int:
        self.count = 99
        return len([bytes(1 << 20) for _ in range(1 << 20)])


def dive(spins: list[int], numbers: range) -> bool:
    try:
        return dive(spins, numbers)
    except RecursionError:
        pass
    spins[0] += 1
    for _ in numbers:
        pass
    return True


app = App("greedy", Greedy)
LIMITS = Limits(time_ms=600, wall_ms=60_000, memory_bytes=64 << 20, depth=200)


@pytest.fixture
def kit() -> Kit:
    kit = Kit(app, limits=LIMITS)
    kit.call.Greedy.create("a")
    kit.call.Greedy.create("b")
    return kit


@pytest.mark.parametrize(
    ("method", "arguments", "limit"),
    [
        ("loop", (), "time_ms = 600"),
        ("loop_stubbornly", (), "time_ms = 600"),
        ("retry", (), r"Greedy\.retry ran longer than time_ms = 600 .*@limit\(time="),
        ("recurse", (Greedy("b"),), "depth = 200"),
        ("recurse_in_repr", (), "depth = 200"),
    ],
)
def test_greed_aborts_by_the_name_of_its_limit(
    kit: Kit, method: str, arguments: tuple[Any, ...], limit: str
) -> None:
    """A handler beyond a limit is undone, says which, and the next request runs as ever."""
    before = kit.digest()
    with pytest.raises(LimitExceeded, match=limit):
        getattr(kit.call.Greedy("a"), method)(*arguments)
    assert kit.digest() == before
    assert kit.call.Greedy("a").step() == 1


def test_memory_has_a_limit() -> None:
    """It is one of the whole process, so this process has no other thread that could get no memory meanwhile."""
    done = ended(
        """
        from penstock import LimitExceeded
        from penstock.testing import Kit
        from tests.unit.process.test_guard import LIMITS, app

        kit = Kit(app, limits=LIMITS)
        kit.call.Greedy.create("a")
        before = kit.digest()
        try:
            kit.call.Greedy("a").allocate()
        except LimitExceeded as error:
            print(error)
        assert kit.digest() == before
        assert kit.call.Greedy("a").step() == 1
        """
    )
    assert done.returncode == 0, done.stderr
    assert "memory_bytes = 67108864" in done.stdout


def test_limits_are_lifted_afterwards(kit: Kit) -> None:
    """After a handler has run, the guard's changes of the process are undone."""

    def settings() -> tuple[Any, ...]:
        return (
            sys.getrecursionlimit(),
            resource.getrlimit(resource.RLIMIT_DATA),
            signal.getsignal(signal.SIGALRM),
        )

    before = settings()
    kit.call.Greedy("a").step()
    with pytest.raises(LimitExceeded):
        kit.call.Greedy("a").loop()
    assert settings() == before


@pytest.mark.parametrize("method", ["press", "swallow_press"])
def test_ctrl_c_ends_who_runs_a_handler(kit: Kit, method: str) -> None:
    """SIGINT is for the process, also if a handler swallows it; the request has no outcome."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark has one of its own
    try:
        with pytest.raises(KeyboardInterrupt):
            getattr(kit.call.Greedy("a"), method)()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert kit.call.Greedy("a").step() == 1
    finally:
        signal.signal(signal.SIGINT, before)


def test_no_transaction_pays_for_the_memory_of_those_before_it(kit: Kit) -> None:
    """Replies that add up to three times the limit are kept, and none of them is refused."""
    kit.call.Greedy("a").step()
    body, _ = app.request("Greedy", "a", "answer")
    records = [Record(Lsn(n), RequestId(f"answer-{n}"), body, 0) for n in range(192)]
    replies = kit.runtime.replay(records)
    assert [reply.error for reply in replies] == [None] * 192


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("replace", ["replace", "replace_method"])
def test_a_replaced_name_reaches_no_other_transaction(batched: bool, replace: str) -> None:  # noqa: FBT001
    """It is put back behind its transaction; a batch that ran with it is given up, and run again."""
    state: dict[EntityKey, bytes] = {}
    executor = Executor(app, state.get, LIMITS)
    answers: list[str | None] = []

    def run(*methods: str) -> None:
        with Guard(executor, LIMITS, batched=batched) as guard:
            for method in guard.each(methods):
                body, _ = app.request("Greedy", "a", method)
                outcome = executor.run(RequestId("r"), body, 0)
                state.update({key: data for key, data in outcome.writes.items() if data})
                answers.append(outcome.error or str(msgspec.msgpack.decode(outcome.reply)))

    run("create")
    if batched:
        with pytest.raises(TamperedWith):
            run(replace, "length")
        answers.clear()
    run(replace)
    run("length")
    assert answers[-1] == "0o0"
    run("length", *["length"] * 40)
    assert answers[-1] == "0o0"


def test_a_failure_does_not_hide_a_replaced_name() -> None:
    """Names are restored when a transaction fails; those between it and the replacement ran with the wrong name."""
    state: dict[EntityKey, bytes] = {}
    executor = Executor(app, state.get, LIMITS)
    body, _ = app.request("Greedy", "a", "create")
    created = executor.run(RequestId("r"), body, 0)
    state.update({key: data for key, data in created.writes.items() if data})

    def run(*methods: str) -> None:
        with Guard(executor, LIMITS, batched=True) as guard:
            for method in guard.each(methods):
                arguments = (Greedy("a"),) if method == "recurse" else ()
                body, _ = app.request("Greedy", "a", method, arguments)
                executor.run(RequestId("r"), body, 0)

    with pytest.raises(TamperedWith):
        run("replace", "length", "recurse", "length")
    assert oct(0) == "0o0"


@pytest.mark.parametrize("how", ["handler", "timer", "alarm", "descriptor"])
def test_signals_cannot_be_changed(kit: Kit, how: str) -> None:
    """A signal that raises, or no longer comes, would concern the transactions that follow."""
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[1]
    with pytest.raises(UserError, match=r"signal handlers|timers"):
        kit.call.Greedy("a").change_signals(how)
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[1]) == before


def test_blocked_signals_come_again(kit: Kit) -> None:
    """The time limit holds for later requests, also if a handler has blocked its signals."""
    kit.call.Greedy("a").change_signals("mask")
    with pytest.raises(LimitExceeded, match="time_ms"):
        kit.call.Greedy("a").loop()
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & {signal.SIGALRM, signal.SIGPROF}


def test_a_handler_is_interrupted_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may have no interrupt outside of the `try` in the first moments, here in the first two times."""
    begin, graces_s = guard.Guard._begin_to_insist, iter([0.0, 0.0])

    def begin_to_insist(self: guard.Guard) -> None:
        monkeypatch.setattr(guard, "GRACE_S", next(graces_s, 60.0))
        begin(self)

    monkeypatch.setattr(guard.Guard, "_begin_to_insist", begin_to_insist)
    kit = Kit(app, limits=Limits(time_ms=20, wall_ms=60_000))
    kit.call.Greedy.create("a")
    with pytest.raises(LimitExceeded, match="time_ms"):
        kit.call.Greedy("a").swallow()
    assert kit.call.Greedy("a").step() == 1


def test_an_interrupt_leaves_no_lock_of_logging_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits until the handler is in other code: another thread could log no line."""
    monkeypatch.setattr(guard, "GRACE_S", 60.0)
    kit = Kit(app, limits=Limits(time_ms=50, wall_ms=60_000))
    kit.call.Greedy.create("a")
    with pytest.raises(LimitExceeded, match="time_ms"):
        kit.call.Greedy("a").write_lines(0.2)
    free: list[bool] = []
    other = threading.Thread(target=lambda: free.append(LOCK.acquire(blocking=False)))
    other.start()
    other.join()
    assert free == [True]


def test_a_line_that_is_never_written_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt does not wait for ever."""
    monkeypatch.setattr(guard, "GRACE_S", 0.1)
    kit = Kit(app, limits=Limits(time_ms=50, wall_ms=60_000))
    kit.call.Greedy.create("a")
    with pytest.raises(LimitExceeded, match="time_ms"):
        kit.call.Greedy("a").write_lines(1e9)
    while LOCK._is_owned():  # type: ignore[attr-defined]
        LOCK.release()
    assert kit.call.Greedy("a").step() == 1


@pytest.mark.skipif(core is None, reason="a function of Python needs a frame to run a tick")
def test_a_tick_needs_no_frame_of_the_handler(kit: Kit) -> None:
    """A handler that has called as deeply as it can goes on there: no tick of the clock is an error in it."""
    assert [kit.call.Greedy("a").spin_without_frames() for _ in range(3)] == [1] * 3


def test_late_ticks_reach_nobody(kit: Kit) -> None:
    """A signal of a timer that is pending at the end does not end the process, or a test, whose handler comes back then."""
    pressed: list[int] = []
    former = signal.signal(signal.SIGALRM, lambda number, _: pressed.append(number))
    try:
        assert kit.call.Greedy("a").mask_and_work() == 7
        assert not signal.sigpending()
        assert pressed == []
    finally:
        signal.signal(signal.SIGALRM, former)


def test_depth_is_limited_in_every_thread(kit: Kit) -> None:
    """Threads get no signals; recursion ends there all the same."""
    caught: list[BaseException] = []

    def run() -> None:
        try:
            kit.call.Greedy("a").recurse(Greedy("b"))
        except LimitExceeded as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(timeout=300)
    assert "depth" in str(caught)


def ended(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, and return how it ended."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_handler_that_waits_has_a_bound_by_the_clock() -> None:
    """It uses no processor time, and swallows the interrupts; the message says that it waits."""
    kit = Kit(app, limits=Limits(time_ms=100, wall_ms=1_000))
    kit.call.Greedy.create("a")
    with pytest.raises(LimitExceeded, match=r"Greedy\.wait_again .* wall_ms = 1000 by the clock"):
        kit.call.Greedy("a").wait_again()
    assert kit.call.Greedy("a").step() == 1


def test_a_bound_by_the_clock_is_the_wider_one() -> None:
    """A shorter one would leave the other without effect."""
    with pytest.raises(ConfigError, match=r"raise limits\.wall_ms, too"):
        Limits(time_ms=60_000)


STUCK = """
from contextlib import suppress
from penstock import App, Entity, LimitExceeded, key
from penstock.base.ids import RequestId
from penstock.engine.execute import Executor, Limits
from penstock.process import guard
from penstock.testing import Kit
from tests.checkout import TOP

class Stuck(Entity):
    name: str = key()
    def stick(self, turns: int) -> int:
        return sum(range(turns))

app, limits, state = App("stuck", Stuck), Limits(time_ms=50), {}
guard.GRACE_S = 0.05
"""


def test_a_handler_stuck_in_c_is_shown_in_a_test() -> None:
    """A process of the user is not ended: it shows the stack, and goes on when the call returns."""
    program = """
        kit = Kit(app, limits=limits)
        kit.call.Stuck.create("a")
        with suppress(LimitExceeded):  # it depends on the clock whether the call ends between two looks
            kit.call.Stuck("a").stick(30_000_000)
        print("goes on")
    """
    done = ended(STUCK + textwrap.dedent(program))
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    assert "stick" in done.stderr


def test_a_handler_stuck_in_c_ends_a_process_of_its_own() -> None:
    """Where Penstock has started the process, a call that never returns to the interpreter ends it."""
    program = """
        executor = Executor(app, state.get, limits)
        for method, arguments in (("create", []), ("stick", [10**15])):
            body, _ = app.request("Stuck", "a", method, arguments)
            with guard.Guard(executor, limits):
                state |= executor.run(RequestId(method), body, 0).writes
    """
    done = ended(STUCK + textwrap.dedent(program))
    assert done.returncode == -signal.SIGPROF
    assert "stick" in done.stderr


def test_a_handler_that_closes_files_is_noticed() -> None:
    """Its batch does not count, and no later file gets the number of a standard stream."""
    program = """
        import os, sys
        from penstock import App, Entity, key
        from penstock.base.ids import RequestId
        from penstock.engine.execute import Executor, Limits
        from penstock.process.guard import Guard, TamperedWith

        class Closer(Entity):
            name: str = key()
            def close(self, first: int, last: int) -> None:
                os.closerange(first, last)

        app = App("closer", Closer)
        executor = Executor(app, {}.get, Limits())

        def run(first, last):
            guard = Guard(executor, Limits(), batched=True)
            with guard:
                for _ in guard.each([0]):
                    body, _ = app.request("Closer", "a", "create")
                    executor.run(RequestId("a"), body, 0)
                    Closer.close(None, first, last)

        kept = os.dup(1)
        run(0, 3)
        assert os.open("/", os.O_RDONLY) > kept, "a socket would be a standard stream"
        for times in range(2):
            try:
                run(3, 1_000)
            except TamperedWith as error:
                assert "closed files" in str(error)
            else:
                sys.exit("not noticed")
        run(1_000, 1_001)
    """
    done = ended(program)
    assert done.returncode == 0, done.stderr
