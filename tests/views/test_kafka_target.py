"""The Kafka target: the suite of all targets, and what only a log can do.

The cases of issues of other systems that concern targets (`test_postgres_target` has the list): changes are by key, and rows and
position are in one transaction, so that cases 1 to 9 are those of the suite. Tombstones (10) follow each removal.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError, RequestError
from penstock.model.target_choice import kafka
from penstock.model.views.view import ViewPlan
from penstock.orders.view_orders import TablesOfView
from penstock.process.data_directory import DataDirectory
from penstock.process.view_files import ViewState, read_report
from penstock.testing.target_suite import ENOUGH, KINDS, TargetSuite, position_of
from penstock.views.kafka_target import COPY, KafkaTarget, topic_name
from penstock.views.removal import removed
from penstock.views.target import (
    UNSHOWN,
    ColumnShape,
    Kind,
    Refused,
    Row,
    TableChange,
    TableShape,
    Target,
    TargetProblem,
)
from penstock.views.targets import open_target
from tests.kafka_server import Broker, KafkaServer
from tests.views.appliers import appliers
from tests.views.book import Book, epoch_in_kafka, shown_in_kafka
from tests.views.change_log import Told, folded, rows_of, told_in
from tests.views.orders_app import in_kafka
from tests.waiting import wait_for

pytestmark = pytest.mark.long

VIEW = "reporting"
PASSWORD = "hunter2-and-more"
KEY = ColumnShape("_key", Kind.TEXT)
REASONS = ColumnShape(UNSHOWN, Kind.JSON)
ITEM = TableShape("Item", 1, (KEY, ColumnShape("name", Kind.TEXT), REASONS))


def prefix_of(place: Path) -> str:
    return topic_name(f"{place.parent.parent.name}-{place.parent.name}-{place.name}")[-150:]


@pytest.mark.turns(4, "views", "testing", of="the suite of targets, on Kafka")
class TestKafkaTarget(TargetSuite):
    kills = int(os.environ.get("PENSTOCK_KILLS", "4"))

    @pytest.fixture(autouse=True)
    def _on_a_server(self, kafka_server: Broker) -> None:
        self.servers = kafka_server.servers

    def opened(self, place: Path) -> Target:
        url = f"kafka://{self.servers}/{prefix_of(place)}?partitions=2"
        return KafkaTarget(url, place, VIEW, {})

    @given(st.data())
    @settings(ENOUGH, max_examples=5)
    def test_random_steps_equal_the_model(self, tmp_path: Path, data: st.DataObject) -> None:
        """Each example has topics of its own, so there are fewer."""
        self.random_steps(tmp_path, data)

    def rows_in(self, place: Path, shape: TableShape) -> list[Row]:
        topic = f"{prefix_of(place)}.{topic_name(shape.name)}"
        return rows_of(shape, folded(told_in(self.servers, topic)))


class Log:
    """The change logs of a view that a test writes, epoch after epoch."""

    def __init__(self, broker: Broker, place: Path) -> None:
        self.broker = broker
        self.place = place
        self.prefix = prefix_of(place)
        self.epoch = 0
        self.target = self.again()

    def again(self, view: str = VIEW, prefix: str = "") -> KafkaTarget:
        """Return another target of the same topics."""
        url = f"kafka://{self.broker.servers}/{prefix or self.prefix}?partitions=3"
        return KafkaTarget(url, self.place, view, {}, lambda epoch: 1_700_000_000_000_000 + epoch)

    def load(self, rows: Sequence[Row], *shapes: TableShape) -> None:
        shape = (shapes or (ITEM,))[0]
        parts = [TableChange(shape, (), rows)]
        before = position_of(self.epoch) if self.epoch else None
        self.target.load(before, position_of(self.epoch + 1), shapes or (ITEM,), parts)
        self.epoch += 1

    def apply(self, touched: Sequence[Any], rows: Sequence[Row], shape: TableShape = ITEM) -> None:
        change = TableChange(shape, touched, rows)
        self.target.apply(position_of(self.epoch), position_of(self.epoch + 1), [change])
        self.epoch += 1

    def told(self, table: str = "Item") -> list[Told]:
        return told_in(self.broker.servers, f"{self.prefix}.{table}")

    def names(self) -> dict[str, str]:
        return {row["_key"]: row["name"] for row in folded(self.told()).values()}


@pytest.fixture
def log(kafka_server: Broker, tmp_path: Path) -> Iterator[Log]:
    log = Log(kafka_server, tmp_path)
    yield log
    log.target.close()


def items(**names: str | None) -> list[Row]:
    return [(key, name, None) for key, name in names.items()]


def test_messages_have_the_envelope_of_debezium(log: Log) -> None:
    """Each kind of change has its letter, the rows before and after it, its origin and its times; a removal has a tombstone."""
    log.load(items(a="tea"))
    log.apply(["a", "b"], items(a="tea", b="rice"))
    log.apply(["b"], items(b="milk"))
    log.apply(["b"], [])
    tea, rice, milk, gone, tombstone = sorted(log.told(), key=_time_of)
    assert [each.key for each in (tea, rice, tombstone)] == [
        {"_key": "a"},
        {"_key": "b"},
        {"_key": "b"},
    ]
    row = {"_key": "b", "name": "rice", "_unshown": None}
    assert [each.value["op"] for each in (tea, rice, milk, gone)] == ["r", "c", "u", "d"]
    assert (rice.value["before"], rice.value["after"]) == (None, row)
    assert (milk.value["before"], milk.value["after"]) == (row, {**row, "name": "milk"})
    assert (gone.value["before"], gone.value["after"]) == ({**row, "name": "milk"}, None)
    assert tombstone.value is None
    source = rice.value["source"]
    assert {name: source[name] for name in ("connector", "name", "db", "table", "epoch")} == {
        "connector": "penstock",
        "name": log.prefix,
        "db": VIEW,
        "table": "Item",
        "epoch": 2,
    }
    assert (source["ts_us"], source["ts_ms"]) == (1_700_000_000_000_002, 1_700_000_000_000)
    assert [each.value["source"]["snapshot"] for each in (tea, rice)] == ["true", "false"]


def _time_of(told: Told) -> tuple[float, int]:
    return (told.value["ts_us"] if told.value else float("inf")), told.offset


def test_values_are_those_of_the_documentation(log: Log) -> None:
    """The table of types in docs/VIEWS.md."""
    values = (
        "a\0",
        1,
        float("-inf"),
        True,
        Decimal("1.50"),
        b"\xff",
        date(1970, 1, 11),
        time(0, 0, 1),
        datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        timedelta(seconds=-1),
        UUID(int=7),
        '{"a": [1]}',
    )
    zoned = (*[None] * 7, time(1, tzinfo=UTC), None, timedelta.max, None, '"\\ud800"')
    log.load([("k", *values, None), ("l", *zoned, None)], KINDS)
    rows = folded(log.told(KINDS.name))
    shown, unshown = rows['{"_key": "k"}'], rows['{"_key": "l"}']
    assert list(shown.values())[1:-1] == [
        "a\0",
        1,
        "-Infinity",
        True,
        "1.50",
        "/w==",
        10,
        1_000_000,
        "2026-01-02T03:04:05.000006Z",
        -1_000_000,
        str(UUID(int=7)),
        '{"a": [1]}',
    ]
    assert set(json.loads(unshown["_unshown"])) == {"time", "duration", "json"}


def test_a_key_has_one_partition(log: Log) -> None:
    """All messages of a key are in one of the partitions, and all partitions are used."""
    keys = [f"k{at}" for at in range(30)]
    log.load([(key, "1", None) for key in keys])
    log.apply(keys, [(key, "2", None) for key in keys[1:]])
    told = log.told()
    used = {str(each.key): each.partition for each in told}
    assert set(used.values()) == {0, 1, 2}
    assert all(used[str(each.key)] == each.partition for each in told)


def test_unchanged_rows_are_not_sent(log: Log) -> None:
    """A touched row that is as it was costs its readers nothing."""
    log.load(items(a="tea", b="rice"))
    log.apply(["a", "b"], items(a="tea", b="milk"))
    assert [each.value["op"] for each in log.told()].count("u") == 1


def test_a_row_that_is_too_large_lacks_its_longest_values(log: Log) -> None:
    """The row is there, with the reason; an update whose rows do not both fit has no `before`."""
    log.broker.make(f"{log.prefix}.Item", config=_COMPACT | {"max_message_bytes": "300000"})
    log.load(items(a="x" * 150_000))
    log.apply(["a"], items(a="y" * 150_000))
    log.apply(["a"], items(a="z" * 300_000))
    first, second, third = (each.value for each in log.told())
    assert len(first["after"]["name"]) == len(second["after"]["name"]) == 150_000
    assert (second["op"], second["before"]) == ("u", None)
    assert third["after"]["name"] is None
    assert "it takes 300002 bytes" in json.loads(third["after"]["_unshown"])["name"]
    with pytest.raises(TargetProblem, match=r"a key of the table Item(.|\n)*max\.message\.bytes"):
        log.apply(["k" * 300_000], items(**{"k" * 300_000: "tea"}))
    log.apply(["a"], items(a="tea"))
    assert log.names() == {"a": "tea"}


_COMPACT = {"cleanup_policy": "compact,delete", "retention_ms": "-1"}


def test_topics_that_lose_rows_are_refused(log: Log) -> None:
    """The reason has the setting, and the remedy the command that changes it."""
    log.broker.make(
        f"{log.prefix}.Item", config={"retention_ms": "1000", "max_message_bytes": "1000"}
    )
    with pytest.raises(
        Refused,
        match=r"must be at least 250000(.|\n)*cleanup\.policy = delete(.|\n)*retention\.ms = 1000",
    ) as told:
        log.load(items(a="tea"))
    assert "kafka-configs.sh --alter" in told.value.remedy


def test_a_topic_with_other_partitions_is_refused(log: Log) -> None:
    """More partitions would part the messages of a key; a topic that was created again is filled again."""
    log.load(items(a="tea"))
    admin = log.broker.admin()
    name = f"{log.prefix}.Item"
    admin.create_partitions([NewPartitions(name, 5)])[name].result()
    log.target.close()
    wait_for(lambda: len(admin.list_topics(name).topics[name].partitions) == 5, "the partitions")
    works: list[Callable[[], None]] = [
        lambda: log.apply(["a"], []),
        lambda: log.load(items(a="milk")),
    ]
    for work in works:
        with pytest.raises(Refused, match="has 5 partitions, and had 3"):
            work()
    log.broker.delete(name)
    with pytest.raises(
        TargetProblem, match=f"{name} is gone(.|\n)*penstock view rebuild reporting"
    ):
        log.apply(["a"], [])
    log.load(items(a="milk"))
    assert log.names() == {"a": "milk"}


def test_topics_of_another_view_are_refused(log: Log) -> None:
    """Two views with one prefix would replace each other's rows."""
    log.load(items(a="tea"))
    with (
        closing(log.again("other")) as other,
        pytest.raises(Refused, match="belong to the view reporting"),
    ):
        other.position()


