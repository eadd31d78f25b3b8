"""A log in Kafka over several hosts, and what happens when brokers die, stop, forget, or hold what others have sent."""

import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from penstock.base.ids import Lsn, RequestId
from penstock.errors import (
    ConfigError,
    Corrupt,
    Diverged,
    LogUnavailable,
    PenstockError,
    RecordTooLarge,
    RequestConflict,
)
from penstock.log.copy_prefix import copy_log
from penstock.log.kafka import Following, KafkaLog
from penstock.log.kafka_config import KafkaConfig, TopicPlace
from penstock.log.sqlite import SqliteLog
from penstock.log.topic import Topic
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.log_place import keep_copy, note_in
from tests.conformance.logs import entries, entry, ids
from tests.gateway_thread import HOST
from tests.kafka_hosts import ONE_MACHINE, KafkaHosts
from tests.kafka_server import Broker, KafkaServer
from tests.waiting import wait_for

pytestmark = pytest.mark.faults

IMPATIENT: Final = KafkaConfig(1, 1, append_ms=1_000)
PASSWORD: Final = "hunter2-and-more"


@pytest.fixture(scope="module")
def own_server(
    tmp_path_factory: pytest.TempPathFactory, kafka_server: Broker
) -> Iterator[KafkaServer]:
    """A broker that a test may kill, and that asks for a password at its second port."""
    assert kafka_server.port, "where the shared one cannot start, this one is not tried"
    server = KafkaServer(tmp_path_factory.mktemp("own"), PASSWORD)
    yield server
    server.kill()


@pytest.fixture
def own_hosts(own_server: KafkaServer, tmp_path: Path) -> KafkaHosts:
    return KafkaHosts(own_server, tmp_path / "hosts", tmp_path.name)


def test_hosts_have_the_same_log(kafka_hosts: KafkaHosts) -> None:
    """Whoever sends an order, each host has the same records at the same positions, and the same schedule."""
    first, second = kafka_hosts.log(), kafka_hosts.host()
    with closing(first), closing(second), ThreadPoolExecutor(4) as pool:

        def work(worker: int) -> None:
            log = (first, second)[worker % 2]
            for n in range(15):
                log.append(entries(f"own {worker} {n}", f"shared {n}"))
                log.schedule(entry(f"later {n}"), 1_000 + n)
                log.promote(1_000 + n // 2)
                log.append_scheduled(RequestId(f"later {n}"), 5_000, lambda body: b"now " + body)
                log.repeat(entry(f"shared {n}"), Lsn(n))
            log.truncate(Lsn(worker))

        list(pool.map(work, range(4)))
        assert first.find(RequestId("missing")) is second.find(RequestId("missing")) is None
        assert first.reached() == second.reached()
        assert (first.start(), first.end()) == (second.start(), second.end())
        held = first.read(first.start(), first.end())
        assert held == second.read(second.start(), second.end())
        assert first.upcoming(100) == second.upcoming(100)
        assert all(first.find(RequestId(f"shared {n}")) for n in range(15))


def test_an_id_has_one_effect_on_all_hosts(kafka_hosts: KafkaHosts) -> None:
    """The first append wins, wherever it is repeated; another body is a conflict on each host."""
    with closing(kafka_hosts.log()) as first, closing(kafka_hosts.host()) as second:
        assert first.append(entries("a", "b")) == [0, 1]
        assert second.append(entries("c", "b")) == [2, 1]
        with pytest.raises(RequestConflict, match="lsn 0"):
            second.append([entry("d"), entry("a", b"other")])
        assert first.append(entries("e")) == [3]
        assert second.find(RequestId("e")) == (0, 3), "a host reads what it does not have yet"


def test_one_process_of_a_host_reads_for_the_others(kafka_hosts: KafkaHosts) -> None:
    """Others append through it, and one of them goes on when it ends."""
    reading = kafka_hosts.log()
    reading.append(entries("a"))
    with closing(KafkaLog(reading.path, kafka_hosts.following)) as other:
        assert other.append(entries("b", "a")) == [1, 0]
        reading.close()
        assert other.append(entries("c")) == [2]
        assert ids(other) == ["a", "b", "c"]


def test_a_reader_needs_no_broker(kafka_hosts: KafkaHosts) -> None:
    """A process without settings reads what its host has, and no write goes past the topic."""
    with closing(kafka_hosts.log()) as log:
        log.append(entries("a"))
        log.schedule(entry("later"), 7)
        for reader in (KafkaLog(log.path, None), SqliteLog(log.path)):
            with closing(reader):
                assert ids(reader) == ["a"]
                assert reader.scheduled(RequestId("later")) == 7
                with pytest.raises(LogUnavailable, match=r"topic|only to be read"):
                    reader.append(entries("b"))


def test_an_order_may_be_longer_than_a_message(
    kafka_server: Broker, kafka_hosts: KafkaHosts
) -> None:
    """It is sent in pieces, and is carried out whole; a record beyond the limit fails alone."""
    following = kafka_hosts.new_topic(max_message_bytes="20000")
    with closing(kafka_hosts.host(record_bytes_max=300_000)) as log:
        given = [entry("a"), entry("b", b"x" * 300_000), entry("c")]
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(log.append, [one]) for one in given]
            refused = pool.submit(log.append, [entry("d", b"x" * 300_001)])
            assert sorted(call.result()[0] for call in calls) == [0, 1, 2]
            with pytest.raises(RecordTooLarge):
                refused.result()
        log.append([entry("e", b"y" * 400_000)], limited=False)
    with closing(kafka_hosts.host(following)) as log:
        assert log.find(RequestId("e")) == (0, 3)
        assert {len(record.body) for record in log.read(Lsn(0), Lsn(4))} == {1, 300_000, 400_000}


