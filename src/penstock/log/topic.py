"""`Topic`: the one partition in Kafka that orders the writes of all hosts, through `confluent_kafka`.

It sends messages durably (`acks=all`, an idempotent producer), reads them from an offset on, and says in a sentence what is
wrong with a broker, with credentials or with the settings of a topic. It knows nothing about the content of messages.
`confluent_kafka` is an extra (`penstock[cluster]`), so nothing imports this module before a log lies in Kafka.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import confluent_kafka
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType

from penstock.errors import ConfigError, Diverged, LogUnavailable, PenstockError
from penstock.log.brokers import MOVING, START_S, Brokers
from penstock.log.kafka_config import KAFKA_TABLE, KafkaConfig, TopicPlace

_PARTITION: Final = 0
_OVERHEAD_BYTES: Final = 4_096  # of a message besides its value
_BATCH: Final = 999
_LOOK_S: Final = 0.1
_FIRST_S: Final = 2.0
_TROUBLE_S: Final = 0.1
_TOPIC: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
"""The settings of a topic that Penstock creates."""


class Message(NamedTuple):
    """A message of the topic."""

    offset: int
    value: bytes


class Ends(NamedTuple):
    """The offsets [low, high) that a topic holds."""

    low: int
    high: int


class Sending:
    """Messages on their way. `settled` is true once all are acknowledged, or one has failed."""

    def __init__(self, count: int, acknowledged: Callable[[], None]) -> None:
        self._left = count
        self._acknowledged = acknowledged
        self.failure: KafkaError | None = None

    @property
    def settled(self) -> bool:
        """Whether there is an outcome."""
        return self.failure is not None or self._left == 0

    def report(self, error: KafkaError | None, _message: confluent_kafka.Message) -> None:
        """Take the delivery report of one message."""
        self._left -= 1
        self.failure = self.failure or error
        if error is None:
            self._acknowledged()


class Topic:
    """One process's connections to a topic; each is made when it is first needed. Safe for threads.

    Attributes:
        troubles: How often messages were not acknowledged in time.

    Raises, from every method:
        ConfigError: A property, the credentials or the topic are wrong.
        LogUnavailable: No broker answers.
    """

    def __init__(self, place: TopicPlace, config: KafkaConfig) -> None:
        self.place = place
        self._config = config
        self._brokers = Brokers(place, place.servers, KAFKA_TABLE, config.read)
        self._is_in_trouble = False
        self.troubles = 0
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._message_bytes = 1_000_000

    def identity(self, least_s: int) -> str | None:
        """Check the settings of the topic, and return the id that it got when it was created; None if there is no topic.

        Args:
            least_s: The seconds for which the topic must keep messages.

        Raises:
            ConfigError: The topic has settings with which requests may be lost; names all of them.
        """
        admin, name = self._brokers.reachable(self.place.topic), self.place.topic
        try:
            described = admin.describe_topics(TopicCollection([name]), request_timeout=START_S)
            topic = described[name].result()
            resource = ConfigResource(ResourceType.TOPIC, name)
            entries = admin.describe_configs([resource], request_timeout=START_S)[resource].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self._brokers.translated(error.args[0]) from error
        values = {name: entry.value for name, entry in entries.items()}
        replicas = min((len(part.replicas) for part in topic.partitions), default=0)
        complaints = [
            *_complaints_of_copies(len(topic.partitions), replicas, values, self._config),
            *_complaints_of_retention(values, least_s),
        ]
        if complaints:
            alter = (
                f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config"
            )
            lines = "".join(f"\n  {complaint}" for complaint in complaints)
            raise ConfigError(
                f"{self.place} cannot hold a log ({alter} NAME=VALUE changes a setting):{lines}"
            )
        self._message_bytes = int(values["max.message.bytes"])
        return str(topic.topic_id)

    def check(self, identity: str, least_s: int) -> None:
        """Check that the topic still has the id that it had when the log began, and its settings.

        Raises:
            Diverged: It is gone, or was created again.
        """
        deadline = time.monotonic() + START_S
        # A broker that has just started may not know the topic yet.
        while (present := self.identity(least_s)) is None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        if present != identity:
            what = (
                "does not exist any more" if present is None else f"was created again as {present}"
            )
            raise Diverged(
                f"{self.place}: the topic {identity}, in which the log of this data directory began, {what}, so its requests "
                "are gone from it. Each host has a copy: stop every host, penstock backup, penstock restore into another "
                "directory, and run it with a new topic"
            )

    def create(self) -> None:
        """Create the topic with the settings of a log; one that exists stays as it is."""
        insync = {"min.insync.replicas": str(self._config.insync_min)}
        wanted = NewTopic(
            self.place.topic,
            num_partitions=1,
            replication_factor=self._config.replicas_min,
            config={**_TOPIC, **insync},
        )
        admin = self._brokers.reachable(self.place.topic)
        try:
            admin.create_topics([wanted], request_timeout=START_S)[self.place.topic].result()
        except KafkaException as error:
            raised = error.args[0]
            if raised.code() == KafkaError.INVALID_REPLICATION_FACTOR:
                raise ConfigError(
                    f"{self.place} cannot be created with kafka.replicas_min = {self._config.replicas_min} replicas: "
                    f"{raised.str()} For one machine, set kafka.replicas_min = 1 and kafka.insync_min = 1"
                ) from error
            if raised.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._brokers.translated(raised) from error
        deadline = time.monotonic() + START_S
        while self.identity(0) is None:  # the brokers tell each other of it
            if time.monotonic() > deadline:
                raise LogUnavailable(f"{self.place}: the topic was created and does not appear")
            time.sleep(_LOOK_S / 4)

    @property
    def value_bytes_max(self) -> int:
        """The longest value of a message."""
        return self._message_bytes - _OVERHEAD_BYTES

    def send(self, values: Sequence[bytes]) -> Sending:
        """Begin to send messages, in order; `poll` settles them."""
        producer = self._sender()
        sending = Sending(len(values), self._note_acknowledged)
        for value in values:
            try:
                producer.produce(
                    self.place.topic, value, partition=_PARTITION, on_delivery=sending.report
                )
            except BufferError as error:
                raise LogUnavailable(
                    f"{self.place}: too many messages wait for the brokers{self._brokers.because()}"
                ) from error
        return sending

    def poll(self) -> None:
        """Take the delivery reports that have arrived."""
        self._sender().poll(0)

    def deadline(self) -> float:
        """Return the time of the monotonic clock up to which a call waits.

        After a failure that is short, until a message is acknowledged, perhaps one whose call has ended: else requests
        would queue up behind each other, each batch of them for the whole time.
        """
        whole_s = self._config.append_ms / 1000
        return time.monotonic() + (min(_TROUBLE_S, whole_s) if self._is_in_trouble else whole_s)

    def _note_acknowledged(self) -> None:
        self._is_in_trouble = False

    def late(self) -> LogUnavailable:
        """Return the error of messages that were not acknowledged in time."""
        self._is_in_trouble = True
        self.troubles += 1
        return LogUnavailable(f"{self.place}: no acknowledgement in time{self._brokers.because()}")

    def failure_of(self, error: KafkaError) -> PenstockError:
        """Return the error of messages that the brokers did not take. A producer that cannot go on is exchanged."""
        if error.fatal():
            self._producer = None
        is_late = error.code() == error._MSG_TIMED_OUT  # noqa: SLF001 -- its public name
        return self.late() if is_late else self._brokers.translated(error)

    def begin(self, offset: int) -> None:
        """Read from an offset on."""
        if self._consumer is None:
            self._consumer = Consumer(
                self._brokers.properties(
                    {
                        "group.id": "penstock",
                        "enable.auto.commit": False,
                        "auto.offset.reset": "error",
                        "enable.partition.eof": False,
                        "isolation.level": "read_uncommitted",  # the other one waits for transactions of others
                        "check.crcs": True,
                        # A broker answers as soon as there is a message, so the wait only bounds the questions at rest.
                        "fetch.wait.max.ms": 500,
                        "fetch.error.backoff.ms": 100,
                    }
                )
            )
        self._consumer.assign([TopicPartition(self.place.topic, _PARTITION, offset)])

    def consume(self) -> tuple[list[Message], PenstockError | None]:
        """Return the next messages, and the error behind them; both may be missing after a short time."""
        assert self._consumer is not None, "reading has begun"
        # To ask for many at once would wait out the whole time.
        taken = self._consumer.consume(1, _LOOK_S)
        if taken and taken[0].error() is None:
            taken += self._consumer.consume(_BATCH, 0)
        messages: list[Message] = []
        for each in taken:
            if (error := each.error()) is not None:
                return messages, self._brokers.translated(error)
            offset, value = each.offset(), each.value()
            assert offset is not None, "it was read from the topic"
            messages.append(Message(offset, value if isinstance(value, bytes) else b""))
        return messages, None

    def first(self) -> Message:
        """Return the first message after `begin`."""
        assert self._consumer is not None, "reading has begun"
        (taken,) = self._consumer.consume(1, _FIRST_S) or (None,)
        if taken is None:
            raise LogUnavailable(f"{self.place}: no message arrives{self._brokers.because()}")
        if (error := taken.error()) is not None:
            raise self._brokers.translated(error)
        offset, value = taken.offset(), taken.value()
        assert offset is not None, "it was read from the topic"
        return Message(offset, value if isinstance(value, bytes) else b"")

    def ends(self) -> Ends:
        """Return which offsets the topic holds now.

        They are asked on a connection of their own, because on the consumer's they would wait behind its long poll.
        """
        deadline = self.deadline()
        while True:
            try:
                return Ends(self._end(OffsetSpec.earliest()), self._end(OffsetSpec.latest()))
            except KafkaException as error:
                # The leader of the partition may change, and that of a new one is not known everywhere at once.
                if error.args[0].code() not in MOVING or time.monotonic() > deadline:
                    raise self._brokers.translated(error.args[0]) from error
                time.sleep(_LOOK_S / 4)

    def _end(self, spec: OffsetSpec) -> int:
        admin, part = self._brokers.administrator(), TopicPartition(self.place.topic, _PARTITION)
        asked = admin.list_offsets({part: spec}, request_timeout=self._config.append_ms / 1000)
        offset: int = asked[part].result().offset
        if offset < 0:  # of a request that was not answered; it is no error for the library
            raise LogUnavailable(
                f"{self.place}: no broker says where the topic ends{self._brokers.because()}"
            )
        return offset

    def delete_before(self, offset: int) -> None:
        """Delete the messages below an offset."""
        part = TopicPartition(self.place.topic, _PARTITION, offset)
        try:
            for deleted in self._brokers.administrator().delete_records([part]).values():
                deleted.result()
        except KafkaException as error:
            raise self._brokers.translated(error.args[0]) from error

    def close(self) -> None:
        """End the connections; messages that were not acknowledged may still arrive."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = self._producer = None
        self._brokers.close()

    def _sender(self) -> Producer:
        if self._producer is None:
            own = {
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": self._config.append_ms,
                "message.max.bytes": self._message_bytes,
                "linger.ms": 0,
            }
            with self._brokers.checked():
                self._producer = Producer(self._brokers.properties(own))
        return self._producer