def test_the_copy_is_made_again_from_the_topics(log: Log) -> None:
    """A host that has no copy, a damaged one or an old one goes on with the rows that the topics have."""
    log.load(items(a="tea", b="rice"))
    copy = log.place / COPY
    harms: list[Callable[[], object]] = [
        copy.unlink,
        lambda: copy.write_bytes(b"no database" * 100),
    ]
    for at, harm in enumerate(harms):
        log.apply(["b"], items(b=f"rice {at}"))
        log.target.close()
        harm()
        log.apply(["a"], items(a=f"tea {at}"))
    log.target.close()
    old = copy.read_bytes()
    log.apply(["b"], items(b="wild rice"))
    log.target.close()
    copy.write_bytes(old)
    log.load(items(a="milk"))
    assert log.names() == {"a": "milk"}
    changes = [each.value for each in log.told() if each.value and each.value["op"] == "u"]
    assert all(each["before"] for each in changes)


def test_erased_rows_leave_the_topics(log: Log) -> None:
    """A fill without a person names the key alone, and `purge` deletes all that was before, also from the copy."""
    log.load(items(ada="secret", bob="tea"))
    log.apply(["ada"], items(ada="secret too"))
    log.load(items(bob="tea"))
    log.target.purge()
    told = log.told()
    assert "secret" not in json.dumps([each.value for each in told])
    assert log.names() == {"bob": "tea"}
    ada = [
        each.value and (each.value["op"], each.value["before"])
        for each in told
        if "ada" in str(each.key)
    ]
    assert ada == [("d", {"_key": "ada"}), None]
    log.apply(["bob"], [])
    log.target.close()
    held = b"".join(each.read_bytes() for each in log.place.glob(f"{COPY}*"))
    assert b"secret" not in held


