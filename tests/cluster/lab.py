"""A cluster on one machine: each host is a network namespace with files of its own, behind one switch.

All hosts see the same data directory, and at the same path each has a folder of its own. Spark's master and workers are those
of the installed PySpark. It needs root; `why_not` says what is missing.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

import psutil

from penstock.runtime.spark.java import java_home
from penstock.runtime.spark.jvm import spark_home
from tests.cluster import slow_link
from tests.kafka_server import KafkaServer
from tests.object_store import StoreServer
from tests.waiting import wait_for

T = TypeVar("T")

_JAVA: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx192m")
PROPERTIES: Final = """\
spark.authenticate true
spark.network.crypto.enabled true
spark.authenticate.secret %s
"""
"""The file for Spark's master and workers, without the secret."""

_DEPLOY: Final = "org.apache.spark.deploy"

_CONTROLLER: Final = "cpu"
_GROUPS: Final = Path("/sys/fs/cgroup", _CONTROLLER)
"""The control groups of the processor, in their first version."""

ALONE: Final = "alone"
"""The data directory of an application that has its host alone, in the folder of the host."""

_PERIOD_US: Final = 10_000
_SHARES: Final = 64 * 1024


def own_group() -> Path:
    """Return the control group of this process, which bounds the hosts, too."""
    for row in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = row.split(":", 2)
        if _CONTROLLER in controllers.split(","):
            return _GROUPS / path.lstrip("/")
    return _GROUPS


def why_not() -> str:
    """Return why this machine can have no such cluster; empty if it can."""
    if os.geteuid() != 0:
        return "hosts are network namespaces, which need root"
    if shutil.which("ip") is None:
        return "the program ip is missing (package iproute2)"
    name = f"pl-{secrets.token_hex(3)}"
    tried = subprocess.run(
        ["ip", "netns", "add", name], capture_output=True, text=True, check=False
    )
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return f"no network namespace can be made: {tried.stderr.strip()}" if tried.returncode else ""


class Slow(NamedTuple):
    """How slow a link is, in each direction."""

    delay_ms: float
    loss_percent: float