def test_messages_of_others_are_passed_over(kafka_hosts: KafkaHosts) -> None:
    """A program that writes into the topic by mistake stops no host; the copies stay equal."""
    with closing(kafka_hosts.log()) as log, closing(kafka_hosts.host()) as other:
        log.append(entries("a"))
        send(kafka_hosts.following, b"by mistake", b"")
        stranger = kafka_hosts.following._replace(log=b"stranger")
        with (
            closing(kafka_hosts.host(stranger)) as strange,
            pytest.raises(LogUnavailable, match="another data directory"),
        ):
            strange.append(entries("b"))
        log.append(entries("c"))
        assert other.find(RequestId("c")) == (0, 1)
        assert ids(other) == ids(log) == ["a", "c"]


def test_a_damaged_message_stops_a_host(kafka_hosts: KafkaHosts) -> None:
    """Bytes with the head of Penstock that are no message are damage, and the message of the error says which."""
    with closing(kafka_hosts.log()) as log:
        log.append(entries("a"))
        send(kafka_hosts.following, b"penstock\x01\xc1 damaged")
        with pytest.raises(Corrupt, match=r"message 1 has the head of Penstock's"):
            wait_for(lambda: log.append(entries("b")) and None, "the refusal")


def test_a_message_of_a_newer_version_stops_a_host(kafka_hosts: KafkaHosts) -> None:
    """It is never passed over: the copy would be another one."""
    with closing(kafka_hosts.log()) as log:
        log.append(entries("a"))
        send(kafka_hosts.following, b"penstock\x03whatever")
        with pytest.raises(LogUnavailable, match="newer version"):
            wait_for(lambda: log.append(entries("b")) and None, "the refusal")


def send(following: Following, *values: bytes) -> None:
    """Write messages to a topic, as another program may."""
    producer = Producer({"bootstrap.servers": following.place.servers, "log_level": 0})
    for value in values:
        producer.produce(following.place.topic, value, partition=0)
    assert producer.flush(60) == 0