def test_a_topic_that_lets_nothing_be_deleted_has_not_passed(log: Log) -> None:
    """With `compact` alone, brokers delete no records: the reason says what to set."""
    log.broker.make(f"{log.prefix}.Item", config={"cleanup_policy": "compact"})
    log.load(items(ada="secret"))
    log.load([])
    with pytest.raises(TargetProblem, match=r"lets no message be deleted(.|\n)*compact,delete"):
        log.target.purge()


def test_purge_deletes_messages_that_no_reader_sees_yet(log: Log) -> None:
    """The end of a transaction is written after its commit: until then, committed messages end earlier for readers."""
    topic = f"{log.prefix}.Item"
    log.broker.make(topic, config=_COMPACT)
    names = {"bootstrap.servers": log.broker.servers, "transactional.id": log.prefix}
    other = Producer({**names, "log_level": 0})
    other.init_transactions(10)
    other.begin_transaction()
    other.produce(topic, b"{}", b"{}")
    other.flush(10)  # as long as it is open, committed messages end before it
    log.load(items(ada="secret"))
    log.load([])
    other.abort_transaction(10)
    log.target.purge()
    assert "secret" not in str(log.told())


def test_removal_deletes_the_topics_that_were_made(log: Log) -> None:
    """`penstock view remove`: topics of the view go, one of an operator's stays, without rows."""
    log.broker.make(f"{log.prefix}.Item", config=_COMPACT)
    other = TableShape("Other", 1, (KEY, REASONS))
    log.load(items(a="tea"), ITEM, other)
    log.target.close()
    address = f"kafka://{log.broker.servers}/{log.prefix}"
    tables = TablesOfView(VIEW, "kafka", "", address, str(log.place), "journal")
    assert removed(tables) == ""
    names = log.broker.admin().list_topics().topics
    assert [name for name in names if name.startswith(log.prefix)] == [f"{log.prefix}.Item"]
    assert log.names() == {}
    with pytest.raises(RequestError, match="leads to a place without its tables"):
        removed(tables)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "kafka://host/prefix",
        "kafka://h:1/",
        "kafka://h:1/a/b",
        "kafka://h:1/a?partitions=0",
        "kafka://h:1/a?parts=1",
        "kafka://me:secret@h:1/a",
    ],
)
def test_wrong_addresses_are_refused(url: str, tmp_path: Path) -> None:
    """The message has the form of an address, and not the address."""
    plan = ViewPlan(VIEW, kafka(), (), "")
    with pytest.raises(ConfigError, match=r"views\.reporting") as told:
        open_target(plan, url, tmp_path)
    assert "secret" not in str(told.value)