def _complaints_of_copies(
    partitions: int, replicas: int, values: Mapping[str, str], config: KafkaConfig
) -> Iterator[str]:
    if partitions != 1:
        yield f"it has {partitions} partitions, and a log has one order: name a topic with one partition"
    if replicas < config.replicas_min:
        yield (
            f"it has {replicas} replicas, fewer than kafka.replicas_min = {config.replicas_min}: add some with "
            "kafka-reassign-partitions.sh, or change the setting, for one machine"
        )
    insync = int(values["min.insync.replicas"])
    if insync < config.insync_min:
        yield (
            f"min.insync.replicas = {insync}, less than kafka.insync_min = {config.insync_min}: change the topic, or the "
            "setting, for one machine"
        )
    if values.get("unclean.leader.election.enable") == "true":
        yield "unclean.leader.election.enable = true, which loses acknowledged requests: must be false"


def _complaints_of_retention(values: Mapping[str, str], least_s: int) -> Iterator[str]:
    if values["cleanup.policy"] != "delete":
        yield f"cleanup.policy = {values['cleanup.policy']}, which removes requests: must be delete"
    if 0 <= int(values["retention.ms"]) < least_s * 1000:
        yield (
            f"retention.ms = {values['retention.ms']}, less than retention_s = {least_s} seconds: set -1, because "
            "maintenance removes what is not needed"
        )
    if int(values["retention.bytes"]) >= 0:
        yield f"retention.bytes = {values['retention.bytes']}, which removes requests that wait: must be -1"