@pytest.mark.parametrize(
    ("settings", "config", "complaints"),
    [
        ({}, KafkaConfig(), ["1 replicas, fewer than", "min.insync.replicas = 1, less than"]),
        ({"cleanup_policy": "compact"}, ONE_MACHINE, ["cleanup.policy = compact"]),
        ({"retention_ms": "3600000"}, ONE_MACHINE, ["retention.ms = 3600000, less than"]),
        ({"retention_bytes": "1000"}, ONE_MACHINE, ["retention.bytes = 1000"]),
        ({"unclean_leader_election_enable": "true"}, ONE_MACHINE, ["unclean.leader.election"]),
    ],
    ids=["copies", "compaction", "time", "size", "election"],
)
def test_a_topic_that_may_lose_requests_is_refused(
    kafka_hosts: KafkaHosts, settings: dict[str, str], config: KafkaConfig, complaints: list[str]
) -> None:
    """The message says what differs, and how to mend it."""
    place = kafka_hosts.new_topic(**settings).place
    with closing(Topic(place, config)) as topic, pytest.raises(ConfigError) as caught:
        topic.identity(7 * 86_400)
    assert all(complaint in str(caught.value) for complaint in complaints)
    assert place.topic in str(caught.value)


def test_a_topic_with_two_partitions_is_refused(
    kafka_server: Broker, kafka_hosts: KafkaHosts
) -> None:
    """A log has one order."""
    place = TopicPlace(kafka_server.servers, f"{kafka_hosts.following.place.topic}-two")
    kafka_server.make(place.topic, partitions=2)
    with (
        closing(Topic(place, ONE_MACHINE)) as topic,
        pytest.raises(ConfigError, match="2 partitions, and a log has one order"),
    ):
        topic.identity(0)


def test_a_topic_that_was_created_again_is_found(
    kafka_server: Broker, kafka_hosts: KafkaHosts
) -> None:
    """Also if it has the same name and the same settings; a topic that is gone, too."""
    with closing(kafka_hosts.log()) as log:
        log.append(entries("a"))
        path, following = log.path, kafka_hosts.following
    kafka_server.delete(following.place.topic)
    with closing(KafkaLog(path, following)) as log:

        def refusal() -> str:
            try:
                log.connect()
            except Diverged as error:
                return str(error)
            return ""

        assert "does not exist any more" in wait_for(refusal, "the end of the topic")
        kafka_server.make(following.place.topic, config={"retention_ms": "-1"})
        assert "created again" in wait_for(
            lambda: "again" in refusal() and refusal(), "the new topic"
        )
        assert ids(log) == ["a"], "what the host has is still read"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("next = next + 5", "lost its end"),
        ("digest = x'00'", "has lost messages"),
    ],
)
def test_a_topic_that_has_lost_its_end_is_found(
    kafka_hosts: KafkaHosts, change: str, message: str
) -> None:
    """The host has carried out what the topic does not have, or has otherwise: it stops, and says so."""
    with closing(kafka_hosts.log()) as log:
        log.append(entries("a"))
    with closing(sqlite3.connect(log.path)) as connection:
        connection.execute(f"UPDATE followed SET {change}")
        connection.commit()
    with (
        closing(KafkaLog(log.path, kafka_hosts.following)) as again,
        pytest.raises(Diverged, match=message),
    ):
        wait_for(lambda: again.append(entries("b")) and None, "the end of the host")


def test_a_topic_that_has_lost_its_beginning_is_found(
    kafka_server: Broker, kafka_hosts: KafkaHosts
) -> None:
    """A host that has not read it stops; one that has goes on."""
    with closing(kafka_hosts.log()) as log:
        log.append(entries("a"))
        log.append(entries("b"))
        log.forget_messages(1)
        assert log.append(entries("c")) == [2]
        with closing(kafka_hosts.host()) as late, pytest.raises(Diverged, match="begins at"):
            wait_for(lambda: late.append(entries("d")) and None, "the end of the host")


def test_each_host_gives_a_record_one_checksum(kafka_hosts: KafkaHosts) -> None:
    """The commit of an epoch notes it, so the next driver finds a log that has lost its end on all hosts."""
    with closing(kafka_hosts.log()) as first, closing(kafka_hosts.host()) as second:
        first.append(entries("a", "b"))
        first.append(entries("c"))
        noted = [first.checksum(Lsn(lsn)) for lsn in range(3)]
        assert noted == [second.checksum(Lsn(lsn)) for lsn in range(3)]
        assert len(set(noted)) == 3
        first.truncate(Lsn(3))
        wait_for(lambda: not first.checksum(Lsn(2)), "the end of the records")
        with pytest.raises(Diverged, match="ends at 3, but the journal has read the log up to 4"):
            second.checksum(Lsn(3))