@pytest.fixture(scope="module")
def own_server(
    tmp_path_factory: pytest.TempPathFactory, kafka_server: Broker
) -> Iterator[KafkaServer]:
    """A broker that a test may kill, and that asks for a password at its second port."""
    assert kafka_server.port, "where the shared one cannot start, this one is not tried"
    server = KafkaServer(tmp_path_factory.mktemp("own"), PASSWORD)
    yield server
    server.kill()


@pytest.mark.faults
@pytest.mark.turns(1, "views", of="a broker that asks for a password")
def test_credentials(own_server: KafkaServer, tmp_path: Path) -> None:
    """Properties reach the brokers over TLS, a secret from its file; a wrong one is refused, and is in no message."""
    url = f"kafka://{own_server.guarded}/guarded"
    secret = tmp_path / "password"
    given = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(own_server.certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "app",
        "sasl.password_file": str(secret),
    }
    secret.write_text("wrong-hunter2")
    with closing(KafkaTarget(url, tmp_path, VIEW, given)) as target:
        wait_for(lambda: "refuses the connection" in _problem_of(target), "the refusal")
        problem = _problem_of(target)
        assert "views.reporting.kafka.security.protocol" in problem
        assert "hunter2" not in problem
    secret.write_text(PASSWORD)
    with closing(KafkaTarget(url, tmp_path, VIEW, given)) as target:
        wait_for(lambda: _problem_of(target) == "", "an answer")
        target.load(None, position_of(1), [ITEM], [TableChange(ITEM, (), items(a="tea"))])
        assert target.position().position == position_of(1)


