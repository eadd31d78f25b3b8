"""Where commands run on a cluster: at home or on all hosts, again elsewhere, and never without a host.

The tasks are threads that connect as those of other hosts do.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import ONLY_PARTITION, Epoch, Lsn, RequestId
from penstock.errors import ConfigError, OperationalError, StateUnavailable
from penstock.files.local_root import LocalRoot
from penstock.log.api import Entry
from penstock.model.request import Failure
from penstock.process.config import Config
from penstock.runtime.spark import cluster_jobs, messages, worker_process
from penstock.runtime.spark.cluster_jobs import ClusterJobs, Membership
from penstock.runtime.spark.frames import connect
from penstock.runtime.spark.messages import (
    ApplyEpoch,
    Hello,
    LogRange,
    Peer,
    Peers,
    Reside,
    RunTransactions,
    TaskCommand,
    TaskMessage,
    TaskResult,
    worker_settings,
)
from penstock.runtime.spark.reception import own_penstock, own_python
from penstock.runtime.spark.resident_task import answer
from tests.memory_log import MemoryLog
from tests.waiting import wait_for

RECORDS = 6


class Cluster(ClusterJobs):
    """Jobs whose tasks are threads; the host of each task is `hosts[n]`, and empty text is no host.

    Attributes:
        ran: The host and the command of each run.
        behave: Is called before each command, with its host.
        penstock: The version of the hosts.
        full: The host whose disk is full.
    """

    def __init__(self, top: Path, hosts: Sequence[str], wanted: int) -> None:
        config = Config(
            top / "data", cores=len(hosts), master="spark://127.0.0.1:1", master_secret=top / "s",
            host_data=top / "host", hosts=wanted,
        )  # fmt: skip
        (top / "scratch").mkdir()
        log = MemoryLog()
        log.append([Entry(RequestId(f"r{n}"), b"%d" % n, b"", n) for n in range(RECORDS)])
        settings = worker_settings("app", config, top / "scratch")
        self.hosts_of_tasks = list(hosts)
        self.ran: list[tuple[str, Any]] = []
        self.behave: Callable[[str], object] = lambda _: None
        self.penstock = own_penstock()
        self.full = ""
        self.stopping = threading.Event()
        self.use(settings)
        self.partitions = len(hosts)
        self._prepare(settings, config, log, self.stopping)

    def _run_job(self, commands: Sequence[TaskCommand]) -> list[TaskResult]:
        (reside,) = commands
        assert isinstance(reside, Reside)
        assert reside.seat is not None
        number = int(reside.socket.partition("-")[0].removeprefix("resident"))
        if not (host := self.hosts_of_tasks[number]):
            self.stopping.wait(60)
            return [TaskResult()]
        frames = connect(reside.seat.address, reside.seat.credentials, 10.0)
        hello = Hello(reside.socket, own_python(), self.penstock, host, number, "start")
        frames.send_bytes(messages.encode(hello))

        def perform(payload: bytes) -> TaskResult:
            command = messages.decode_message(payload).command
            self.behave(host)
            self.ran.append((host, command))
            failure = None
            if host == self.full and isinstance(command, RunTransactions):
                failure = Failure("state-unavailable", "StateUnavailable", "the disk is full")
            return TaskResult(output=host, failure=failure)

        with suppress(EOFError):
            answer(frames, perform, list)
        frames.close()
        return [TaskResult()]

    def runs(self) -> list[tuple[str, RunTransactions]]:
        """Return the runs of transactions."""
        return [(host, ran) for host, ran in self.ran if isinstance(ran, RunTransactions)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Make clusters, and stop them after the test."""
    made: list[Cluster] = []

    def make(*hosts: str, wanted: int = 0, start: bool = True) -> Cluster:
        made.append(Cluster(tmp_path, hosts, wanted or len(set(hosts) - {""})))
        if start:
            made[-1].start_resident()
            there = [host for host in hosts if host]
            wait_for(lambda: len(made[-1].tasks()) == len(there), "tasks")
            wait_for(lambda: len(made[-1].ran) == len(there), "the application in each")
            wait_for(lambda: not any(task.is_new for task in made[-1]._tasks), "loaded tasks")
        return made[-1]

    yield make
    for each in made:
        each.stopping.set()
        each.stop_resident()


