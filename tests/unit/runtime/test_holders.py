"""Hosts ask each other for rows: in few batches, past holders that are dead, late or wrong, and from the journal at last."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.base.ids import EntityKey, Epoch, bucket_of
from penstock.runtime.spark import holders
from penstock.runtime.spark.frames import new_credentials
from penstock.runtime.spark.holders import (
    Answer,
    AskKeys,
    AskRows,
    FarRows,
    Keys,
    Question,
    Refusal,
    Rows,
    key_in_each,
    serve_rows,
)
from penstock.runtime.spark.messages import Peer, Peers
from penstock.state import record
from penstock.state.lmdb_reader import LmdbReader
from penstock.state.partition_spec import PartitionSpec, bucket_owners
from penstock.state.stores import PartitionedReader

EPOCH = Epoch(7)
PARTITIONS = 3
CREDENTIALS = new_credentials()
STATE = {EntityKey(f"Item/i{n}"): f"row {n} names Item/i{n + 1}".encode() for n in range(20)}


def references(_: EntityKey, row: bytes) -> list[EntityKey]:
    return [EntityKey(row.decode().rpartition(" ")[2])]


@dataclass
class Holder:
    """A host with the whole state, which answers until it is told to do something else."""

    answer_with: Callable[[Question], Answer] | None = None
    asked: list[Question] = field(default_factory=list)

    def answer(self, question: Question) -> Answer:
        self.asked.append(question)
        if self.answer_with is not None:
            return self.answer_with(question)
        if isinstance(question, AskKeys):
            return Keys([key for key in STATE if key.startswith(question.prefix)])
        assert isinstance(question, AskRows)
        rows = [STATE.get(key) for key in question.keys]
        sealed = zip(question.keys, rows, strict=True)
        return Rows([row and record.seal(key.encode(), row) for key, row in sealed])

    def rest(self) -> None: ...


class Own:
    """The stores of the host that asks, where no other one answers."""

    get = staticmethod(STATE.get)
    fetch = staticmethod(lambda _: None)

    @staticmethod
    def keys(prefix: str) -> list[EntityKey]:
        return [key for key in STATE if key.startswith(prefix)]


@dataclass
class Hosts:
    """Holders that serve over TLS, and a host that holds nothing."""

    holders: Mapping[str, Holder]
    far: FarRows
    taken: list[int]

    def read(self, epoch: Epoch = EPOCH) -> PartitionedReader:
        def reader(number: int) -> Any:
            def take() -> LmdbReader:
                self.taken.append(number)
                return Own()  # type: ignore[return-value]

            return self.far.reader(PartitionSpec(number, PARTITIONS), epoch, take)

        return PartitionedReader(epoch, [reader(number) for number in range(PARTITIONS)])

    @property
    def questions(self) -> int:
        return sum(len(holder.asked) for holder in self.holders.values())


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    monkeypatch.setattr(holders, "ANSWER_S", 0.5)
    listeners = {name: socket.create_server(("127.0.0.1", 0)) for name in ("a", "b")}
    every = {name: Holder() for name in listeners}
    for name, listener in listeners.items():
        args = (listener, CREDENTIALS, every[name])
        threading.Thread(target=serve_rows, args=args, daemon=True).start()
    far = FarRows(CREDENTIALS, "self", references)
    far.use(Peers(2, [Peer(name, [each.getsockname()]) for name, each in listeners.items()]))
    yield Hosts(every, far, [])
    far.close()
    for listener in listeners.values():
        with closing(listener):
            listener.shutdown(socket.SHUT_RDWR)


def check(hosts: Hosts) -> None:
    """Check that every row is read as it is, also one that does not exist."""
    reader = hosts.read()
    wanted = [*STATE, EntityKey("Item/none")]
    assert [reader.get(key) for key in wanted] == [*STATE.values(), None]


def test_a_round_asks_once_for_what_it_names_and_once_for_what_that_refers_to(
    hosts: Hosts,
) -> None:
    """Then the rows are there; a batch goes to each host that holds some of them."""
    reader = hosts.read()
    named = [key for number, key in enumerate(STATE) if number % 2 == 0]
    hosts.far.prefetch(named, reader.get)
    asked = hosts.questions
    assert asked <= 4
    assert [reader.get(key) for key in STATE] == [*STATE.values()]
    assert hosts.questions == asked
    again = hosts.read()
    assert again.get(named[0]) == STATE[named[0]]
    assert hosts.questions == asked, "the rows of an epoch do not change"
    assert hosts.read(Epoch(8)).get(named[0]) == STATE[named[0]]
    assert hosts.questions > asked, "those of another epoch are others"


def test_a_row_that_was_not_foreseen_comes_with_the_references_so_far(hosts: Hosts) -> None:
    """A chain of references takes a question for each second row at most."""
    reader = hosts.read()
    assert [reader.get(key) for key in STATE] == [*STATE.values()]
    assert hosts.questions <= len(STATE)


def wrong_checksum(question: Question) -> Answer:
    assert isinstance(question, AskRows)
    return Rows([b"checksum" + b"a lie" for _ in question.keys])


def dead(_: Question) -> Answer:
    raise OSError


def at_another_epoch(_: Question) -> Answer:
    return Refusal("partition 1 is at epoch 9 already")


LATE = threading.Event()


def late(_: Question) -> Answer:
    LATE.wait(60)
    raise OSError


@pytest.mark.parametrize("how", [wrong_checksum, dead, at_another_epoch, late])
def test_a_holder_that_fails_is_passed_over(
    hosts: Hosts, how: Callable[[Question], Answer]
) -> None:
    """The other one answers, and the first is not asked again for a while."""
    LATE.clear()
    hosts.holders["a"].answer_with = how
    check(hosts)
    LATE.set()
    assert hosts.taken == []
    assert len(hosts.holders["a"].asked) == 1


def test_without_a_holder_the_partition_is_built_here(hosts: Hosts) -> None:
    """Each partition once; nothing waits without end."""
    for holder in hosts.holders.values():
        holder.answer_with = dead
    check(hosts)
    assert sorted(hosts.taken) == list(range(PARTITIONS))


def test_the_rows_of_large_answers_come_in_several(hosts: Hosts) -> None:
    """A holder that gives fewer rows than asked for is asked again for the rest."""

    def one(question: Question) -> Answer:
        whole = Holder().answer(question)
        return Rows(whole.rows[:1]) if isinstance(whole, Rows) else whole

    for holder in hosts.holders.values():
        holder.answer_with = one
    check(hosts)
    assert hosts.taken == []


def test_keys_come_from_any_holder(hosts: Hosts) -> None:
    """The first one fails; without any, the own partition has them."""
    hosts.holders["a"].answer_with = dead
    reader = hosts.read()
    assert set(reader.keys("Item/i1")) == {key for key in STATE if key.startswith("Item/i1")}
    hosts.holders["b"].answer_with = dead
    assert hosts.read().keys("Item/i2")
    assert hosts.taken


def test_hosts_that_change_are_asked_anew(hosts: Hosts) -> None:
    """A host that was passed over and has come back with another address is asked again."""
    hosts.holders["a"].answer_with = hosts.holders["b"].answer_with = dead
    check(hosts)
    peers = hosts.far._peers
    assert not hosts.far.use(peers)
    hosts.holders["a"].answer_with = None
    assert hosts.far.use(Peers(1, peers.hosts[:1]))
    hosts.taken.clear()
    check(hosts)
    assert hosts.taken == []


@pytest.mark.parametrize("are_there", [True, False])
def test_each_partition_can_be_tried(hosts: Hosts, *, are_there: bool) -> None:
    """One question for each host says that all rows can be had; a partition that no host gives is built here."""
    reader = hosts.read()
    if not are_there:
        for holder in hosts.holders.values():
            holder.answer_with = lambda _: Refusal("its disk fails")
    hosts.far.reach()
    assert hosts.taken == ([] if are_there else [0, 1, 2])
    if are_there:
        assert hosts.questions <= len(hosts.holders)
    assert reader.get(EntityKey("Item/i1")) == STATE[EntityKey("Item/i1")]


def test_a_host_that_holds_everything_now_asks_nobody(hosts: Hosts) -> None:
    """The others have left: what was read from them in an earlier epoch is forgotten, and is not built again at that epoch."""
    hosts.read()
    hosts.far.use(Peers(2, [Peer("self", [])]))
    hosts.far.prefetch([EntityKey("Item/i1")], STATE.get)
    hosts.far.reach()
    assert (hosts.taken, hosts.questions) == ([], 0)


def test_a_key_of_each_partition_is_known() -> None:
    """For each number of partitions, the keys are in different ones."""
    for partitions in (1, 5, 64):
        route = bucket_owners(partitions)
        places = [route[bucket_of(key)] for key in key_in_each(partitions)]
        assert places == list(range(partitions))
