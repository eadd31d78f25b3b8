"""Epochs whose tasks are on several hosts equal one thread: over TLS, with wardens, without Spark.

Tasks die at random, the disk of a host is full, and two clusters have one journal.
"""

import os
import random
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, LogPartition, RequestId
from penstock.cli.error_output import describe
from penstock.deployment.archives import Archives, pack
from penstock.deployment.code_in_force import unpacked
from penstock.errors import Fenced
from penstock.files.layout import STATE
from penstock.files.roots import journal_root, use_store
from penstock.journal.delta import DeltaJournal
from penstock.journal.deployments import Deployments
from penstock.log.api import Entry, Log
from penstock.model.application import App
from penstock.model.control import DeployedCode
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.presence import host_id
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.spark import cluster_jobs, worker_process
from penstock.runtime.spark.cluster_jobs import ClusterJobs
from penstock.runtime.spark.driver import EpochDriver
from penstock.runtime.spark.holders import HeldHere
from penstock.runtime.spark.messages import (
    Reside,
    TaskCommand,
    TaskResult,
    WorkerSettings,
    worker_settings,
)
from penstock.state.digest import digest_of_mapping
from tests.checkout import TOP
from tests.differential import index_app
from tests.differential.committed import answers_of, state_of
from tests.differential.machine import app
from tests.differential.programs import History, beside_one_thread, drawn, histories
from tests.differential.simulation import Answer
from tests.differential.test_index_twins import PHANTOM, Program, programs
from tests.faults.disk import Disk, missing_for_disks
from tests.forked import processes
from tests.object_store import StoreServer
from tests.waiting import wait_for

ONLY = LogPartition(0)
PARTITIONS: Final = 5
"""More than hosts, so that a host can hold a part."""
EXAMPLES: Final = int(os.environ.get("PENSTOCK_HOSTS", "1"))
"""The histories for each number of copies; `scripts/nightly` asks for more than one, and then draws more numbers of hosts."""


def job(payload: bytes, environment: dict[str, str]) -> None:
    """Run a job of Spark."""
    os.environ.update(environment)  # a server of processes has that of its first use
    list(worker_process.perform(0, iter([payload])))


class ManyHosts(ClusterJobs):
    """Jobs whose tasks each have a host of their own.

    Attributes:
        deaths: How often a worker or a warden was killed.
    """

    def __init__(
        self, settings: WorkerSettings, config: Config, log: Log, draw: random.Random | None
    ):
        self.use(settings)
        self.partitions = config.partitions
        self._draw = draw
        self.deaths = 0
        self._wardens: dict[str, BaseProcess] = {}
        self._prepare(settings, config, log, threading.Event())

    def _run_job(self, commands: Sequence[TaskCommand]) -> list[TaskResult]:
        (reside,) = commands
        assert isinstance(reside, Reside)
        assert reside.seat is not None
        name = reside.socket.partition("-")[0]
        root = f"{reside.seat.host_data}-{name}"
        reside = msgspec.structs.replace(
            reside, seat=msgspec.structs.replace(reside.seat, host_data=root)
        )
        process = processes().Process(target=job, args=(self._message(reside), dict(os.environ)))
        self._wardens[name] = process
        process.start()
        process.join()
        return [TaskResult()]

    def _run_somewhere(
        self, command: TaskCommand, number: int, wishes: Sequence[str] = ()
    ) -> TaskResult:
        killing = None
        if self._draw is not None and self._draw.random() < 0.2:
            killing = threading.Timer(self._draw.random() * 0.02, self._kill, (self._draw,))
            killing.start()
        try:
            return super()._run_somewhere(command, number, wishes)
        finally:
            if killing is not None:
                killing.join()

    def _kill(self, draw: random.Random) -> None:
        hellos = self.tasks()
        if not hellos:
            return
        self.deaths += 1
        hello = draw.choice(hellos)
        if draw.random() < 0.5:
            with suppress(ProcessLookupError):
                os.kill(hello.pid, signal.SIGKILL)
        else:
            self._wardens[hello.job.partition("-")[0]].kill()


def deployed(data: Path, module: str) -> str:
    """Unpack an application of this folder for the driver, and return its name; deploy it before, if none is."""
    if deployments := Deployments(journal_root(data)).every():
        return unpacked(data, deployments[-1].code).spec
    source = (TOP / "tests" / "differential" / f"{module}.py").read_bytes()
    archive = Archives(data).put(pack({f"{module}.py": source}))
    code = DeployedCode(archive, module, "app", "3", {})
    Deployments(journal_root(data)).record(BEFORE_FIRST, 0, code, {})
    return unpacked(data, code).spec


