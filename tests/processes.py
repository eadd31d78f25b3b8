"""Runs the tests in several processes, which are forked when all tests have been collected: `pytest --processes 4`.

A process takes one file after the other. What a module sets up is set up once, what a session sets up
once in each process. To import and to collect the suite takes more than ten seconds of a processor, which
processes that start by themselves would each take. If a process dies, its test has failed, and
another process is forked for the rest of its file.
"""

import atexit
import gc
import os
import signal
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import pytest

from tests.waiting import wait_for

BROWSER = "tests/browser/"
GRACE_S = 60.0
LOOK_S = 5.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--processes`."""
    parser.addoption(
        "--processes",
        type=int,
        default=0,
        metavar="COUNT",
        help="run the files of tests in so many processes; 0 is this process alone",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests, if `--processes` asks for more than this process; else leave them to pytest."""
    processes: int = session.config.option.processes
    if not processes or session.config.option.collectonly or session.testsfailed:
        return None
    Crew(session).run(processes)
    return True


def shares_of(items: Iterable[pytest.Item]) -> deque[list[int]]:
    """Give each file to one process, and the tests in a browser to two.

    Each process that runs tests in a browser starts a browser and an application of its own.
    """
    shares: dict[str, list[int]] = {}
    in_browser: dict[str, str] = {}
    for index, item in enumerate(items):
        file = item.nodeid.partition("::")[0]
        if file.startswith(BROWSER):
            file = in_browser.setdefault(file, f"{BROWSER}{len(in_browser) % 2}")
        shares.setdefault(file, []).append(index)
    return deque(shares.values())


@dataclass
class Member:
    """One process.

    Attributes:
        share: The tests of its file that have not ended.
        running: Whether the first of them has begun.
        is_told: Whether it knows that no file is left.
    """

    pid: int
    connection: Connection
    share: deque[int] = field(default_factory=deque)
    running: bool = False
    is_told: bool = False


class Crew:
    """The process that has collected the tests, and those that run them."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._hook = session.config.hook
        self._shares = shares_of(session.items)
        self._members: dict[Connection, Member] = {}
        self._numbers = count()

    def run(self, processes: int) -> None:
        """Run all tests, and report them as they end."""
        # Made before the fork, and the same for all.
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        try:
            for _ in range(min(processes, len(self._shares))):
                self._fork()
            while self._members:
                for connection in wait([*self._members], LOOK_S) or self._dead():
                    self._hear(self._members[cast("Connection", connection)])
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            self._end()

    def _dead(self) -> list[Connection]:
        """Return the connections of processes that have ended; what a test has left running may keep them open."""
        return [
            connection
            for connection, member in self._members.items()
            if os.waitid(os.P_PID, member.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        ]

    def _fork(self) -> None:
        ours, theirs = Pipe()
        number = next(self._numbers)
        gc.freeze()  # a collection of garbage would copy the pages of everything
        with warnings.catch_warnings():  # the threads of libraries, which know of forks
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            for member in self._members.values():
                member.connection.close()
            ours.close()
            _live(self._session, theirs, number)
        theirs.close()
        self._members[ours] = Member(pid, ours)
        self._give(self._members[ours])

    def _give(self, member: Member) -> None:
        """Let a process run the next file, or end."""
        share = self._shares.popleft() if self._shares else []
        member.share = deque(share)
        member.is_told = not share
        with suppress(OSError):  # it has died, which the next look at it finds
            member.connection.send(share)

    def _hear(self, member: Member) -> None:
        try:
            if not member.connection.poll():
                raise EOFError
            word, facts = member.connection.recv()
        except (EOFError, OSError):
            self._bury(member)
            return
        if word == "idle":
            self._give(member)
        elif word == "broken":
            self._complain(facts)
        elif word == "report":
            self._report(facts)
        else:
            self._follow(member, word, facts)

    def _follow(self, member: Member, word: str, facts: dict[str, Any]) -> None:
        """Tell the plugins of this process what those of another one were told."""
        if word == "pytest_runtest_logstart":
            member.running = True
        elif word == "pytest_runtest_logfinish":
            member.running = False
            member.share.popleft()
        hook = getattr(self._hook, word)
        if word == "pytest_warning_recorded":
            hook.call_historic(kwargs=facts)
        else:
            hook(**facts)

    def _report(self, data: dict[str, Any]) -> None:
        report = self._hook.pytest_report_from_serializable(config=self._session.config, data=data)
        self._hook.pytest_runtest_logreport(report=report)

    def _bury(self, member: Member) -> None:
        """Report the test with which a process has died, and let another one run the rest of its file."""
        del self._members[member.connection]
        member.connection.close()
        _, status = os.waitpid(member.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if member.is_told:
            if code:
                self._complain(f"a process of tests has ended with {code}")
            return
        item = self._session.items[member.share[0]]
        told = f"the process of this test has ended with {code}"
        if member.running:
            member.share.popleft()
        else:
            told = f"the process has ended with {code} before this test"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", told, "call")
        self._hook.pytest_runtest_logreport(report=report)
        if member.running:
            self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if member.share:
            self._shares.appendleft([*member.share])
        if self._shares:
            self._fork()

    def _complain(self, text: str) -> None:
        """Let the run fail for something that belongs to no test."""
        self._session.testsfailed += 1
        reporter = self._session.config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"\n{text}", red=True)

    def _end(self) -> None:
        """End the processes that still run, as Ctrl-C does, so that they end what their tests have started."""
        for member in self._members.values():
            with suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGINT)
            member.connection.close()
        for member in self._members.values():
            try:
                wait_for(lambda pid=member.pid: os.waitpid(pid, os.WNOHANG)[0], "an end", GRACE_S)  # type: ignore[misc]
            except AssertionError:
                os.kill(member.pid, signal.SIGKILL)
                os.waitpid(member.pid, 0)


class Teller:
    """Tells the first process how tests begin and end."""

    def __init__(self, config: pytest.Config, tell: Callable[[tuple[str, Any]], None]) -> None:
        self._config = config
        self._tell = tell

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._tell(("pytest_runtest_logstart", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._tell(("pytest_runtest_logfinish", {"nodeid": nodeid, "location": location}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        self._tell(("report", data))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        warning_message.source = None  # any object
        facts = {"warning_message": warning_message, "when": when, "nodeid": nodeid}
        self._tell(("pytest_warning_recorded", {**facts, "location": location}))


def _live(session: pytest.Session, connection: Connection, number: int) -> None:
    """Be a process of tests, and end it."""
    code = 1
    try:
        _prepare(session.config, connection, number)
        try:
            while share := connection.recv():
                _run(session, share)
                connection.send(("idle", None))
        finally:
            session._setupstate.teardown_exact(None)
        code = 0
    except (KeyboardInterrupt, EOFError):
        code = 130
    except BaseException:  # noqa: BLE001 -- the other process tells it
        with suppress(OSError):
            connection.send(("broken", traceback.format_exc()))
    finally:
        with suppress(BaseException):
            atexit._run_exitfuncs()
        os._exit(code)


def _prepare(config: pytest.Config, connection: Connection, number: int) -> None:
    """Take what only one process may have: the output, the place of files."""
    manager = config.pluginmanager
    capture: Any = manager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    manager.unregister(name="terminalreporter")
    manager.register(Teller(config, connection.send))
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.getbasetemp() / f"process{number}"
    factory._basetemp.mkdir(mode=0o700)


def _run(session: pytest.Session, share: list[int]) -> None:
    """Run the tests of a file; what belongs to the session remains."""
    items = [session.items[index] for index in share]
    for item, following in zip(items, [*items[1:], session], strict=True):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