@pytest.mark.parametrize("fault", ["kill", "stop"])
@pytest.mark.turns(1, "log", of="a broker that fails")
def test_a_log_goes_on_after_its_broker(
    own_server: KafkaServer, own_hosts: KafkaHosts, fault: str
) -> None:
    """Meanwhile each append is refused with the reason; afterwards nothing acknowledged is missing, and nothing is twice."""
    following = own_hosts.new_topic()._replace(config=IMPATIENT)
    acknowledged: dict[str, Lsn] = {}
    refusals: list[str] = []

    def append() -> bool:
        name = f"r{len(acknowledged)}"  # a refused one is sent again
        try:
            (acknowledged[name],) = log.append(entries(name))
        except LogUnavailable as error:
            refusals.append(str(error))
            return False
        return True

    with closing(own_hosts.host(following)) as log:
        for _ in range(20):
            wait_for(append, "the first appends")
        (own_server.kill if fault == "kill" else own_server.stop)()
        try:
            wait_for(lambda: not append() and len(refusals) >= 2, "the refusal")
            assert log._topic is not None
            with pytest.raises(LogUnavailable):
                log._topic.ends()  # never a wrong end, which would look like a loss
        finally:
            (own_server.start if fault == "kill" else own_server.go_on)()
        before = len(acknowledged)
        wait_for(lambda: append() and len(acknowledged) >= before + 20, "the later appends")
        assert "no acknowledgement in time" in refusals[0]
        at = {record.request_id: record.lsn for record in log.read(Lsn(0), log.end())}
        assert {name: at[RequestId(name)] for name in acknowledged} == acknowledged
        assert len(at) == log.end()


def test_a_broker_that_is_not_there_is_named() -> None:
    """A start ends after seconds, with the address and the reason in one sentence."""
    with (
        closing(Topic(TopicPlace(f"{HOST}:1", "shop"), ONE_MACHINE)) as topic,
        pytest.raises(LogUnavailable, match=r"kafka://.*:1/shop.*Connection refused"),
    ):
        topic.identity(0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sasl.password": "wrong"}, "refuses the connection.*uthentication"),
        ({"security.protocol": "SASL_PLAINTEXT"}, r"kafka\.security\.protocol"),
        ({"ssl.ca.location": ""}, "refuses the connection.*certificate verify failed"),
        ({"no.such": "property"}, 'No such configuration property: "no.such"'),
        ({"sasl.password_file": "missing"}, "No such file"),
    ],
)
def test_wrong_credentials_are_named(
    own_server: KafkaServer, given: dict[str, str], message: str
) -> None:
    """The message says what to change, and contains no secret."""
    config = KafkaConfig(1, 1, properties=credentials(own_server) | given)
    place = TopicPlace(own_server.guarded, "shop")
    with (
        closing(Topic(place, config)) as topic,
        pytest.raises(PenstockError, match=message) as caught,
    ):
        topic.identity(0)
    assert PASSWORD not in f"{caught.value!r} {config!r}"


@pytest.mark.turns(1, "log", of="a broker that asks for a password")
def test_credentials_are_passed_on(own_server: KafkaServer, tmp_path: Path) -> None:
    """The password comes from a file; with it, and over TLS, the topic can be made and used."""
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    given = credentials(own_server) | {"sasl.password_file": str(tmp_path / "password")}
    del given["sasl.password"]
    config = KafkaConfig(1, 1, append_ms=20_000, properties=given)
    data = tmp_path / "data"
    settings = Config(data=data, log=f"kafka://{own_server.guarded}/guarded", kafka=config)
    DataDirectory(data).prepare_log(settings)
    with closing(DataDirectory(data).open_log(settings)) as log:
        assert log.append(entries("a")) == [0]


