"""The resident task runs commands over a socket; whatever happens to it, the driver goes on without it."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client
from pathlib import Path

import pytest

from penstock.base.ids import Epoch
from penstock.model.request import Failure
from penstock.runtime.spark import messages, resident_task
from penstock.runtime.spark.messages import Reside, RunTransactions, TaskResult
from penstock.runtime.spark.resident_task import ResidentTask, UnixDoor, serve
from tests.waiting import wait_for

FAILED = TaskResult(failure=Failure("internal", "Internal", "it fails"))


def command(epoch: int) -> RunTransactions:
    return RunTransactions(
        Epoch(epoch), 1, 0, [], None, tracked=False, keep=False, publish=True, outputs=[],
        output_bytes_max=0, partitions=1,
    )  # fmt: skip


class Tasks:
    """Runs the task in the thread of its job; `perform` decides the result of each command.

    Attributes:
        sockets: The socket of each job.
        ended: The result of each task that has ended.
    """

    def __init__(self, perform: Callable[[RunTransactions], TaskResult]) -> None:
        self._perform = perform
        self.sockets: list[Path] = []
        self.ended: list[TaskResult] = []

    def submit(self, reside: Reside) -> None:
        self.sockets.append(Path(reside.socket))
        self.ended.append(serve(reside.socket, self._decoded, list))

    def _decoded(self, payload: bytes) -> TaskResult:
        decoded = messages.decode_command(payload)
        assert isinstance(decoded, RunTransactions)
        return self._perform(decoded)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[Tasks], ResidentTask]]:
    """Start resident tasks, and stop them after the test."""
    running: list[ResidentTask] = []

    def start(tasks: Tasks) -> ResidentTask:
        running.append(ResidentTask(tasks.submit, UnixDoor(tmp_path)))
        running[-1].start()
        return running[-1]

    yield start
    for task in running:
        task.stop()


def result_of(task: ResidentTask, epoch: int) -> TaskResult:
    """Ask until the task is there."""
    result: TaskResult = wait_for(lambda: task.run(command(epoch)), "the resident task")
    return result


def counted(one: RunTransactions) -> TaskResult:
    return TaskResult(aborts=one.epoch)


def test_commands_run_in_one_task(started: Callable[[Tasks], ResidentTask]) -> None:
    """One job serves many commands, each with its own result."""
    task = started(tasks := Tasks(counted))
    assert [result_of(task, epoch).aborts for epoch in range(50)] == list(range(50))
    assert len(tasks.sockets) == 1


def test_a_command_that_has_begun_runs_before_the_next_one(
    started: Callable[[Tasks], ResidentTask],
) -> None:
    """The driver does not wait for its result, and takes no result for that of another command."""
    ran: list[int] = []

    def noted(one: RunTransactions) -> TaskResult:
        ran.append(one.epoch)
        return FAILED if one.epoch == 5 else counted(one)

    task = started(Tasks(noted))
    assert result_of(task, 0).aborts == 0
    for epoch in (1, 3):
        task.begin(command(epoch))
        result = task.run(command(epoch + 1))
        assert result is not None
        assert result.aborts == epoch + 1
    task.begin(command(5))
    assert task.run(command(6)) is None, "the task has ended"
    assert result_of(task, 7).aborts == 7
    assert ran == [0, 1, 2, 3, 4, 5, 7]


def test_there_is_no_result_without_a_task(tmp_path: Path) -> None:
    """Without a task the caller gets nothing at once, and runs the command as a job."""
    task = ResidentTask(lambda _: None, UnixDoor(tmp_path))
    assert task.run(command(0)) is None


def test_a_task_that_fails_is_replaced(started: Callable[[Tasks], ResidentTask]) -> None:
    """The failure is the command's result; the task ends with it, and another job begins."""
    task = started(tasks := Tasks(lambda one: FAILED if one.epoch == 0 else counted(one)))
    assert result_of(task, 0) == FAILED
    assert result_of(task, 1).aborts == 1
    assert tasks.ended == [FAILED], "so that the worker is not used again"
    assert len(set(tasks.sockets)) == 2, "each job has its own socket"


