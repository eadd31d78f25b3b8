"""A resident task of another host: only tasks of the run connect, and its warden watches, ends and tells.

Each warden runs in a process of its own, as in an executor, with the real worker loop behind it and a work of the test.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec
import psutil
import pytest

from penstock.base.ids import Epoch
from penstock.engine.limits import TimeLimit
from penstock.files.layout import HOST_ID
from penstock.model.request import Failure
from penstock.process.presence import start_of
from penstock.runtime.spark import messages, reception, warden
from penstock.runtime.spark.frames import connect, new_credentials
from penstock.runtime.spark.messages import (
    Hello,
    Reside,
    RunTransactions,
    Seat,
    TaskCommand,
    TaskMessage,
    TaskResult,
)
from penstock.runtime.spark.quarantine import Quarantine, add_deaths, condemned_in, deaths_of
from penstock.runtime.spark.reception import Reception, RemoteDoor
from penstock.runtime.spark.resident_task import ResidentTask, answer
from tests.forked import processes
from tests.waiting import wait_for

CREDENTIALS = new_credentials()
RUN = "4711-abc"
LOCAL = "127.0.0.1"


def command(epoch: int, **more: bytes) -> RunTransactions:
    return RunTransactions(
        Epoch(epoch), 1, 0, [], more.get("does", b"reply"), tracked=False, keep=False, publish=True,
        outputs=[], output_bytes_max=0, partitions=1,
    )  # fmt: skip


def misbehave(how: bytes, quarantine: Quarantine) -> None:
    match how:
        case b"die":
            os.kill(os.getpid(), signal.SIGKILL)
        case b"die with the warden":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        case b"close":
            os.closerange(3, 65_536)
        case b"overdue":  # in a loop in C, which no interrupt ends
            quarantine.note_due(TimeLimit(10, 20, is_declared=False), 1 << 40, 1)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})
            time.sleep(600)
        case b"hang":
            time.sleep(600)
        case _:
            pass


def work(connection: Connection, notes: Path) -> None:
    """Answer commands as a worker does; the positions of a command say what its handler does."""

    def perform(payload: bytes) -> TaskResult:
        given = messages.decode_message(payload).command
        assert isinstance(given, RunTransactions)
        with Quarantine(notes / f"e{given.epoch}-r1-t0.running") as quarantine:
            if 7 in quarantine.poisoned:
                return TaskResult(output="set aside")
            quarantine.now[0] = 7
            assert given.positions is not None
            misbehave(given.positions, quarantine)
            if given.positions == b"fail":
                return TaskResult(failure=Failure("internal", "Internal", "it fails"))
        return TaskResult(output=f"{os.getpid()}")

    answer(connection, perform, list)


class Driver:
    """The driver's end of one resident task, whose wardens are processes of this machine with a root of their own.

    Attributes:
        root: The root of the host.
        scratch: The scratch of the driver.
        task: The task.
        wardens: The processes of the wardens, in the order of their jobs.
    """

    def __init__(self, top: Path) -> None:
        self.root, self.scratch = top / "host", top / "scratch"
        self.scratch.mkdir()
        self.wardens: list[BaseProcess] = []
        self.lost: list[dict[str, str]] = []
        self.reception = Reception(LOCAL, CREDENTIALS, self._take)
        address = self.reception.address
        seat = Seat(address, CREDENTIALS, str(self.root), "/driver", RUN, 1_000.0)
        self.door: RemoteDoor = self.reception.door("resident0", seat)
        self.task = ResidentTask(self._submit, self.door, encode=self._encode, on_deaths=self._take)
        self.task.start()

    def _submit(self, reside: Reside) -> None:
        assert reside.seat is not None
        process = processes().Process(target=warden.attend, args=(reside.socket, reside.seat, work))
        self.wardens.append(process)
        process.start()
        process.join()

    def _encode(self, given: TaskCommand) -> bytes:
        assert isinstance(given, RunTransactions)
        deaths = deaths_of(self.scratch, given.epoch)
        return messages.encode(TaskMessage(b"", given, deaths))

    def _take(self, deaths: dict[str, str]) -> None:
        self.lost.append(deaths)
        add_deaths(self.scratch, deaths, 3)

    def run(self, epoch: int, does: bytes = b"reply") -> TaskResult | None:
        wait_for(self.task.connected, "the resident task")
        return self.task.run(command(epoch, does=does))

    def until(self, epoch: int, does: bytes) -> TaskResult:
        """Run a command until it has a result."""
        result: TaskResult = wait_for(lambda: self.run(epoch, does), "a result")
        return result

    def close(self) -> None:
        self.task.stop()
        self.reception.close()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    """A driver with one resident task."""
    made = Driver(tmp_path)
    yield made
    made.close()


def test_commands_run_on_the_host(driver: Driver) -> None:
    """One worker runs one command after the other; the driver knows its host and its process."""
    first, second = driver.until(1, b"reply"), driver.until(2, b"reply")
    hello = driver.door.hello
    assert hello is not None
    assert first.output == second.output == str(hello.pid)
    assert hello.start == start_of(hello.pid)
    assert hello.host == (driver.root / HOST_ID).read_text()
    driver.close()
    wait_for(lambda: not psutil.pid_exists(hello.pid), "the end of the worker")
    assert list((driver.root / "scratch").iterdir()) == []


def test_a_transaction_that_kills_its_worker_is_found(driver: Driver) -> None:
    """Each death is told at once with the position that ran; after two the position does not run again, on any host."""
    assert driver.run(3, b"die") is None
    assert driver.lost == [{"e3-r1-t0.deaths": "7 "}]
    driver.root.joinpath(HOST_ID).unlink()  # so the next one is of another host
    assert driver.until(3, b"die").output == "set aside"
    assert len(driver.lost) == 2
    assert condemned_in(driver.scratch, 3) == 1


def test_a_warden_that_dies_leaves_the_notes_to_the_next_one(driver: Driver) -> None:
    """A handler may kill its warden, too: then the next task of the host tells its death."""
    assert driver.run(3, b"die with the warden") is None
    wait_for(driver.task.connected, "the next task")
    wait_for(lambda: driver.lost == [{"e3-r1-t0.deaths": "7 "}], "its note")
    assert driver.until(3, b"reply").output.isdigit(), "one death can be an accident"


@pytest.mark.parametrize("does", [b"close", b"hang"])
def test_a_worker_that_answers_no_more_is_ended(driver: Driver, does: bytes) -> None:
    """A worker whose handler has closed its files, or hangs when the driver leaves, does not stay."""
    wait_for(driver.task.connected, "the resident task")
    hello = driver.door.hello
    assert hello is not None
    if does == b"close":
        assert driver.run(3, does) is None
    else:
        thread = threading.Thread(target=driver.run, args=(3, does))
        thread.start()
        wait_for(lambda: list(driver.root.glob("scratch/*/e3-r1-t0.running")), "the handler")
        driver.wardens[0].kill()  # a host that is lost
        thread.join()
    wait_for(lambda: not psutil.pid_exists(hello.pid), "the end of the worker")
    assert driver.until(4, b"reply").output.isdigit()


def test_a_failure_ends_the_worker(driver: Driver) -> None:
    """The failure is the result of the command, and the next command runs in another worker."""
    result = driver.run(3, b"fail")
    assert result is not None
    assert result.failure is not None
    assert not result.died
    assert driver.until(4, b"reply").output.isdigit()
    assert len(driver.wardens) == 2


def test_a_handler_that_cannot_be_interrupted_is_judged_on_its_host(driver: Driver) -> None:
    """The watchdog of the warden ends its worker, and the verdict reaches the driver with the limit."""
    assert driver.run(3, b"overdue") is None
    ((verdict, text),) = (
        item for lost in driver.lost for item in lost.items() if item[0] == "verdicts"
    )
    assert (verdict, text) == ("verdicts", "3 7 wall_ms 10 20 0\n")
    assert driver.until(3, b"overdue").output == "set aside"
    assert condemned_in(driver.scratch, 3) == 1


def test_who_has_no_key_of_the_run_is_no_task(driver: Driver) -> None:
    """A connection without TLS, or with the certificate of another run, ends; the task is served meanwhile."""
    with socket.create_connection(driver.reception.address) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        other = None
        try:
            other = connect(driver.reception.address, new_credentials(), 10.0)
            other.send_bytes(messages.encode(_hello("resident0-0")))
            with pytest.raises((OSError, EOFError)):
                other.recv_bytes()
        except OSError:
            pass  # the handshake may tell it at once
        finally:
            if other is not None:
                other.close()
        assert driver.until(1, b"reply").output.isdigit()


def _hello(job: str, **other: str) -> Hello:
    mine = Hello(job, reception.own_python(), reception.own_penstock(), "host", 1, "start")
    return msgspec.structs.replace(mine, **other)


@pytest.mark.parametrize(
    ("other", "told"),
    [({"python": "3.9"}, "runs Python 3.9"), ({"penstock": "0.0.1"}, "runs Penstock 0.0.1")],
)
def test_a_host_with_other_versions_is_refused(
    driver: Driver, other: dict[str, str], told: str
) -> None:
    """Its task is sent away, and the reason has the remedy."""
    frames = connect(driver.reception.address, CREDENTIALS, 10.0)
    frames.send_bytes(messages.encode(_hello("resident0-0", **other)))
    with pytest.raises((OSError, EOFError)):
        frames.recv_bytes()
    frames.close()
    wait_for(lambda: told in driver.reception.refusal, "the refusal")
    assert "install the same" in driver.reception.refusal


def test_a_task_of_an_earlier_job_is_sent_away(driver: Driver) -> None:
    """It cannot answer a command of the present job."""
    driver.until(1, b"reply")
    frames = connect(driver.reception.address, CREDENTIALS, 10.0)
    frames.send_bytes(messages.encode(_hello("resident0-99")))
    with pytest.raises((OSError, EOFError)):
        frames.recv_bytes()
    frames.close()
    assert driver.until(2, b"reply").output.isdigit()