class Cluster:
    """A data directory, and hosts that run its epochs."""

    def __init__(  # noqa: PLR0913 -- all but two have defaults
        self,
        top: Path,
        draw: random.Random | None,
        hosts: int = 2,
        copies: str = "all",
        tested: App = app,
        module: str = "machine",
        name: str = "host",
    ) -> None:
        self.hosts = [top / f"{name}-resident{number}" for number in range(hosts)]
        self.config = Config(
            top / "data", cores=hosts, partitions=PARTITIONS, small_epoch=3, epoch_records_max=9,
            master="spark://127.0.0.1:1", master_secret=top / "secret", host_data=top / name,
            hosts=hosts, copies=copies,
        )  # fmt: skip
        self.directory = DataDirectory(self.config.data)
        self.directory.create()
        self.log = self.directory.open_log(self.config)
        self.journal = DeltaJournal(self.directory.journal_root, tested.name)
        scratch = self.config.data / "scratch" / name
        scratch.mkdir(parents=True)
        settings = worker_settings(deployed(self.config.data, module), self.config, scratch)
        self.jobs = ManyHosts(settings, self.config, self.log, draw)
        self.jobs.start_resident()
        self.driver = EpochDriver(self.config, self.log, self.journal, self.jobs, scratch)
        self.driver._later._is_idle = lambda commit: True  # type: ignore[method-assign]
        self.driver.recover(tested).result()

    def advance(self) -> None:
        self.driver.advance({ONLY: self.log.end()})

    def advance_with(self, entries: Sequence[Entry]) -> None:
        """Process requests, in small epochs."""
        for first in range(0, len(entries), 3):
            self.log.append(entries[first : first + 3])
            self.advance()

    def close(self) -> None:
        self.driver.close()
        self.jobs.stop_resident()
        self.journal.close()
        self.log.close()

    def digest_of(self, host: Path) -> str:
        """Return the digest of the whole state in the stores of a host."""
        last = self.journal.last()
        assert last is not None
        assert (host / STATE).is_dir()
        stores = self.directory.open_stores(self.journal, PARTITIONS, host)
        with closing(stores), stores.at(last.epoch) as reader:
            return digest_of_mapping(dict(reader.items()))

    def reached(self, host: Path) -> Epoch:
        """Return the epoch that all stores of a host have reached."""
        with closing(self.directory.open_stores(self.journal, PARTITIONS, host)) as stores:
            return stores.reached()

    def check_part(self, host: Path, state: Mapping[EntityKey, bytes]) -> None:
        """Check that the stores of a host have the rows of their partitions, as they were after some epoch."""
        stores = self.directory.open_stores(self.journal, PARTITIONS, host, HeldHere())
        with closing(stores):
            last = self.journal.last()
            assert last is not None
            for number in stores.held():
                stores.catch_up_one(number, last.epoch)
                with stores.some_at(last.epoch, [number]) as readers:
                    rows = dict(readers[number].items())
                assert rows == {
                    key: row for key, row in state.items() if stores.partition_of(key) == number
                }


@contextmanager
def ran(
    requests: Sequence[tuple[str, tuple[bytes, bytes]]],
    seed: int,
    hosts: int = 2,
    copies: str = "all",
    tested: App = app,
    module: str = "machine",
) -> Iterator[tuple[Cluster, dict[EntityKey, bytes]]]:
    """Run requests on hosts whose tasks die, and compare replies, journal and state with those of one thread.

    Args:
        requests: Their ids, bodies and hints.
        tested: The application.
        module: Its module in this folder.
    """
    draw = random.Random(seed)
    with (
        pytest.MonkeyPatch.context() as patched,
        tempfile.TemporaryDirectory() as folder,
        closing(Cluster(Path(folder), draw, hosts, copies, tested, module)) as cluster,
    ):
        # A host whose worker has died leaves at once, so that parts of the state move while epochs run.
        patched.setattr(cluster_jobs, "_LEAVES_S", 0.3)
        patched.setattr(cluster_jobs, "_PLACE_S", 0.1)
        log, journal = cluster.log, cluster.journal
        for number, (request_id, request) in enumerate(requests):
            log.append([Entry(RequestId(request_id), *request, number)])
            if draw.random() < 0.2:
                cluster.advance()
        cluster.advance()
        serial = LocalRuntime(tested, secret=journal.secret)
        replies = serial.replay(log.read(log.start(), log.end()))
        expected = [Answer(one.request_id, one.error, one.data) for one in replies]
        assert answers_of(journal) == expected
        assert state_of(journal) == serial.state
        yield cluster, serial.state


