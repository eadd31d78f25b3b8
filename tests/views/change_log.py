"""A reader of change logs in Kafka: it knows the page on views, and nothing of the program that writes them."""

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from time import monotonic, sleep
from typing import Any, Final, NamedTuple
from uuid import UUID

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from penstock.views.target import UNSHOWN, Kind, Row, TableShape

ANSWER_S: Final = 60.0


class Told(NamedTuple):
    """A committed message; key and value are decoded, and a tombstone has no value."""

    partition: int
    offset: int
    key: Any
    value: Any


def told_in(servers: str, topic: str) -> list[Told]:
    """Return the messages of a topic that a reader of committed transactions gets, in the order of each partition."""
    return list(_told_in(servers, topic))


def _told_in(servers: str, topic: str) -> Iterator[Told]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",  # the first messages may be deleted
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    with closing(consumer):
        found = consumer.list_topics(topic, 10).topics[topic]
        left = set() if found.error else set(found.partitions)
        parts = [TopicPartition(topic, at, 0) for at in left]
        _await_ends(AdminClient({"bootstrap.servers": servers, "log_level": 0}), parts)
        consumer.assign(parts)
        while left:
            taken = consumer.consume(1, ANSWER_S)
            assert taken, f"{topic}: no end of the partitions {left} in {ANSWER_S} s"
            for each in taken + consumer.consume(1_000, 0):
                error = each.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    left.discard(each.partition())  # which says its end again while others write
                    continue
                key, value, at, offset = each.key(), each.value(), each.partition(), each.offset()
                assert at is not None
                assert offset is not None
                yield Told(at, offset, _decoded(key), _decoded(value))


def _await_ends(admin: AdminClient, parts: list[TopicPartition]) -> None:
    """Wait until committed transactions have an end in each partition; that of a killed writer stays open."""
    deadline = monotonic() + 1.0
    levels = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
    while parts and monotonic() < deadline:
        asked = [
            admin.list_offsets(dict.fromkeys(parts, OffsetSpec.latest()), isolation_level=level)
            for level in levels
        ]
        with suppress(KafkaException):  # a topic that has just been created
            ends = [[each.result().offset for each in answers.values()] for answers in asked]
            if ends[0] == ends[1]:
                return
        sleep(0.1)


def _decoded(data: Any) -> Any:
    return None if data is None else json.loads(data)


def folded(messages: Sequence[Told]) -> dict[str, dict[str, Any]]:
    """Return the rows that messages lead to, by the text of their keys; each must continue the one before it."""
    rows: dict[str, dict[str, Any]] = {}
    for each in messages:
        key = json.dumps(each.key)
        if each.value is None:
            assert key not in rows, "a tombstone follows a removal"
            continue
        before, after, op = (each.value[name] for name in ("before", "after", "op"))
        if op in "cu":
            assert (key in rows) is (op == "u")
            assert before in (None, rows.get(key))
        if op == "d":
            former = rows.pop(key, None)
            assert former is None or before.items() <= former.items()
        else:
            rows[key] = after
    return rows


_BEGIN: Final = date(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_READ: Final[dict[Kind, Callable[[Any], Any]]] = {
    Kind.TEXT: str,
    Kind.INTEGER: int,
    Kind.BOOLEAN: bool,
    Kind.FLOAT: float,
    Kind.DECIMAL: Decimal,
    Kind.BYTES: base64.b64decode,
    Kind.DATE: lambda days: _BEGIN + timedelta(days=days),
    Kind.TIME: lambda count: (datetime(1970, 1, 1) + count * _MICROSECOND).time(),  # noqa: DTZ001
    Kind.TIMESTAMP: lambda text: datetime.fromisoformat(text).astimezone(UTC),
    Kind.DURATION: lambda count: count * _MICROSECOND,
    Kind.UUID: UUID,
    Kind.JSON: str,
}


def rows_of(shape: TableShape, rows: dict[str, dict[str, Any]]) -> list[Row]:
    """Return rows with the values that the kinds of their columns have."""
    return [
        tuple(_value(column.name, column.kind, row[column.name]) for column in shape.columns)
        for row in rows.values()
    ]


def _value(name: str, column_kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    return json.loads(value) if name == UNSHOWN else _READ[column_kind](value)
