"""`KafkaConfig` and `TopicPlace`: the settings of a log in Kafka, and where its topic is; the properties of any client.

Every process reads them, so this module imports nothing of Kafka.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from penstock.base.setting import setting
from penstock.errors import ConfigError

KAFKA: Final = "kafka://"
KAFKA_TABLE: Final = "kafka"
"""The table of the settings of a log in Kafka."""

EMBEDDED: Final = "embedded"
"""The value of the setting `log` that stands for a file in the data directory."""

FILE_SUFFIX: Final = "_file"
"""The end of the name of a property whose value is in a file: `sasl.password_file`."""

_SECRETS: Final = ("password", "secret", ".pem", "oauthbearer.config", "keytab", "token")

_OWN: Final[Mapping[str, str]] = {
    "bootstrap.servers": "the setting log names the brokers",
    "metadata.broker.list": "the setting log names the brokers",
    "acks": "an acknowledged request is on all replicas in sync",
    "request.required.acks": "an acknowledged request is on all replicas in sync",
    "enable.idempotence": "a repeated message must not appear twice",
    "transactional.id": "the log uses no transactions",
    "isolation.level": "the log uses no transactions",
    "message.timeout.ms": "kafka.append_ms bounds an append",
    "delivery.timeout.ms": "kafka.append_ms bounds an append",
    "group.id": "the partition is assigned, and no group shares it",
    "auto.offset.reset": "a missing position is an error, and never skipped",
    "enable.auto.commit": "each host notes its position beside what it has read",
    "enable.partition.eof": "each host must know when it has read everything",
    "allow.auto.create.topics": "a topic with the settings of the broker may lose records",
}
"""The properties of a log that Penstock decides, each with the reason."""

OWN_OF_VIEWS: Final[Mapping[str, str]] = {
    "bootstrap.servers": "the address of the view names the brokers",
    "metadata.broker.list": "the address of the view names the brokers",
    "acks": "a committed change is on all replicas in sync",
    "request.required.acks": "a committed change is on all replicas in sync",
    "enable.idempotence": "a repeated message must not appear twice",
    "transactional.id": "it keeps a second writer out, and follows from the address",
    "transaction.timeout.ms": "it bounds how long readers wait for a writer that was killed",
    "message.timeout.ms": "the view gives up by itself",
    "delivery.timeout.ms": "the view gives up by itself",
    "message.max.bytes": "the settings of the topics decide",
    "batch.size": "the settings of the topics decide",
    "partitioner": "a key has the partition that clients in Java give it",
    "isolation.level": "a position counts only with its rows",
    "group.id": "the partitions are assigned, and no group shares them",
    "auto.offset.reset": "a missing offset is an error, and never skipped",
    "enable.auto.commit": "the position is in a topic of its own",
    "enable.partition.eof": "the end of a topic must be known",
    "allow.auto.create.topics": "a topic with the settings of the broker may lose rows",
}
"""The same for the target of a view."""


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Settings of a log in Kafka.

    Attributes:
        properties: Properties of librdkafka by their names, such as `security.protocol`. They may be secrets, so they
            are never printed.
    """

    replicas_min: int = setting(
        3, "fewest replicas of the topic; 1 for one machine", at_least=1, at_most=32
    )
    insync_min: int = setting(
        2,
        "smallest `min.insync.replicas` of the topic: replicas that have a request when it is acknowledged; 1 for one "
        "machine",
        at_least=1,
        at_most=32,
    )
    append_ms: int = setting(
        2_000, "longest time that an append waits for the brokers; then it gets 503", at_least=500
    )
    properties: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        """Refuse properties that Penstock decides; raises `ConfigError`."""
        refuse_own(KAFKA_TABLE, self.properties, _OWN)

    def read(self) -> dict[str, str]:
        """Return the properties, those of files read.

        Raises:
            ConfigError: A file cannot be read.
        """
        return read_properties(KAFKA_TABLE, self.properties)


def refuse_own(table: str, properties: Iterable[str], own: Mapping[str, str]) -> None:
    """Refuse properties that Penstock decides.

    Args:
        table: The table of the settings that has the properties.
        own: The properties that Penstock decides, each with the reason.

    Raises:
        ConfigError: One of them is there.
    """
    for name in properties:
        reason = own.get(name.removesuffix(FILE_SUFFIX))
        if reason is not None:
            raise ConfigError(f"{table}.{name}: Penstock sets it, because {reason}; leave it out")


def read_properties(table: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties, those of files read.

    Raises:
        ConfigError: A file cannot be read.
    """
    values: dict[str, str] = {}
    for name, value in properties.items():
        values[name.removesuffix(FILE_SUFFIX)] = value
        if name.endswith(FILE_SUFFIX):
            try:
                values[name.removesuffix(FILE_SUFFIX)] = Path(value).read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not text"
                raise ConfigError(f"{table}.{name} = {value}: {reason}") from error
    return values


def is_secret(name: str) -> bool:
    """Say whether the value of a property may be a secret; the name of a file with it is none."""
    return not name.endswith(FILE_SUFFIX) and any(part in name for part in _SECRETS)


class TopicPlace(NamedTuple):
    """Where a topic is.

    Attributes:
        servers: `HOST:PORT[,HOST:PORT…]`.
    """

    servers: str
    topic: str

    def __str__(self) -> str:
        return f"{KAFKA}{self.servers}/{self.topic}"


def topic_of(url: str) -> TopicPlace:
    """Read `kafka://HOST:PORT[,HOST:PORT…]/TOPIC`.

    Raises:
        ConfigError: It has another form.
    """
    servers, _, topic = url.removeprefix(KAFKA).partition("/")
    parts = servers.split(",")
    ports = [part.rpartition(":")[2] for part in parts]
    if "@" in servers:
        raise ConfigError(
            "log: no address of a broker has a user or a password; give kafka.sasl.username and kafka.sasl.password_file"
        )
    if not (url.startswith(KAFKA) and topic and "/" not in topic and all(map(str.isdigit, ports))):
        raise ConfigError(
            f"log = {url!r}: must be {EMBEDDED}, or {KAFKA}HOST:PORT[,HOST:PORT…]/TOPIC"
        )
    return TopicPlace(servers, topic)
