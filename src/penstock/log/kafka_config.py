"""`KafkaConfig` and `TopicPlace`: the settings of a log in Kafka, and where its topic is.

Every process reads them, so this module imports nothing of Kafka.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from penstock.base.setting import setting
from penstock.errors import ConfigError

KAFKA: Final = "kafka://"
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
"""The properties that Penstock decides, each with the reason."""


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
        for name in self.properties:
            reason = _OWN.get(name.removesuffix(FILE_SUFFIX))
            if reason is not None:
                raise ConfigError(f"kafka.{name}: Penstock sets it, because {reason}; leave it out")

    def read(self) -> dict[str, str]:
        """Return the properties, those of files read.

        Raises:
            ConfigError: A file cannot be read.
        """
        values: dict[str, str] = {}
        for name, value in self.properties.items():
            values[name.removesuffix(FILE_SUFFIX)] = value
            if name.endswith(FILE_SUFFIX):
                try:
                    values[name.removesuffix(FILE_SUFFIX)] = Path(value).read_text().strip()
                except (OSError, UnicodeDecodeError) as error:
                    reason = getattr(error, "strerror", None) or "it is not text"
                    raise ConfigError(f"kafka.{name} = {value}: {reason}") from error
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