class Host:
    """One host.

    Attributes:
        address: Its address.
        root: Its own folder, as the others see it.
    """

    def __init__(
        self,
        name: str,
        switch: str,
        number: int,
        top: Path,
        environment: dict[str, str],
        slow: Slow | None = None,
    ) -> None:
        self.address = f"10.99.0.{number}"
        self.root = top / f"host{number}"
        self._top = top
        self._name = name
        self._switch = switch
        self._port = f"pl{number}"
        self._environment = environment
        self._group = own_group() / name
        self._processes: list[subprocess.Popen[bytes]] = []
        self.root.mkdir()
        self._link: subprocess.Popen[bytes] | None = None
        _ip(f"netns add {name}")
        if slow is None:
            _ip(f"-n {switch} link add {self._port} type veth peer name eth0 netns {name}")
        else:
            words = [switch, self._port, name, "eth0", *map(str, slow)]
            self._link = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.slow_link", *words], stdout=subprocess.PIPE
            )
            assert self._link.stdout is not None
            assert self._link.stdout.readline() == b"ready\n", "the link is not there"
        _ip(f"-n {switch} link set {self._port} master br0 up")
        _ip(f"-n {name} addr add {self.address}/24 dev eth0")
        _ip(f"-n {name} link set eth0 up")
        _ip(f"-n {name} link set lo up")

    def start(
        self, command: Sequence[str], output: Path, **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start a process on this host."""
        mount = f'mount --bind {self.root} {self._top / "host"} && exec "$@"'
        words = ["ip", "netns", "exec", self._name, "unshare", "--mount", "sh", "-c", mount, "sh"]
        with output.open("ab") as file:
            process = subprocess.Popen(
                [*words, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={
                    **os.environ,
                    "SPARK_LOCAL_IP": self.address,
                    **self._environment,
                    **environment,
                },
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    @property
    def is_limited(self) -> bool:
        """Whether `limit` was called."""
        return self._group.exists()

    def limited(self) -> list[int]:
        """Return the ids of the processes that `limit` bounds."""
        return list(map(int, (self._group / "cgroup.procs").read_text().split()))

    def limit(self, cores: float) -> None:
        """Bound the processor time of all processes on this host, and of those that they start.

        Its weight is that of 64 processes, so that others that use the machine take little from what it may have.
        """
        group = self._group
        group.mkdir(exist_ok=True)
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(round(cores * _PERIOD_US)))
        (group / "cpu.shares").write_text(str(_SHARES))
        for process in self.processes():
            with suppress(OSError):  # it has ended
                (group / "cgroup.procs").write_text(str(process.pid))

    def cut(self) -> None:
        """Cut the link of this host."""
        _ip(f"-n {self._switch} link set {self._port} down")

    def heal(self) -> None:
        """Mend the link."""
        _ip(f"-n {self._switch} link set {self._port} up")

    def within(self, work: Callable[[], T]) -> T:
        """Call a function whose connections are those of this host."""

        def enter() -> T:
            slow_link.enter(self._name)
            return work()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(enter).result()

    def processes(self) -> list[psutil.Process]:
        """Return all processes on this host."""
        return [below for process in self._processes for below in _below(process.pid)]

    def executors(self) -> list[psutil.Process]:
        """Return the processes of Spark's executors on this host."""
        return [each for each in self.processes() if "CoarseGrainedExecutorBackend" in _words(each)]

    def leave(self) -> None:
        """End Spark's worker of this host, and with it its executors."""
        for each in self.processes():
            if f"{_DEPLOY}.worker.Worker" in _words(each):
                each.terminate()

    def end(self) -> None:
        """End all processes, and remove the host."""
        for process in self._processes:
            for one in _below(process.pid):
                with suppress(psutil.Error):
                    one.send_signal(signal.SIGKILL)
            process.kill()
            process.wait()
        if self.is_limited:
            processes = self._group / "cgroup.procs"
            wait_for(lambda: not processes.read_text(), "the end of the processes")
            self._group.rmdir()
        if self._link is not None:
            self._link.kill()
            self._link.communicate()
        _ip(f"netns del {self._name}")


class Lab:
    """Some hosts; the first one has Spark's master, and the driver if no other one is asked for.

    Attributes:
        hosts: The hosts.
        top: The folder that all hosts see.
        data: The data directory, or the place in an object store.
        host_data: Where each host has its own folder.
        store: The object store, on a host of its own; None without `serve`.
        broker: The broker, on a host of its own; None without `serve`.
    """

    def __init__(self, top: Path, count: int, slow: Slow | None = None) -> None:
        self.top = top
        self._slow = slow
        self.data: Path | str = top / "data"
        self.store: StoreServer | None = None
        self.broker: KafkaServer | None = None
        self.environment: dict[str, str] = {}
        self.host_data = top / "host"
        self.host_data.mkdir()
        self.secret = top / "secret"
        self.secret.write_text(secrets.token_hex(16))
        self._properties = top / "spark.conf"
        self._properties.write_text(PROPERTIES % self.secret.read_text())
        self._name = f"pl-{secrets.token_hex(3)}"
        _ip(f"netns add {self._name}")
        _ip(f"-n {self._name} link add br0 type bridge")
        _ip(f"-n {self._name} link set br0 up")
        self.hosts = [self._host(number) for number in range(1, count + 1)]
        self._servers: list[Host] = []

    def _host(self, number: int) -> Host:
        name = f"{self._name}-{number}"
        slow = self._slow if number == 1 else None
        return Host(name, self._name, number, self.top, self.environment, slow)

    def serve(self) -> None:
        """Keep the data in an object store and the log in a topic, whose servers have a host each."""
        at_store, at_broker = self._host(101), self._host(102)
        self._servers = [at_store, at_broker]
        self.store = at_store.within(lambda: StoreServer(at_store.root, at_store.address))
        folder = at_broker.root
        self.broker = at_broker.within(lambda: KafkaServer(folder, address=at_broker.address))
        self.environment |= self.store.environment()
        self.data = self.store.url("shop")

    def kill_server(self, which: "StoreServer | KafkaServer") -> None:
        """Kill the store or the broker."""
        which.kill()

    def start_server(self, which: "StoreServer | KafkaServer") -> None:
        """Start the store or the broker again."""
        self._servers[which is self.broker].within(which.start)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            host.end()
        for server in (self.store, self.broker):
            if server is not None:
                server.kill()
        for host in self._servers:
            host.end()
        _ip(f"netns del {self._name}")

    @property
    def master(self) -> str:
        """The address of Spark's master."""
        return f"spark://{self.hosts[0].address}:7077"

    def start_spark(self, workers: Sequence[int], cores: int = 1) -> None:
        """Start the master on the first host, and workers on some hosts, by their numbers from 0."""
        home = self.hosts[0]
        options = ["--host", home.address, "--port", "7077", "--webui-port", "0"]
        self._start_java(home, "master", "Master", *options)
        for number in workers:
            self.start_worker(number, cores)

    def start_worker(self, number: int, cores: int = 1) -> None:
        """Start Spark's worker on a host."""
        host = self.hosts[number]
        options = ["--host", host.address, "--cores", str(cores), "--memory", "2g"]
        options += ["--webui-port", "0", "--work-dir", str(self.top / "work"), self.master]
        self._start_java(host, f"worker{number}", "Worker", *options)

    def _start_java(self, host: Host, name: str, kind: str, *options: str) -> None:
        home, spark = java_home(self.top), spark_home()
        command = [str(home / "bin" / "java"), *_JAVA, "-cp", f"{spark / 'jars'}/*"]
        command += [f"{_DEPLOY}.{kind.lower()}.{kind}", "--properties-file", str(self._properties)]
        environment = {
            "SPARK_HOME": str(spark),
            "SPARK_SCALA_VERSION": "2.13",
            "JAVA_HOME": str(home),
        }
        host.start([*command, *options], self.top / f"{name}.log", **environment)

    def settings(self, **more: Any) -> list[str]:
        """Return the options of a driver."""
        chosen = {"host_data": self.host_data, "master_secret": self.secret, **more}
        if self.broker is not None:
            chosen |= {"log": f"kafka://{self.broker.servers}/shop"}
            chosen |= {"kafka.replicas_min": 1, "kafka.insync_min": 1, "kafka.append_ms": 10_000}
            chosen |= more
        words = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
        return ["--master", self.master, "--data", str(self.data), *words]

    def run(self, apps: Sequence[str], at: int = 0, **more: Any) -> subprocess.Popen[bytes]:
        """Start `penstock run` on a host."""
        command = [sys.executable, "-m", "penstock", "run", *apps, *self.settings(**more)]
        return self.hosts[at].start(command, self.top / f"run{at}.log")

    def run_alone(self, apps: Sequence[str], at: int, **more: Any) -> subprocess.Popen[bytes]:
        """Start `penstock run` on a host, for this host alone: its log, journal and state are files of its own."""
        words = [word for name, value in more.items() for word in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "penstock", "run", *apps, *words]
        data = self.hosts[at].root / ALONE
        return self.hosts[at].start([*command, "--data", str(data)], self.top / f"run{at}.log")

    def output(self, at: int = 0) -> str:
        """Return what `penstock run` has printed on a host."""
        return (self.top / f"run{at}.log").read_text()


@contextmanager
def lab(top: Path, count: int, slow: Slow | None = None) -> Iterator[Lab]:
    """Give a cluster of some hosts, the first of which may have a slow link."""
    with Lab(top, count, slow) as made:
        yield made


def _ip(words: str) -> None:
    done = subprocess.run(["ip", *words.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {words}: {done.stderr}"


def _below(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _words(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""
