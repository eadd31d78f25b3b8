"""`Supervisor`: it starts, watches and restarts child processes, and stops them in order.

A child may have a spare: another process that waits to do its work. When the child ends, the spare's process
takes its place, and another spare starts when the other children are ready.

A child that ends unexpectedly is restarted at once, and after longer and longer pauses if it ends
again. A child whose exit code says that its options are wrong is not restarted. The supervisor gives
up after too many failures of a needed child; the SQL view is not needed, since only queries wait for
it, so its restarts go on. Further children may come and go while it runs; they are not needed either. No child outlives the supervisor: the standard input of each is a pipe that
closes when the supervisor ends, even if it is killed.
"""

import contextlib
import errno
import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.cli.error_output import USER_ERROR
from penstock.errors import ConfigError, OperationalError
from penstock.process.process_limits import NO_TASKS, is_lack_of_tasks

FAILURES_MAX: Final = 8
"""The number of failures without progress between them after which the supervisor gives up."""

_LIMITS: Final = (errno.ENOMEM, errno.EMFILE, errno.ENFILE)
PAUSE_S: Final = 0.25
PAUSE_MAX_S: Final = 10.0
STEADY_S: Final = 30.0
"""A child that was ready for so long has made progress."""

Say = Callable[[str, str], None]
"""Takes a role and a line: of a child's output, or an event of the child."""


def _nothing() -> object:
    return None


@dataclass(frozen=True, slots=True)
class Child:
    """A process to keep running.

    Attributes:
        role: The name of its kind; children of the same role are stopped together.
        ready: Takes a process id; says whether the process is doing its work.
        progress: Returns a value that changes when the child makes progress.
        stop_s: The time to end after SIGTERM, in seconds; then the child is killed.
        needed: Whether too many failures of it end the supervisor.
        patience_s: The longest time for which its first start waits until the children without
            patience are ready, so that it does not take the processor from them.
        ends: Whether its work has an end. Then a process with the exit code 0 is not started again.
        spare_of: The role of the child whose place its process takes; empty for none. A spare that cannot
            run is left out.
        again: Further words of the command line when the child is started again after its end, or starts after the
            others: what the command line names may have changed since they took it.
        when_dead: Called by a thread of its own when its process has ended unasked.
    """

    role: str
    command: Sequence[str]
    ready: Callable[[int], bool]
    progress: Callable[[], object] = _nothing
    stop_s: float = 60.0
    needed: bool = True
    patience_s: float = 0.0
    ends: bool = False
    spare_of: str = ""
    again: Sequence[str] = ()
    when_dead: Callable[[], object] | None = None


@dataclass(slots=True)
class _ProcessRun:
    """A child and its present process."""

    child: Child
    process: subprocess.Popen[bytes] | None = None
    relay: threading.Thread | None = None
    ready_since: float | None = None
    due: float = 0.0
    failures: int = 0
    has_ended: bool = False
    is_again: bool = False
    is_further: bool = False
    kill_at: float | None = None
    progress: object = field(default_factory=_nothing)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def is_ready(self) -> bool:
        """Whether the child does its work, or has done it."""
        return self.has_ended or self.ready_since is not None