@beside_one_thread
@pytest.mark.parametrize("copies", ["1", "2", "all"] if EXAMPLES > 1 else ["1", "all"])
@drawn(EXAMPLES)
@given(histories(most=25), st.integers(0, 1 << 32), st.integers(1 if EXAMPLES > 1 else 2, 4))
def test_tasks_on_many_hosts_equal_one_thread(
    copies: str, history: History, seed: int, hosts: int
) -> None:
    """Replies, journal and state are those of one thread, whichever host runs a task and however few hosts hold a row.

    Where all hold it, each host has the whole state; else each has the rows of its partitions alone.
    """
    every = [*history.created(), *history.every()]
    requests = [(request_id, call.encode(app)) for request_id, call in every]
    with ran(requests, seed, hosts, copies) as (cluster, state):
        if copies == "all":
            digests = {cluster.digest_of(host) for host in cluster.hosts}
            assert digests == {digest_of_mapping(state)}
            return
        for host in cluster.hosts:
            assert not (host / STATE).exists(), "no host has the whole state"
            cluster.check_part(host, state)


@beside_one_thread
@pytest.mark.parametrize("copies", ["1", "2"] if EXAMPLES > 1 else ["1"])
@drawn(EXAMPLES)
@given(st.lists(programs, min_size=2, max_size=20), st.integers(0, 1 << 32), st.integers(2, 4))
def test_indexes_on_hosts_that_hold_parts(
    copies: str, history: list[Program], seed: int, hosts: int
) -> None:
    """The rows of indexes are found on other hosts as those of entities are, and no value is taken twice."""
    tested = index_app.app
    every = [*PHANTOM, *history]
    requests = [
        (f"r{number}", tested.request("", None, "run", (program,)))
        for number, program in enumerate(every)
    ]
    with ran(requests, seed, hosts, copies, tested, "index_app") as (cluster, state):
        for host in cluster.hosts:
            cluster.check_part(host, state)


def entries_of(numbers: range) -> list[Entry]:
    """Return requests, each of which makes an entity of some kilobytes."""
    return [
        Entry(RequestId(f"w{number}"), *app.request("", None, "main", ([
            ["new", ["Alpha", number], number],
            ["call", ["Alpha", number], [["loop", 500, [["push", 1_000_000]]]]],
        ],)), number)
        for number in numbers
    ]  # fmt: skip


def check_outcome(cluster: Cluster) -> None:
    """Check that replies and journal are those of one thread, and that each host has the same state."""
    log, journal = cluster.log, cluster.journal
    serial = LocalRuntime(app, secret=journal.secret)
    replies = serial.replay(log.read(log.start(), log.end()))
    assert answers_of(journal) == [Answer(one.request_id, one.error, one.data) for one in replies]
    digests = {cluster.digest_of(host) for host in cluster.hosts}
    assert digests == {digest_of_mapping(serial.state)}


@pytest.mark.parametrize("role", ["home", "other"])
def test_host_whose_disk_is_full_comes_back_when_it_has_space(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """The driver names the host and goes on with the other one, whichever had the work; later both have the whole state."""
    if missing := missing_for_disks():
        (pytest.fail if "CI" in os.environ and os.geteuid() == 0 else pytest.skip)(missing)
    monkeypatch.setattr(cluster_jobs, "_LEFT_OUT_S", 0.5)
    with Disk(tmp_path, 16) as disk:
        full = tmp_path / "host-resident0"
        full.symlink_to(disk.path)
        with closing(Cluster(tmp_path, None)) as cluster:
            name = host_id(full)
            (other,) = {*cluster.jobs.hosts()} - {name}
            cluster.jobs._home = name if role == "home" else other
            cluster.advance_with(entries_of(range(20)))
            disk.fill()
            cluster.advance_with(entries_of(range(20, 50)))
            disk.make_space()
            told = [record for record in caplog.records if "left out" in record.message]
            assert {vars(record)["host"] for record in told} == {name}
            assert all("No space left on device" in vars(record)["cause"] for record in told)
            cluster.advance_with(entries_of(range(50, 60)))

            def has_all() -> bool:
                cluster.jobs.apply_resident(cluster.driver.epoch)
                return cluster.reached(full) == cluster.driver.epoch

            wait_for(has_all, "the state of the host that has space")
            check_outcome(cluster)


def test_of_two_clusters_on_one_journal_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_server: StoreServer
) -> None:
    """Also where lock and lease have failed to keep them apart, a commit does; it says what to do, and no host has other state."""
    for name, value in store_server.environment().items():
        monkeypatch.setenv(name, value)
    use_store(tmp_path / "data", store_server.url(tmp_path.name))
    with (
        closing(Cluster(tmp_path, None, 1)) as one,
        closing(Cluster(tmp_path, None, 1, name="other")) as other,
    ):
        one.log.append(entries_of(range(60)))
        ready = threading.Barrier(2)

        def drive(cluster: Cluster) -> Fenced | None:
            ready.wait(60)
            try:
                cluster.advance()
            except Fenced as error:
                return error
            return None

        with ThreadPoolExecutor(2) as drivers:
            (fenced,) = filter(None, drivers.map(drive, (one, other)))
        assert "another driver runs 'machine'" in str(fenced)
        assert "--standby" in describe(fenced).hint
        for cluster in (one, other):
            check_outcome(cluster)