def command(epoch: int, positions: bytes | None = None) -> RunTransactions:
    ranges = [LogRange(ONLY_PARTITION, Lsn(0), Lsn(RECORDS))]
    return RunTransactions(
        Epoch(epoch), 1, 0, ranges, positions, tracked=False, keep=False, publish=True, outputs=[],
        output_bytes_max=0, partitions=1,
    )  # fmt: skip


def test_small_epochs_stay_at_home(cluster: Callable[..., Cluster]) -> None:
    """One command runs on the same host each time, and all hosts bring their stores to the epoch."""
    jobs = cluster("a", "b")
    homes = set()
    for epoch in range(4):
        (result,) = jobs.run([command(epoch)])
        homes.add(result.output)
        jobs.apply_resident(Epoch(epoch))
    assert len(homes) == 1

    def applied() -> bool:
        newest = {host: ran.epoch for host, ran in jobs.ran if isinstance(ran, ApplyEpoch)}
        return newest == {"a": 3, "b": 3}

    def again() -> bool:
        jobs.apply_resident(Epoch(3))  # a host that still works for an earlier one is left out
        return applied()

    wait_for(again, "the stores of both hosts")


def test_large_epochs_use_all_hosts(cluster: Callable[..., Cluster]) -> None:
    """The commands of a round run on different hosts at the same time, each with the records of its positions."""
    jobs = cluster("a", "b")
    together = threading.Barrier(2, timeout=60)
    jobs.behave = lambda _: together.wait()
    first, second = b"\0\0\0\0\5\0\0\0", b"\2\0\0\0"
    results = jobs.run([command(1, first), command(1, second)])
    assert {result.output for result in results} == {"a", "b"}
    sent = {
        ran.positions: [record.body for _, record in ran.records or []] for _, ran in jobs.runs()
    }
    assert sent == {first: [b"0", b"5"], second: [b"2"]}


def test_a_lost_task_costs_one_retry(cluster: Callable[..., Cluster]) -> None:
    """The command runs again on another host, which is the home from then on."""
    jobs = cluster("a", "b")
    (result,) = jobs.run([command(1)])
    home = result.output

    def die(host: str) -> None:
        if host == home:
            raise EOFError

    jobs.behave = die
    assert [jobs.run([command(epoch)])[0].output == home for epoch in (2, 3)] == [False, False]


def test_a_host_whose_disk_is_full_is_left_out(cluster: Callable[..., Cluster]) -> None:
    """Its commands run on the others; where it is the only one, the failure is told."""
    jobs = cluster("a", "b")
    (result,) = jobs.run([command(1)])
    jobs.full = result.output
    for epoch in (2, 3):
        (result,) = jobs.run([command(epoch)])
        assert result.output != jobs.full
    assert [host for host, _ in jobs.runs()].count(jobs.full) == 2, "it is asked once"


def test_a_full_disk_of_all_hosts_is_told(cluster: Callable[..., Cluster]) -> None:
    """Then the epoch fails, as on one host, and is tried again."""
    jobs = cluster("a")
    jobs.full = "a"
    with pytest.raises(StateUnavailable, match="the disk is full"):
        jobs.run([command(1)])


def test_a_command_waits_for_a_host(cluster: Callable[..., Cluster]) -> None:
    """Without any host nothing fails, so no request is blamed; the driver can stop meanwhile."""
    jobs = cluster("", wanted=1, start=False)
    jobs._hosts_wanted = 0
    jobs.start_resident()
    ended: list[Exception] = []

    def run() -> None:
        try:
            jobs.run([command(1)])
        except OperationalError as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    jobs.stopping.set()
    thread.join(60)
    assert len(ended) == 1