class Supervisor:
    """Keeps children running; one thread calls `look` repeatedly."""

    def __init__(
        self,
        children: Sequence[Child],
        say: Say,
        tell: Say,
        changing: Callable[[], Sequence[Child]] = tuple,
    ) -> None:
        """Take the children in the order of their start; they stop in the reverse order.

        Args:
            children: The processes to run.
            say: Takes each line of a child's output.
            tell: Takes each event of a child, as a line.
            changing: Returns the further processes to run now; each look asks it. The same command is the same process.
        """
        self._changing = changing
        self._runs = [_ProcessRun(child) for child in children]
        self._say = say
        self._tell = tell
        self._began: float | None = None

    @property
    def ready(self) -> bool:
        """Whether every child does its work; spares and further children may still start."""
        runs = [run for run in self._runs if not run.child.spare_of and not run.is_further]
        return all(run.has_ended or (run.alive and run.is_ready) for run in runs)

    @property
    def failing(self) -> list[str]:
        """The roles of the children that have ended and do not do their work again."""
        return sorted({run.child.role for run in self._runs if run.failures and not run.is_ready})

    @property
    def waiting(self) -> list[str]:
        """The roles of the children that are not ready yet."""
        return sorted({run.child.role for run in self._runs if not run.is_ready})

    def pids(self, role: str) -> list[int]:
        """Return the ids of the running processes of a role."""
        return [
            run.process.pid
            for run in self._runs
            if run.child.role == role and run.process is not None and run.alive
        ]

    def look(self) -> None:
        """Note which children are ready, and start those that do not run.

        Raises:
            ConfigError: The options of a child are wrong.
            OperationalError: A child has failed too often.
        """
        now = time.monotonic()
        if self._began is None:
            self._began = now
        self._take_changes(now)
        for run in [run for run in self._runs if not run.has_ended]:
            if run.process is None:
                if now >= run.due and self._may_start(run.child, now - self._began):
                    self._try_to_start(run, now)
            elif (code := run.process.poll()) is not None:
                self._take_end(run, code, now)
            elif run.ready_since is None and run.child.ready(run.process.pid):
                run.ready_since = now
                if run.failures:
                    self._tell(run.child.role, "runs again")

    def _take_changes(self, now: float) -> None:
        """Add the children that have come, and end those that are not wanted any more; no look waits for an end."""
        wanted = {tuple(child.command): child for child in self._changing()}
        for run in [run for run in self._runs if run.is_further]:
            is_wanted = wanted.pop(tuple(run.child.command), None) is not None
            if is_wanted and run.kill_at is None:
                continue
            if not run.alive:
                if run.process is not None:
                    self._drop(run, wait_s=0.0)
                self._runs = [each for each in self._runs if each is not run]
            elif run.kill_at is None:
                run.kill_at, run.has_ended = now + run.child.stop_s, True
                _ask_to_end([run])
            elif now >= run.kill_at and run.process is not None:
                run.process.kill()
        self._runs += [_ProcessRun(child, is_further=True) for child in wanted.values()]

    def stop(self) -> None:
        """Ask the children to end, role after role, and wait; kill those that do not end in time.

        Those that do not do their work yet are asked first, all at once: no other child needs them to end.
        """
        _ask_to_end([run for run in self._runs if not run.is_ready])
        for _, group in itertools.groupby(reversed(self._runs), lambda run: run.child.role):
            runs = list(group)
            _ask_to_end([run for run in runs if run.is_ready])
            for run in runs:
                self._await_end(run)
                run.due, run.failures, run.has_ended, run.is_again = 0.0, 0, False, False
        self._began = None

    def kill(self) -> None:
        """End every child at once; safe in a signal handler."""
        for run in self._runs:
            if run.process is not None:
                run.process.kill()

    def _may_start(self, child: Child, since_s: float) -> bool:
        """Say whether a child need not wait for the others, `since_s` after the first look."""
        return since_s >= child.patience_s or all(
            run.is_ready for run in self._runs if not run.child.patience_s
        )

    def _try_to_start(self, run: _ProcessRun, now: float) -> None:
        """Start a child; if a limit of the system is reached, start it later: the other children do their work."""
        try:
            self._start(run)
        except (OSError, RuntimeError) as error:
            if is_lack_of_tasks(error):
                why = NO_TASKS
            elif isinstance(error, OSError) and error.errno in _LIMITS:
                why = os.strerror(error.errno)
            else:
                raise
            # It is no fault of the child: it is not given up.
            run.failures = min(run.failures + 1, FAILURES_MAX - 2)
            self._plan_restart(run, f"was not started: {why}", now)

    def _start(self, run: _ProcessRun) -> None:
        # Each child has its own session, so that Ctrl-C in a terminal reaches only the supervisor,
        # which stops the children in their order.
        is_late = run.is_again or run.child.patience_s > 0
        run.process = subprocess.Popen(  # noqa: S603 -- the commands are the caller's own
            [*run.child.command, *(run.child.again if is_late else ())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        run.ready_since = None
        run.relay = threading.Thread(
            target=self._pass_on, args=(run.child.role, run.process), daemon=True
        )
        try:
            run.relay.start()
        except RuntimeError:
            run.process.kill()
            with run.process:
                run.process = run.relay = None
            raise

    def _pass_on(self, role: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                of_process = [run.child.role for run in self._runs if run.process is process]
                self._say((of_process or [role])[0], line.decode(errors="replace").rstrip("\n"))

    def _take_end(self, run: _ProcessRun, code: int, now: float) -> None:
        role, progress = run.child.role, run.child.progress()
        if run.child.ends and code == 0:
            self._drop(run, wait_s=1.0)
            run.has_ended = True
            return
        steady = run.ready_since is not None and now - run.ready_since >= STEADY_S
        if steady or progress != run.progress:
            run.failures = 0
        run.failures += 1
        run.progress = progress
        given_up = run.failures >= FAILURES_MAX and (run.child.needed or run.child.spare_of)
        # The options of a further child may come from a deployment, and another deployment may correct them.
        is_wrong = code == USER_ERROR and not run.is_further
        hopeless = bool(is_wrong or given_up)
        self._drop(run, wait_s=1.0 if hopeless else 0.0)
        if hopeless:
            self._give_up(run, code)
        elif spare := self._take_spare(run):
            self._tell(role, f"ended with {_called(code)}; the {spare} takes over")
        else:
            if run.child.when_dead is not None:  # no look waits for it
                with contextlib.suppress(RuntimeError):  # it only saves time
                    threading.Thread(target=run.child.when_dead, daemon=True).start()
            self._plan_restart(run, f"ended with {_called(code)}", now)

    def _give_up(self, run: _ProcessRun, code: int) -> None:
        """Leave out a spare that cannot run; raise for another child."""
        role = run.child.role
        if run.child.spare_of:
            run.has_ended = True
            self._tell(role, "cannot run, and is not started again; its messages are above")
        elif code == USER_ERROR:
            raise ConfigError(f"the {role} cannot run: correct the error in its message above")
        else:
            raise OperationalError(
                f"the {role} has ended {run.failures} times in a row without progress "
                f"(last with {_called(code)}); its messages are above"
            )

    def _take_spare(self, run: _ProcessRun) -> str:
        """Give a child that has ended the process of its spare; return the spare's role, or no text without one."""
        for spare in self._runs:
            if spare.child.spare_of == run.child.role and spare.alive:
                run.process, run.relay = spare.process, spare.relay
                spare.process, spare.relay, spare.ready_since = None, None, None
                return spare.child.role
        return ""

    def _plan_restart(self, run: _ProcessRun, how: str, now: float) -> None:
        """Start a child again after a pause that grows with its failures.

        Args:
            how: The failure, as a predicate.
        """
        pause_s = 0.0 if run.failures == 1 else PAUSE_S * 2 ** (min(run.failures, FAILURES_MAX) - 2)
        run.due, run.is_again = now + min(pause_s, PAUSE_MAX_S), True
        when = f"in {run.due - now:.3g} s" if pause_s else "at once"
        self._tell(run.child.role, f"{how}; it is started again {when}")

    def _await_end(self, run: _ProcessRun) -> None:
        if run.process is None:
            return
        try:
            run.process.wait(run.child.stop_s)
        except subprocess.TimeoutExpired:
            self._tell(run.child.role, f"has not ended within {run.child.stop_s:g} s; it is killed")
            run.process.kill()
            run.process.wait()
        self._drop(run, wait_s=1.0)

    def _drop(self, run: _ProcessRun, wait_s: float) -> None:
        """Forget a process that has ended, after a short wait for the rest of its output.

        Processes that it has started and left behind may keep the pipe open for longer.
        """
        assert run.process is not None
        assert run.relay is not None
        assert run.process.stdin is not None
        run.relay.join(wait_s)
        with contextlib.suppress(BrokenPipeError):
            run.process.stdin.close()
        run.process, run.relay, run.ready_since = None, None, None


def _ask_to_end(runs: Sequence[_ProcessRun]) -> None:
    for run in runs:
        if run.alive and run.process is not None:
            run.process.terminate()


def _called(code: int) -> str:
    """Return a text for the end of a process."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
