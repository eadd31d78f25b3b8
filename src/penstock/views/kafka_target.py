"""`KafkaTarget`: the tables of a view as change logs in Kafka, a topic for each table.

A change is one transaction of Kafka: the messages of all tables, and the position, which is a message of a topic of its
own. The transactional id follows from the address, so a second writer fences the first one: the brokers refuse the
messages of a writer that was stopped and wakes late. A writer reads the position behind its own fence, and so the comparison holds until its commit.

    PREFIX.TABLE      key: the row key; value: the change in the envelope of Debezium, and a tombstone behind a removal
    PREFIX._position  the position, which topics there are, and from which offsets on they have no older rows

The rows that the topics show are in a `RowCopy`, because a log cannot be asked for the row of a key.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType
from msgspec.structs import replace

from penstock.base.ids import Epoch
from penstock.errors import ConfigError, PenstockError
from penstock.log.brokers import MOVING, Brokers
from penstock.log.clock import wall_clock_us
from penstock.log.kafka_config import KAFKA, KAFKA_TABLE, read_properties
from penstock.views.change_message import Frame, Source, TableMessages, TooLarge, read_row
from penstock.views.row_copy import Change, RowCopy
from penstock.views.target import (
    FAILED,
    Overtaken,
    Position,
    Refused,
    Standing,
    TableChange,
    TableShape,
    TargetProblem,
)

POSITION: Final = "_position"
"""The table whose topic has the position; no table of an application has such a name."""

COPY: Final = "rows.sqlite"
"""The file in the folder of the view with the rows that the topics show."""

_KEY: Final = b'"position"'
_ANSWER_S: Final = 20.0
"""How long a transaction waits for the brokers before the view says so, and tries again."""
_TRANSACTION_MS: Final = 60_000
_FILL_MS: Final = 900_000
"""After this time the brokers end a transaction whose writer is gone; readers wait for it. The longest that brokers allow by default."""
_ABORT_S: Final = 2.0
_END_S: Final = 1.0
_NAME_MAX: Final = 249
_TAIL: Final = 16
_LOOK_S: Final = 0.05
_BATCH: Final = 1_000
_BATCH_BYTES: Final = 200_000
_MESSAGE_BYTES_MIN: Final = 250_000
"""The smallest limit of a topic: a batch of messages must fit."""

_BUFFER_KB: Final = 65_536
_STEP: Final = 1_000
_UNLIMITED: Final = "-1"

_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 -- its public name
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
_TOPIC: Final = {
    "cleanup.policy": "compact,delete",  # without `delete`, no record can be deleted after an erasure
    "retention.ms": _UNLIMITED,
    "retention.bytes": _UNLIMITED,
    "unclean.leader.election.enable": "false",
}
"""The settings of a topic that Penstock creates."""

T = TypeVar("T")

_OF_POSITION: Final = {**_TOPIC, "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1"}


class ShownTopic(msgspec.Struct, frozen=True):
    """A topic of a view.

    Attributes:
        name: The topic.
        id: The id that it got when it was created.
        partitions: The number of its partitions. With another one, a key would have messages in two.
        made: Whether the view has created it.
        since: For each partition, the offset of the last fill: each row has a message behind it.
    """

    name: str
    id: str
    partitions: int
    made: bool
    since: list[int] = []


class Record(msgspec.Struct, frozen=True):
    """The message with the position.

    Attributes:
        token: Names the transaction.
        failed: The number of rows in the table `FAILED`.
        topics: The topics by the names of their tables, also of tables that the view does not have any more.
        made: Whether the view has created the topic of positions.
    """

    view: str
    position: Position
    token: str
    failed: int
    topics: dict[str, ShownTopic]
    made: bool


_RECORD: Final = msgspec.json.Decoder(Record)


class _Place(NamedTuple):
    """Where a change log is.

    Attributes:
        prefix: The beginning of the names of all topics.
        partitions: The number of partitions of a topic that the view creates; -1: that of the brokers.
        replicas: The same for its replicas.
    """

    servers: str
    prefix: str
    partitions: int
    replicas: int


class KafkaTarget:
    """The change logs of one view; a `Target`.

    Args:
        url: `kafka://HOST:PORT[,HOST:PORT…]/PREFIX`, with `?partitions=N&replicas=N` for topics that are created.
        folder: A folder for the copy of the rows.
        properties: Properties of librdkafka.
        time_of: Returns when an epoch was committed, in microseconds since 1970; None if it is not known.

    Raises:
        ConfigError: The URL cannot be read.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        view: str,
        properties: Mapping[str, str],
        time_of: Callable[[Epoch], int | None] = lambda _: None,
    ) -> None:
        self._view = view
        self._setting = f"views.{view}.url"
        self._rebuild = f"penstock view rebuild {view}"
        self._place = _place_of(url, self._setting)
        self._position_topic = f"{self._place.prefix}.{POSITION}"
        table = f"views.{view}.{KAFKA_TABLE}"
        self._brokers = Brokers(
            f"{KAFKA}{self._place.servers}/{self._place.prefix}",
            self._place.servers,
            table,
            lambda: read_properties(table, properties),
        )
        self._copy = RowCopy(folder / COPY)
        self._time_of = time_of
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._limits: dict[str, int] = {}  # the most bytes of a message of each topic
        # The record of the topics; it holds while the producer was not fenced.
        self._record: Record | None = None
        self._shown: Position | None = None  # by the last transaction of this writer
        self._has_made_position = False
        self._timeout_ms = 0  # of the producer's transactions

    def position(self) -> Standing:
        """Return the position, and the number of failed rows."""
        # That of the last transaction of this writer; a later writer is noticed at the next one.
        if (record := self._record) is None:
            with self._translated():
                record = self._read_record()
        return Standing(None) if record is None else Standing(record.position, record.failed)

    def load(
        self,
        before: Position | None,
        after: Position,
        shapes: Sequence[TableShape],
        rows: Iterable[TableChange],
    ) -> None:
        """Send all rows again, and remove those that are gone; a reader gets all of it at once."""
        named = _topics_of(self._place.prefix, shapes)
        with self._translated():
            former = self._require(before, _FILL_MS)
            topics, adopted = self._ensured(named, {} if former is None else former.topics)
        messages = {shape.name: self._messages(shape, topics[shape.name]) for shape in shapes}
        with self._copy.changing():
            with self._translated():
                if self._settle(former, topics):
                    self._replay({of: topics[of] for of in adopted})
            self._copy.begin_fill()
            for change in rows:
                table = messages[change.shape.name]
                with self._fitting(change.shape):
                    self._copy.add(change.shape.name, table.rows(change.rows))
            with self._translated():
                self._send_fill(former, after, shapes, topics)

    def apply(self, before: Position, after: Position, changes: Sequence[TableChange]) -> None:
        """Send the changes of rows and the new position in one transaction."""
        with self._translated():
            former = self._require(before, _TRANSACTION_MS)
            assert former is not None, "it has the position `before`"
            if not self._limits:
                self._check(former)
            for change in changes:
                if change.shape.name not in former.topics:
                    raise TargetProblem(
                        f"there is no topic of the table {change.shape.name}", self._rebuild
                    )
        frame = self._frame(after, is_fill=False)
        token = secrets.token_hex(8)
        with self._copy.changing():
            with self._translated():
                self._settle(former, former.topics)
            noted: list[Change] = []
            sent: list[tuple[str, bytes, bytes | None]] = []
            for change in changes:
                self._take(change, former.topics[change.shape.name], frame, noted, sent)
            failed = former.failed + self._more_failed(noted)
            record = replace(former, position=after, token=token, failed=failed)
            self._copy.prepare(token, noted)
            with self._translated():
                self._transact(record, sent)

    def purge(self) -> None:
        """Delete the messages before the last fill, in which each row has a later one, and their rest in the copy."""
        with self._translated():
            record = self._read_record()
            if record is None:
                return
            self._delete_before(record)
            with self._copy.changing():
                self._settle(record, record.topics)
            self._copy.purge()

    def drop(self, before: Position) -> None:
        """Remove all rows and the position in one transaction, and then the topics that the view has created."""
        with self._translated():
            former = self._require(before, _TRANSACTION_MS)
            assert former is not None, "it has the position `before`"
            with self._copy.changing():
                present = self._described([each.name for each in former.topics.values()])
                topics = {of: each for of, each in former.topics.items() if each.name in present}
                self._settle(former, topics)
                self._copy.begin_fill()
                frame = self._frame(before, is_fill=True)
                self._transact(None, self._removals(topics, frame))
            self._drop_producer()
            made = [each.name for each in topics.values() if each.made]
            self._delete_topics([*made, *([self._position_topic] if former.made else [])])
        self._copy.remove()

    def close(self) -> None:
        """End the connections; a transaction that was not committed has no effect."""
        self._drop_producer()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._brokers.close()
        self._copy.close()

    # -- the messages of a change

    def _take(
        self,
        change: TableChange,
        topic: ShownTopic,
        frame: Frame,
        noted: list[Change],
        sent: list[tuple[str, bytes, bytes | None]],
    ) -> None:
        """Add the changed rows: to those of the copy, and as messages."""
        name, limit = change.shape.name, self._limits[topic.name]
        table = self._messages(change.shape, topic)
        known = self._copy.rows_of(name, [table.owner(each) for each in change.touched])
        with self._fitting(change.shape):
            for owner, key, value in table.rows(change.rows):
                _, former = known.pop(key, (b"", None))
                if former != value:  # else nothing that is shown has changed
                    noted.append((name, owner, key, value))
                    sent.append((topic.name, key, frame.change(name, key, former, value, limit)))
        for key, (owner, former) in known.items():
            noted.append((name, owner, key, None))
            sent.append((topic.name, key, frame.change(name, key, former, None)))
            sent.append((topic.name, key, None))

    def _more_failed(self, noted: Sequence[Change]) -> int:
        owners = [owner for of, owner, _, _ in noted if of == FAILED]
        if not owners:
            return 0
        present = self._copy.rows_of(FAILED, owners)
        later = {key for of, _, key, value in noted if of == FAILED and value is not None}
        gone = {key for of, _, key, value in noted if of == FAILED and value is None}
        return len(later - present.keys()) - len(gone)

    def _send_fill(
        self,
        former: Record | None,
        after: Position,
        shapes: Sequence[TableShape],
        topics: Mapping[str, ShownTopic],
    ) -> None:
        ends = self._ends([topics[shape.name] for shape in shapes])
        since = {
            name: replace(topic, since=ends.get(topic.name, topic.since))
            for name, topic in topics.items()
        }
        made = former.made if former is not None else self._has_made_position
        token = secrets.token_hex(8)
        failed = self._copy.count(FAILED, "fresh")
        record = Record(self._view, after, token, failed, since, made)
        frame = self._frame(after, is_fill=True)

        def sent() -> Iterator[tuple[str, bytes, bytes | None]]:
            yield from self._removals(topics, frame)
            for of, key, value in self._copy.fresh():
                yield topics[of].name, key, frame.change(of, key, None, value)

        self._copy.prepare_fill(token)
        self._transact(record, sent())

    def _removals(
        self, topics: Mapping[str, ShownTopic], frame: Frame
    ) -> Iterator[tuple[str, bytes, bytes | None]]:
        """Yield the messages for rows that a fill does not have any more; those of a topic that is gone are gone with it."""
        for of, key in self._copy.gone():
            if of in topics:
                # The key alone, because a fill may follow from the erasure of a person.
                yield topics[of].name, key, frame.change(of, key, key, None)
                yield topics[of].name, key, None

    def _messages(self, shape: TableShape, topic: ShownTopic) -> TableMessages:
        return TableMessages(shape, self._limits[topic.name])

    def _frame(self, after: Position, *, is_fill: bool) -> Frame:
        source = Source(self._place.prefix, self._view)
        time_us = self._time_of(after.epoch)
        return Frame(source, after.epoch, time_us, wall_clock_us(), is_fill=is_fill)

    @contextmanager
    def _fitting(self, shape: TableShape) -> Iterator[None]:
        try:
            yield
        except TooLarge:
            raise TargetProblem(
                f"a key of the table {shape.name} is longer than a message may be",
                "raise max.message.bytes of its topic",
            ) from None

    def _settle(self, record: Record | None, topics: Mapping[str, ShownTopic]) -> bool:
        """Bring the copy to the state of the topics; return False if it had to be made from them."""
        token = "" if record is None else record.token
        if self._copy.settle(token):
            return True
        self._copy.begin_again(token)
        self._replay(topics)
        return False

    def _replay(self, topics: Mapping[str, ShownTopic]) -> None:
        """Add the rows of topics to the copy."""
        tables = {topic.name: of for of, topic in topics.items()}
        parts = [
            TopicPartition(topic.name, partition, 0)
            for topic in topics.values()
            for partition in range(topic.partitions)
        ]
        for topic_name, key, value in self._every(parts):
            if (row := read_row(key, value)) is not None:
                self._copy.replay(tables[topic_name], *row)

    # -- the transaction

    def _require(self, before: Position | None, timeout_ms: int) -> Record | None:
        """Return the record of the topics, read behind the fence of this writer; it has the expected position.

        Raises:
            Overtaken: They have another one.
        """
        if self._timeout_ms != timeout_ms:
            self._drop_producer()  # a fill has more time than the transactions of changes
        if self._producer is None:
            is_own = before is not None and before == self._shown
            if not is_own and _position_of(self._read_record()) != before:
                raise Overtaken  # without a fence, which would disturb the other writer
            self._has_made_position = self._ensure_position()
            self._producer, self._timeout_ms = self._fenced(timeout_ms), timeout_ms
            self._record = self._read_record()
        if _position_of(self._record) != before:
            raise Overtaken
        return self._record

    def _fenced(self, timeout_ms: int) -> Producer:
        own = {
            "transactional.id": f"penstock.{self._place.prefix}",
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": min(timeout_ms, int(_ANSWER_S * 1_000)),
            "queue.buffering.max.kbytes": _BUFFER_KB,
            "message.max.bytes": 1_000_000_000,  # the limits of the topics hold
            "batch.size": _BATCH_BYTES,
        }
        with self._brokers.checked():
            producer = Producer(
                self._brokers.properties(own, {"compression.type": "lz4", "linger.ms": 5})
            )
        producer.init_transactions(_ANSWER_S)
        return producer

    def _transact(
        self, record: Record | None, messages: Iterable[tuple[str, bytes, bytes | None]]
    ) -> None:
        """Send messages and the record, make the change of the copy durable, and commit."""
        producer = self._producer
        assert producer is not None, "it was required"
        self._record = None  # until it is known
        try:
            producer.begin_transaction()
            for at, (topic, key, value) in enumerate(messages):
                self._produce(producer, topic, key, value)
                if at % _STEP == 0:
                    producer.poll(0)
            told = None if record is None else msgspec.json.encode(record)
            self._produce(producer, self._position_topic, _KEY, told)
            self._copy.commit()
            self._commit(producer)
        except KafkaException as error:
            is_fenced = error.args[0].code() in _FENCED
            self._drop_producer(aborts=not is_fenced)
            if is_fenced:
                raise Overtaken from error
            raise
        except BaseException:
            self._drop_producer(aborts=True)
            raise
        self._record = record
        self._shown = _position_of(record)
        if record is not None:
            # Another process may have it; then the next call settles it.
            with suppress(TargetProblem), self._copy.changing():
                self._copy.settle(record.token)

    def _produce(self, producer: Producer, topic: str, key: bytes, value: bytes | None) -> None:
        deadline = time.monotonic() + _ANSWER_S
        while True:
            try:
                producer.produce(topic, value, key)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise TargetProblem(
                        f"{self._place.servers}: the brokers take no messages{self._brokers.because()}"
                    ) from None
                producer.poll(_LOOK_S)

    def _commit(self, producer: Producer) -> None:
        deadline = time.monotonic() + _ANSWER_S
        while True:
            try:
                producer.commit_transaction(max(_LOOK_S, deadline - time.monotonic()))
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _drop_producer(self, *, aborts: bool = False) -> None:
        producer, self._producer, self._record = self._producer, None, None
        self._limits = {}  # the topics may be others when they are looked at again
        if producer is None:
            return
        # Its end, when nothing refers to it, waits for no message. Its `close` would, and fails for one that is fenced.
        with suppress(KafkaException):
            producer.purge()
            if aborts:
                # Else readers wait until the next writer, or the brokers, end the transaction.
                producer.abort_transaction(_ABORT_S)

    # -- topics

    def _ensured(
        self, named: Mapping[str, str], known: Mapping[str, ShownTopic]
    ) -> tuple[dict[str, ShownTopic], list[str]]:
        """Return the topics of tables, and those of former tables; one that is missing is created.

        Returns:
            The topics by table, and the tables whose topic was there before the view had it.
        """
        former = {of: topic for of, topic in known.items() if of not in named}
        present = self._described([*named.values(), *(each.name for each in former.values())])
        missing = [name for name in named.values() if name not in present]
        self._create(missing, self._place.partitions, _TOPIC)
        present |= self._described(missing)
        topics = {
            of: each for of, each in former.items() if each.id == present.get(each.name, _NO)[0]
        }
        adopted: list[str] = []
        for of, name in named.items():
            identity, partitions = present[name]
            own = known.get(of)
            if own is None or own.id != identity:
                topics[of] = ShownTopic(name, identity, partitions, name in missing)
                adopted += [] if name in missing else [of]
            elif own.partitions != partitions:
                raise _other_partitions(own, partitions, self._rebuild)
            else:
                topics[of] = own
        self._read_settings([each.name for each in topics.values()])
        return topics, adopted

    def _check(self, record: Record) -> None:
        """Check that the topics are those that the rows went to."""
        present = self._described([each.name for each in record.topics.values()])
        for topic in record.topics.values():
            identity, partitions = present.get(topic.name, _NO)
            if identity != topic.id:
                what = "was created again" if identity else "is gone"
                raise TargetProblem(
                    f"the topic {topic.name} {what}, and its rows with it", f"run {self._rebuild}"
                )
            if partitions != topic.partitions:
                raise _other_partitions(topic, partitions, self._rebuild)
        self._read_settings([each.name for each in record.topics.values()])

    def _described(self, names: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Return id and number of partitions of the topics that there are."""
        if not names:
            return {}
        asked = self._brokers.administrator().describe_topics(
            TopicCollection([*names]), request_timeout=_ANSWER_S
        )
        present: dict[str, tuple[str, int]] = {}
        for name, answer in asked.items():
            try:
                described = answer.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            else:
                present[name] = str(described.topic_id), len(described.partitions)
        return present

    def _create(self, names: Sequence[str], partitions: int, config: Mapping[str, str]) -> None:
        """Create topics, and wait until the brokers know them."""
        if not names:
            return
        admin = self._brokers.administrator()
        wanted = [
            NewTopic(
                name,
                num_partitions=partitions,
                replication_factor=self._place.replicas,
                config=dict(config),
            )
            for name in names
        ]
        for answer in admin.create_topics(wanted, request_timeout=_ANSWER_S).values():
            try:
                answer.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        deadline = time.monotonic() + _ANSWER_S
        while len(self._described(names)) < len(names):
            if time.monotonic() > deadline:
                raise TargetProblem(f"the topics {', '.join(names)} were created and do not appear")
            time.sleep(_LOOK_S)

    def _delete_topics(self, names: Sequence[str]) -> None:
        admin = self._brokers.administrator()
        for answer in admin.delete_topics([*names], operation_timeout=_ANSWER_S).values():
            try:
                answer.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        deadline = time.monotonic() + _ANSWER_S
        while left := self._described(names):
            if time.monotonic() > deadline:
                raise TargetProblem(f"the topics {', '.join(left)} were deleted and stay")
            time.sleep(_LOOK_S)

    def _read_settings(self, names: Sequence[str]) -> None:
        """Check the settings of topics, and learn how long their messages may be.

        Raises:
            Refused: A topic would lose rows, or refuse them.
        """
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        admin = self._brokers.administrator()
        for resource, answer in admin.describe_configs(
            resources, request_timeout=_ANSWER_S
        ).items():
            values = {name: entry.value for name, entry in answer.result().items()}
            self._limits[resource.name] = int(values["max.message.bytes"])
            policy = values["cleanup.policy"].split(",")
            wrong = []
            if self._limits[resource.name] < _MESSAGE_BYTES_MIN:
                limit = f"max.message.bytes = {values['max.message.bytes']}"
                wrong.append(f"{limit}: must be at least {_MESSAGE_BYTES_MIN}")
            if "compact" not in policy:
                wrong.append(f"cleanup.policy = {values['cleanup.policy']}: must be compact,delete")
            if "delete" in policy:
                wrong += [
                    f"{name} = {values[name]}: must be {_UNLIMITED}"
                    for name in ("retention.ms", "retention.bytes")
                    if values[name] != _UNLIMITED
                ]
            if wrong:
                raise Refused(
                    f"the topic {resource.name} cannot hold all rows: {'; '.join(wrong)}",
                    f"kafka-configs.sh --alter --entity-type topics --entity-name {resource.name} --add-config NAME=VALUE",
                )

    def _delete_before(self, record: Record) -> None:
        parts = [
            TopicPartition(topic.name, partition, offset)
            for topic in record.topics.values()
            for partition, offset in enumerate(topic.since)
            if offset > 0
        ]
        if not parts:
            return
        answers = self._brokers.administrator().delete_records(parts, request_timeout=_ANSWER_S)
        for part, answer in answers.items():
            try:
                answer.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.POLICY_VIOLATION:
                    raise
                raise TargetProblem(
                    f"the topic {part.topic} lets no message be deleted",
                    "set its cleanup.policy to compact,delete, with retention.ms and retention.bytes of -1",
                ) from error

    # -- reading

    def _ensure_position(self) -> bool:
        """Create the topic of positions if it is missing; say whether it was."""
        if self._described([self._position_topic]):
            return False
        self._create([self._position_topic], 1, _OF_POSITION)
        return True

    def _read_record(self) -> Record | None:
        """Return the newest committed position.

        Raises:
            Refused: It is that of another view.
        """
        self._brokers.reachable(self._position_topic)
        if not self._described([self._position_topic]):
            return None
        part = TopicPartition(self._position_topic, 0)
        self._await_end(part)
        low, high = self._offsets(part)
        # The newest messages first: the position is among them, but for many transactions that were not committed.
        step = _TAIL
        while True:
            start = max(low, high - step)
            last: bytes | None = None
            has_record = False
            for _, key, value in self._every([TopicPartition(part.topic, 0, start)]):
                if key == _KEY:
                    last, has_record = value, True
            if has_record or start == low:
                break
            step *= _TAIL
        if last is None:
            return None
        record = _RECORD.decode(last)
        if record.view != self._view:
            raise Refused(
                f"the topics {self._place.prefix}.… belong to the view {record.view}",
                f"write another prefix into {self._setting}",
            )
        return record

    def _every(
        self, parts: Sequence[TopicPartition]
    ) -> Iterator[tuple[str, bytes | None, bytes | None]]:
        """Yield topic, key and value of the committed messages from offsets on, to the present end of each partition."""
        reader, left = self._reader(), {(part.topic, part.partition) for part in parts}
        if not left:
            return
        reader.assign([*parts])
        deadline = time.monotonic() + _ANSWER_S
        while left:
            # To ask for many at once would wait out the whole time.
            taken = reader.consume(1, _LOOK_S)
            taken += reader.consume(_BATCH, 0) if taken else []
            if not taken and time.monotonic() > deadline:
                raise TargetProblem(
                    f"{self._place.servers}: no message arrives{self._brokers.because()}"
                )
            for each in taken:
                error = each.error()
                if error is None:
                    deadline = time.monotonic() + _ANSWER_S
                    yield str(each.topic()), _bytes(each.key()), _bytes(each.value())
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 -- its public name
                    # While others write, a partition says its end again and again.
                    left.discard((str(each.topic()), each.partition()))
                elif error.code() not in MOVING or time.monotonic() > deadline:
                    raise KafkaException(error)

    def _ends(self, topics: Sequence[ShownTopic]) -> dict[str, list[int]]:
        """Return for each topic the offsets at which its partitions end.

        The end of a transaction is written a moment after its commit, so readers of committed messages find an earlier end. Messages
        between the two would never be deleted.
        """
        return {
            topic.name: [
                self._written_end(TopicPartition(topic.name, at)) for at in range(topic.partitions)
            ]
            for topic in topics
        }

    def _written_end(self, part: TopicPartition) -> int:
        """Return the offset behind the last message of a partition, committed or not."""
        admin = self._brokers.administrator()

        def asked() -> int:
            wanted = {part: OffsetSpec.latest()}
            ends = admin.list_offsets(
                wanted,
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=_ANSWER_S,
            )
            return int(ends[part].result().offset)

        return _when_settled(asked)

    def _await_end(self, part: TopicPartition) -> None:
        """Wait a little for a transaction that was committed, and whose end is not written into the partition yet.

        One whose writer was killed stays open until the next writer, so the time is short. A position that is read too
        early is wrong without harm, because a writer reads it again behind its fence.
        """
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline:
            ends = [
                self._brokers.administrator()
                .list_offsets({part: OffsetSpec.latest()}, isolation_level=level)[part]
                .result()
                .offset
                for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
            ]
            if ends[0] >= ends[1]:
                return
            time.sleep(_LOOK_S / 5)

    def _offsets(self, part: TopicPartition) -> tuple[int, int]:
        """Return the offsets [low, high) of the committed messages of a partition."""

        def asked() -> tuple[int, int]:
            low, high = self._reader().get_watermark_offsets(part, _ANSWER_S)
            return low, high

        return _when_settled(asked)

    def _reader(self) -> Consumer:
        if self._consumer is None:
            own = {
                "group.id": "penstock",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,  # the end of a partition is told after this time
            }
            with self._brokers.checked():
                self._consumer = Consumer(self._brokers.properties(own))
        return self._consumer

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise errors of Kafka as problems of the target."""
        try:
            try:
                yield
            except KafkaException as error:
                raise self._brokers.translated(error.args[0]) from error
        except PenstockError as error:
            raise TargetProblem(str(error)) from error


_NO: Final = ("", 0)


def _when_settled(asked: Callable[[], T]) -> T:
    """Ask the brokers until they know the leader of a partition: it may change, and a new one is not known everywhere at once."""
    deadline = time.monotonic() + _ANSWER_S
    while True:
        try:
            return asked()
        except KafkaException as error:
            if error.args[0].code() not in MOVING or time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_S)