def test_a_missing_host_is_told(
    cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start with fewer hosts than the setting says how many have joined, and what to do."""
    monkeypatch.setattr(cluster_jobs, "_JOIN_S", 0.5)
    jobs = cluster("a", "", wanted=2, start=False)
    with pytest.raises(
        ConfigError, match=r"[01] of 2 hosts have joined .* start a worker of Spark"
    ):
        jobs.start_resident()


def test_a_standby_is_content_with_one_host(cluster: Callable[..., Cluster]) -> None:
    """The driver may have the others, and the standby gets them when it ends."""
    jobs = cluster("a", wanted=2, start=False)
    jobs.start_resident(is_standby=True)
    assert jobs.hosts() == ["a"]


def test_a_standby_without_a_host_ends_when_it_is_stopped(cluster: Callable[..., Cluster]) -> None:
    """It waits for a host without end otherwise."""
    alone = cluster("", wanted=2, start=False)
    alone.stopping.set()
    with pytest.raises(OperationalError, match="the driver stops"):
        alone.start_resident(is_standby=True)


def test_a_host_that_cannot_be_used_says_why(
    cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start ends with the error of that host: it may lack the credentials of the object store."""
    jobs = cluster("a", wanted=1, start=False)

    def fail(*_: object) -> TaskResult:
        raise ConfigError("s3://bucket/shop: no credentials")

    def run(commands: Sequence[TaskCommand]) -> list[TaskResult]:
        payloads = iter([messages.encode(TaskMessage(b"", command)) for command in commands])
        return [messages.decode_result(result) for result in worker_process.perform(0, payloads)]

    monkeypatch.setattr(worker_process, "attend", fail)
    monkeypatch.setattr(jobs, "_run_job", run)
    with pytest.raises(ConfigError, match=r"no credentials; correct it on the host that refuses"):
        jobs.start_resident()


@pytest.mark.parametrize("what", ["penstock", "python"])
def test_a_host_with_another_version_is_refused(
    cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The start ends with the reason; Spark itself finds another Python before the task can speak."""
    jobs = cluster("a", wanted=1, start=False)
    if what == "penstock":
        jobs.penstock = "0.0.1"
    else:
        monkeypatch.setattr(jobs, "_run_job", _of_another_python)
    with pytest.raises(ConfigError, match="install the same"):
        jobs.start_resident()


def _of_another_python(_: Sequence[TaskCommand]) -> list[TaskResult]:
    raise RuntimeError("[PYTHON_VERSION_MISMATCH] Python in worker has a different version")


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


A, B = [("10.0.0.1", 1)], [("10.0.0.2", 2)]


def test_the_driver_alone_decides_which_hosts_hold_the_state(tmp_path: Path) -> None:
    """A standby goes on with those that are noted; a host that is away for a moment stays, and one that is away for long leaves."""
    clock, root = Clock(), LocalRoot(tmp_path)
    driver, standby = (Membership(root, 2, clock) for _ in range(2))
    assert driver.peers({"a": A}) == Peers(2, [Peer("a", A)]), "nothing is noted yet"
    assert driver.wanted(["b", "a"]) == ["a", "b"]
    driver.prepare(["a", "b"])
    assert driver.peers({"a": A}) == Peers(2, [Peer("a", A)], ["a", "b"])
    driver.use(["a", "b"])
    assert driver.peers({"b": B, "a": A}) == Peers(2, [Peer("a", A), Peer("b", B)])
    later = Membership(root, 2, clock)
    assert later.peers({"c": A}) == Peers(2, [Peer("a", []), Peer("b", [])])
    clock.now += 59
    assert driver.wanted(["a"]) == ["a", "b"]
    clock.now += 2
    assert driver.wanted(["a"]) == ["a"]
    standby.lead()
    assert standby.wanted(["c"]) == ["a", "b", "c"], "it has not seen that b is away for long"