def test_a_task_that_is_lost_gives_no_result(started: Callable[[Tasks], ResidentTask]) -> None:
    """A task that dies while it runs a command has no result; the next task runs the next command."""

    def die_once(one: RunTransactions) -> TaskResult:
        if one.epoch == 0:
            raise OSError("the process ends")
        return counted(one)

    task = started(Tasks(die_once))
    dies = threading.Event()

    def lost() -> bool:
        was_there = task.connected() is not None
        result = task.run(command(0))
        assert result is None
        if was_there:
            dies.set()
        return dies.is_set()

    wait_for(lost, "the death of the task")
    assert result_of(task, 1).aborts == 1


def test_a_task_ends_with_its_driver(started: Callable[[Tasks], ResidentTask]) -> None:
    """When the driver's end closes, the task returns an empty result, and no other job begins."""
    task = started(tasks := Tasks(counted))
    result_of(task, 1)
    task.stop()
    assert tasks.ended == [TaskResult()]
    assert task.run(command(2)) is None


def test_a_task_that_takes_no_command_is_killed(tmp_path: Path) -> None:
    """A process that hangs between two commands, as a stopped process does, is killed, and has no result."""
    hanging = """
        import sys, time
        from multiprocessing.connection import Client
        with Client(sys.argv[1], "AF_UNIX"):
            time.sleep(1_000)
        """
    ends: list[int] = []

    def submit(reside: Reside) -> None:
        program = [sys.executable, "-c", textwrap.dedent(hanging), reside.socket]
        ends.append(subprocess.run(program, check=False).returncode)

    task = ResidentTask(submit, UnixDoor(tmp_path, taken_s=0.05))
    task.start()
    wait_for(task.connected, "the resident task")
    assert task.run(command(0)) is None
    wait_for(lambda: ends, "the end of the process")
    task.stop()
    assert ends[0] == -signal.SIGKILL


def test_a_message_that_does_not_go_on_is_no_result(tmp_path: Path) -> None:
    """A handler that writes to all descriptors announces a long message, and the driver does not wait for it."""
    left = threading.Event()

    def submit(reside: Reside) -> None:
        with Client(reside.socket, "AF_UNIX") as driver, contextlib.suppress(EOFError):
            driver.recv_bytes()
            driver.send_bytes(b"taken")
            os.write(driver.fileno(), b"\x00\xffno protocol\n")
            driver.recv_bytes()  # until the driver has gone
        left.set()

    task = ResidentTask(submit, UnixDoor(tmp_path, taken_s=0.5))
    task.start()
    wait_for(task.connected, "the resident task")
    assert task.run(command(0)) is None
    assert left.wait(60)
    task.stop()


def test_socket_is_private_and_its_path_fits(tmp_path: Path) -> None:
    """Only the owner may connect; a path that is too long for the kernel is replaced."""
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    task = ResidentTask((tasks := Tasks(counted)).submit, UnixDoor(folder))
    task.start()
    assert result_of(task, 3).aborts == 3
    (path,) = tasks.sockets
    assert len(os.fsencode(path)) < 108
    assert path.stat().st_mode & 0o777 == 0o600
    task.stop()
    assert not path.exists(), "a copy of the data directory has no socket"
    assert not path.parent.exists() or path.parent == folder


def test_directory_without_sockets_is_replaced(tmp_path: Path) -> None:
    """Some file systems hold no sockets, such as shared folders of containers; the task runs all the same."""
    task = ResidentTask((tasks := Tasks(counted)).submit, UnixDoor(folder := tmp_path / "missing"))
    task.start()
    assert result_of(task, 3).aborts == 3
    task.stop()
    (path,) = tasks.sockets
    assert path.parent != folder
    assert not path.parent.exists()


def test_task_waits_for_a_directory_that_takes_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a full disk takes no socket, epochs are ordinary jobs; the driver goes on, and tries again."""
    # A whole path may be too long for a socket, and then no directory is enough.
    monkeypatch.chdir(tmp_path)
    folder, refused = Path("missing"), threading.Event()

    def refuse(purpose: str) -> contextlib.AbstractContextManager[Path]:
        refused.set()
        raise OSError(f"no space for {purpose}")

    monkeypatch.setattr(resident_task, "temporary_folder", refuse)
    task = ResidentTask((tasks := Tasks(counted)).submit, UnixDoor(folder))
    task.start()
    assert refused.wait(60)
    assert task.run(command(0)) is None
    folder.mkdir()
    assert result_of(task, 3).aborts == 3
    task.stop()
    assert [path.parent for path in tasks.sockets] == [folder]