def _position_of(record: Record | None) -> Position | None:
    return None if record is None else record.position


def _bytes(value: object) -> bytes | None:
    return value if isinstance(value, bytes) else None


def _other_partitions(topic: ShownTopic, partitions: int, rebuild: str) -> Refused:
    return Refused(
        f"the topic {topic.name} has {partitions} partitions, and had {topic.partitions}: a key would have messages in two",
        f"delete the topic, create it with the partitions that you want, and run {rebuild}",
    )


def _topics_of(prefix: str, shapes: Sequence[TableShape]) -> dict[str, str]:
    """Return the topics of tables.

    Raises:
        Refused: Kafka has no topic with such a name.
    """
    named: dict[str, str] = {}
    for shape in shapes:
        topic = f"{prefix}.{topic_name(shape.name)}"
        if topic in named.values() or len(topic) > _NAME_MAX:
            what = "is that of two tables" if topic in named.values() else "is too long"
            raise Refused(
                f"the name {topic} of the topic of {shape.name} {what}", "rename the table"
            )
        named[shape.name] = topic
    return named


def topic_name(table: str) -> str:
    """Return the end of the name of a table's topic: other characters than those of Kafka become `_uHHHH_`."""
    return re.sub(r"[^A-Za-z0-9._-]", lambda other: f"_u{ord(other[0]):04x}_", table)


def _place_of(url: str, setting: str) -> _Place:
    address, _, query = url.partition("?")
    servers, _, prefix = address.removeprefix(KAFKA).partition("/")
    if "@" in servers:
        raise ConfigError(
            f"{setting}: no address of a broker has a user or a password; give "
            f"{setting.removesuffix('url')}kafka.sasl.username and {setting.removesuffix('url')}kafka.sasl.password_file"
        )
    given = dict(parse_qsl(query, keep_blank_values=True))
    counts = {name: given.pop(name, "") for name in ("partitions", "replicas")}
    ports = [part.rpartition(":")[2] for part in servers.split(",")]
    if (
        not address.startswith(KAFKA)
        or not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", prefix)
        or not all(map(str.isdigit, ports))
        or given
        or not all(re.fullmatch(r"|[1-9][0-9]{0,4}", count) for count in counts.values())
    ):
        raise ConfigError(
            f"{setting} cannot be read; write it as {KAFKA}HOST:PORT[,HOST:PORT…]/PREFIX, perhaps with "
            "?partitions=N&replicas=N for topics that are created"
        )
    partitions, replicas = (int(counts[name] or -1) for name in ("partitions", "replicas"))
    return _Place(servers, prefix, partitions, replicas)
