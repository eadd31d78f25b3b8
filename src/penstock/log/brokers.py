"""`Brokers`: the connections of one process to a cluster of Kafka, and its mistakes in a sentence.

`confluent_kafka` is an extra (`penstock[cluster]`), so nothing imports this module before something lies in Kafka.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock.errors import ConfigError, LogUnavailable, PenstockError

START_S: Final = 3.0
"""How long a start waits for a broker before it says that there is none."""

MOVING: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 -- from a broker that does not know a new topic yet
    }
)
"""Errors that end when the brokers know the leader of a partition."""

_LOOK_S: Final = 0.5

_SILENT: Final = logging.getLogger(f"{__name__}.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Brokers:
    """Connections to brokers; safe for threads.

    Args:
        what: The place in Kafka, as messages name it.
        servers: `HOST:PORT[,HOST:PORT…]`.
        table: The table of the settings that has the properties, such as `kafka`.
        properties: Reads the properties of librdkafka that an operator has set.

    Raises, from every method:
        ConfigError: A property or the credentials are wrong.
        LogUnavailable: No broker answers.
    """

    def __init__(
        self, what: object, servers: str, table: str, properties: Callable[[], Mapping[str, str]]
    ) -> None:
        self._what = what
        self._servers = servers
        self._table = table
        self._given = properties
        self._reason = ""
        self._is_refused = False
        self._admin: AdminClient | None = None

    def properties(
        self, own: Mapping[str, object], defaults: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        """Return the properties of a client; those of the operator replace `defaults`, and `own` replaces theirs."""
        return {
            "bootstrap.servers": self._servers,
            "client.id": "penstock",
            "allow.auto.create.topics": False,
            "topic.metadata.refresh.interval.ms": 5_000,
            "reconnect.backoff.max.ms": 1_000,
            "socket.keepalive.enable": True,
            "log_level": 0,  # `_reason` has the words of librdkafka
            **(defaults or {}),
            **self._given(),
            **own,
            "error_cb": self._note,
            "logger": _SILENT,  # else a fatal error is written to standard error
        }

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Name a property that librdkafka does not know or cannot use, when a client is made."""
        try:
            yield
        except KafkaException as error:
            raise ConfigError(
                f"the settings of the table {self._table}: {error.args[0].str()}"
            ) from error

    def administrator(self) -> AdminClient:
        """Return the administrator's client."""
        if self._admin is None:
            with self.checked():
                self._admin = AdminClient(self.properties({}))
        return self._admin

    def reachable(self, topic: str) -> AdminClient:
        """Return the administrator's client once a broker answers; raises as soon as it is known why none does."""
        admin = self.administrator()
        self._reason, self._is_refused = "", False
        deadline = time.monotonic() + START_S
        while True:
            try:
                admin.list_topics(topic, timeout=_LOOK_S)
                return admin
            except KafkaException as error:
                admin.poll(0)
                if time.monotonic() > deadline or _is_refusal(error.args[0]) or self._is_refused:
                    raise self.translated(error.args[0]) from error

    def because(self) -> str:
        """Return the end of a sentence about brokers that do not answer."""
        return f"; {self._reason}" if self._reason else "; no broker answers"

    def translated(self, error: KafkaError) -> PenstockError:
        """Return an error in the words of Penstock."""
        code = error.code()
        if self._is_refused or _is_refusal(error):
            return ConfigError(
                f"{self._what} refuses the connection: {self._reason or error.str()}; {self._table}.security.protocol and the "
                f"properties {self._table}.sasl.… and {self._table}.ssl.… must fit the brokers"
            )
        if code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
            return ConfigError(
                f"{self._what}: {error.str()}; the user needs the rights to describe, read, write and delete records of the "
                "topic, and to create it if it does not exist"
            )
        if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return ConfigError(
                f"{self._what}: {error.str()}; the user needs the rights to describe and write the transactional id"
            )
        if code in (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            return LogUnavailable(
                f"{self._what}: fewer replicas are in sync than min.insync.replicas"
            )
        return LogUnavailable(
            f"{self._what}: {error.str()}{f'; {self._reason}' if self._reason else ''}"
        )

    def close(self) -> None:
        """End the administrator's connection."""
        self._admin = None

    def _note(self, error: KafkaError) -> None:
        """Keep the words of librdkafka about the brokers; that all of them are down says less."""
        if error.code() != error._ALL_BROKERS_DOWN:  # noqa: SLF001 -- its public name
            self._reason = error.str()
            self._is_refused = _is_refusal(error)
        elif not self._reason:
            self._reason = f"{error.str()}: none can be reached, or {self._table}.security.protocol is not that of their port"


def _is_refusal(error: KafkaError) -> bool:
    """Say whether an error lasts until an operator changes credentials or certificates."""
    codes = (error._AUTHENTICATION, error._SSL, error.SASL_AUTHENTICATION_FAILED)  # noqa: SLF001
    return error.code() in codes
