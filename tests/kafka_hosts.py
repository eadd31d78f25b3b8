"""`KafkaHosts`: the copies of a log in Kafka, each in a folder that stands for a host."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.log.clock import wall_clock_us
from penstock.log.database import new_copy
from penstock.log.kafka import Following, KafkaLog
from penstock.log.kafka_config import KafkaConfig, TopicPlace
from tests.kafka_server import Broker

ONE_MACHINE: Final = KafkaConfig(replicas_min=1, insync_min=1, append_ms=20_000)
"""The settings of tests, whose machine may be slow."""

LOG: Final = b"test-log"


class KafkaHosts:
    """Hosts whose logs are in topics of one broker.

    Attributes:
        following: The newest log.
    """

    def __init__(self, broker: Broker, folder: Path, name: str) -> None:
        self._broker = broker
        self._folder = folder
        self._name = name
        self._topics = 0
        self._hosts = 0
        self.following = Following(self._place(), ONE_MACHINE, "", LOG, 0)

    def new_topic(self, **settings: str) -> Following:
        """Create a topic for a log; the names of settings have `_` for a dot."""
        self._topics += 1
        place = self._place()
        self._broker.make(place.topic, config={"retention_ms": "-1", **settings})
        identity = self._broker.topic_id(place.topic)
        self.following = Following(place, ONE_MACHINE, identity, LOG, 0)
        return self.following

    def log(
        self,
        *,
        record_bytes_max: int = 1_048_576,
        retention_s: int = 3_600,
        clock_us: Callable[[], int] = wall_clock_us,
    ) -> KafkaLog:
        """Open a log in a new topic."""
        self.new_topic()
        return self.host(
            record_bytes_max=record_bytes_max, retention_s=retention_s, clock_us=clock_us
        )

    def host(
        self,
        following: Following | None = None,
        *,
        record_bytes_max: int = 1_048_576,
        retention_s: int = 3_600,
        clock_us: Callable[[], int] = wall_clock_us,
    ) -> KafkaLog:
        """Open the newest log on a new host."""
        path = self._folder / f"host{self._hosts}"
        path.mkdir(parents=True)
        self._hosts += 1
        new_copy(path / "log.sqlite")
        return KafkaLog(
            path / "log.sqlite",
            following or self.following,
            record_bytes_max=record_bytes_max,
            retention_s=retention_s,
            clock_us=clock_us,
        )

    def _place(self) -> TopicPlace:
        return TopicPlace(self._broker.servers, f"{self._name}-{self._topics}")