def _problem_of(target: KafkaTarget) -> str:
    """Return why a target does not answer; a busy broker may not, in its time."""
    try:
        target.position()
    except TargetProblem as problem:
        return str(problem)
    return ""


@pytest.mark.faults
@pytest.mark.parametrize("fault", ["kill", "stop"])
@pytest.mark.turns(1, "views", of="a broker that fails")
def test_brokers_that_are_away_delay_only_the_view(
    own_server: KafkaServer,
    tmp_path: Path,
    seed: int,
    caplog: pytest.LogCaptureFixture,
    fault: str,
) -> None:
    """A broker that is stopped or killed makes the view wait, with a reason; it goes on by itself, and nothing is twice."""
    caplog.set_level(logging.DEBUG)
    prefix = f"away-{fault}"
    url = f"kafka://{own_server.servers}/{prefix}?partitions=2"
    with closing(DataDirectory(tmp_path).open_journal(in_kafka)) as journal:
        journal.deploy()
        book = Book(journal, seed)
        book.write(20)
        with appliers(in_kafka, tmp_path, urls={VIEW: url}):
            wait_for(
                lambda: _epoch(own_server, prefix) == book.epoch, "the newest epoch", look_s=0.2
            )
            (own_server.kill if fault == "kill" else own_server.stop)()
            try:
                _write_until(book, lambda: _state(tmp_path) is ViewState.WAITING)
            finally:
                (own_server.start if fault == "kill" else own_server.go_on)()
            wait_for(
                lambda: _epoch(own_server, prefix) == book.epoch, "the newest epoch", look_s=0.2
            )
            assert _state(tmp_path) is ViewState.FOLLOWING
        shown, rows = shown_in_kafka(own_server.servers, prefix)
    assert (shown, rows) == (book.epoch, book.expected[book.epoch])


def _epoch(server: KafkaServer, prefix: str) -> int:
    with suppress(Exception):
        return epoch_in_kafka(server.servers, prefix)
    return -2


def _state(data: Path) -> ViewState | None:
    report = read_report(data, VIEW)
    return None if report is None else report.state


def _write_until(book: Book, is_told: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(400):
        book.write(5)
        if is_told():
            return
        pause.wait(0.2)
    raise AssertionError("the view does not say that it waits")