def credentials(server: KafkaServer) -> dict[str, str]:
    """Return what the second port of a broker of its own asks for."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(server.certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "app",
        "sasl.password": PASSWORD,
    }


def settings_of(data: Path, kafka_hosts: KafkaHosts, topic: str = "moved") -> Config:
    """Return settings whose log is in a topic that does not exist yet."""
    place = kafka_hosts.following.place
    url = f"kafka://{place.servers}/{place.topic}-{topic}"
    return Config(data=data, log=url, kafka=ONE_MACHINE)


def test_an_embedded_log_moves_into_a_topic(kafka_hosts: KafkaHosts, tmp_path: Path) -> None:
    """Records keep their positions, ids their effect, and scheduled requests wait on; a new host has all of it."""
    data, far = tmp_path / "data", tmp_path / "far"
    directory = DataDirectory(data)
    directory.create()
    with closing(directory.open_log()) as embedded:
        embedded.append(entries("a", "b"))
        embedded.schedule(entry("later"), 7)
        embedded.truncate(Lsn(1))
    settings = settings_of(data, kafka_hosts)
    directory.prepare_log(settings)
    assert (data / "embedded-log.sqlite").exists()
    with closing(directory.open_log(settings)) as log:
        assert isinstance(log, KafkaLog)
        assert log.append(entries("a", "c")) == [0, 2]
        assert log.promote(8) == 1
        assert ids(log) == ["b", "c", "later"]
    far.mkdir()
    shutil.copy(data / "log.json", far)
    shutil.copytree(data / "log", far / "log")
    with closing(DataDirectory(far).open_log(Config(data=far, kafka=ONE_MACHINE))) as log:
        assert log.append(entries("a", "c")) == [0, 2]
        assert ids(log) == ["b", "c", "later"]
    copy_log(data / "log.sqlite", tmp_path / "backup.sqlite")
    with closing(SqliteLog(tmp_path / "backup.sqlite")) as restored:
        assert restored.append(entries("a", "d")) == [0, 4], "a backup is an embedded log"


def test_the_log_of_a_directory_stays_in_its_topic(kafka_hosts: KafkaHosts, tmp_path: Path) -> None:
    """Later starts need no setting; settings that contradict the note are refused, and so is a topic of others."""
    data = tmp_path / "data"
    directory = DataDirectory(data)
    settings = settings_of(data, kafka_hosts)
    directory.prepare_log(settings)
    directory.prepare_log(Config(data=data, kafka=ONE_MACHINE))
    wrong = {
        "omit the setting": settings_of(data, kafka_hosts, "other"),
        "restore a backup": Config(data=data, log="embedded", kafka=ONE_MACHINE),
        "retention_s = 604800": Config(data=data, retention_s=60, kafka=ONE_MACHINE),
    }
    for message, each in wrong.items():
        with pytest.raises(ConfigError, match=message):
            directory.open_log(each)
    another = tmp_path / "another"
    with pytest.raises(ConfigError, match="holds messages"):
        DataDirectory(another).prepare_log(
            Config(data=another, log=settings.log, kafka=ONE_MACHINE)
        )
    assert note_in(another) is None


def test_a_kept_copy_replaces_the_beginning_of_the_topic(
    kafka_hosts: KafkaHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance keeps copies and deletes messages; a new host begins with the newest copy."""
    monkeypatch.setattr("penstock.process.log_place.COPY_MESSAGES", 3)
    data, far = tmp_path / "data", tmp_path / "far"
    settings = settings_of(data, kafka_hosts)
    directory = DataDirectory(data)
    directory.prepare_log(settings)
    with closing(directory.open_log(settings)) as log:
        for turn in range(3):
            for n in range(4):
                log.append(entries(f"{turn} {n}"))
            keep_copy(data, log)
        log.append(entries("last"))
        kept = sorted(path.stem for path in (data / "log").iterdir())
        assert [int(name) for name in kept] == [9, 13]
        with closing(Topic(TopicPlace(*settings_place(settings)), ONE_MACHINE)) as topic:
            assert topic.ends() == (9, 14)
        far.mkdir()
        shutil.copy(data / "log.json", far)
        shutil.copytree(data / "log", far / "log")
        with closing(DataDirectory(far).open_log(Config(data=far, kafka=ONE_MACHINE))) as new:
            assert new.find(RequestId("last")) == (0, 12)
            assert ids(new) == ids(log)


def settings_place(settings: Config) -> tuple[str, str]:
    servers, _, topic = settings.log.removeprefix("kafka://").partition("/")
    return servers, topic
