"""Copies of one topic are equal, however its messages are divided into transactions, and whatever comes twice. No broker runs."""

import random
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.errors import ConfigError
from penstock.log.api import Entry
from penstock.log.database import new_copy
from penstock.log.kafka import (
    REMEMBERED_MESSAGES,
    Append,
    Call,
    Following,
    KafkaLog,
    Order,
    Probe,
    Promote,
    Release,
    Repeat,
    Truncate,
)
from penstock.log.kafka import _digest_of as digest_of
from penstock.log.kafka_config import KafkaConfig, TopicPlace
from tests.conformance.logs import request

FOLLOWING: Final = Following(TopicPlace("nowhere:1", "t"), KafkaConfig(), "", b"log", 0)
START_US: Final = 1_700_000_000_000_000
MESSAGE_BYTES: Final = 400


class Host:
    """A copy, and a process that writes orders; its clock goes on by itself, a little wrong."""

    def __init__(self, folder: Path, number: int) -> None:
        self.now_us = START_US + number * 3_000_000
        new_copy(folder / f"{number}.sqlite")
        self.log = KafkaLog(
            folder / f"{number}.sqlite", FOLLOWING, retention_s=60, clock_us=lambda: self.now_us
        )
        self._orders = 0

    def messages(self, order: Order, form: int = 2) -> list[bytes]:
        """Return an order as the messages that this process would send, or one with a former version."""
        self._orders += 1
        self.now_us += 1_000_000
        messages = self.log._messages(order, self._orders, MESSAGE_BYTES)
        return [value.replace(b"penstock\x02", b"penstock%c" % form, 1) for value in messages]

    def content(self) -> list[Any]:
        """Return everything that readers of the copy can see."""
        log = self.log
        with log._database.using() as connection:
            outcomes = connection.execute("SELECT * FROM outcome ORDER BY next").fetchall()
            pieces = connection.execute("SELECT * FROM piece").fetchall()
        start, end = log.start(), log.end()
        held = [log.read(start, end), log.hints(start, end), log.controls(start, end)]
        checksums = [log.checksum(Lsn(lsn)) for lsn in range(start, end)]
        return [log.reached(), start, *held, checksums, log.upcoming(1_000), outcomes, pieces]


def entry(draw: random.Random) -> Entry:
    name = f"r{draw.randrange(12)}"
    called = [request(name, scopes).body for scopes in ("call", "read", "")]
    body = draw.choice([b"body", *called, b"other", b"x" * 900])
    return Entry(RequestId(name), body, bytes(draw.randrange(3)), 1, draw.random() < 0.1)


def order(draw: random.Random) -> Order:
    now_us = START_US + draw.randrange(100)
    body = draw.choice([None, b"marked"])
    given = entry(draw)
    orders: list[Order] = [
        Append([Call([entry(draw) for _ in range(draw.randrange(1, 4))], None)]),
        Append([Call([entry(draw)], None), Call([given], now_us), Call([given], None)]),
        Promote(now_us),
        Release(given.request_id, digest_of(given.body), body, now_us),
        Repeat(given, Lsn(draw.randrange(20)), body),
        Truncate(Lsn(draw.randrange(15))),
        Probe(),
    ]
    return draw.choice(orders)


def topic(draw: random.Random, hosts: Sequence[Host]) -> list[bytes]:
    """Return the messages of two processes, whose pieces interleave."""
    waiting = [
        [value for _ in range(30) for value in host.messages(order(draw), draw.choice((1, 2)))]
        for host in hosts[:2]
    ]
    values: list[bytes] = []
    while any(waiting):
        values.append(draw.choice([queue for queue in waiting if queue]).pop(0))
        if draw.random() < 0.05:
            values.append(b"of another program")
    return values


@pytest.mark.parametrize("seed", range(12))
def test_copies_are_equal(tmp_path: Path, seed: int) -> None:
    """One transaction for all messages, one for each, and any in between, some of them read twice, give the same copy."""
    draw = random.Random(seed)
    with ExitStack() as stack:
        hosts = [Host(tmp_path, number) for number in range(3)]
        for host in hosts:
            stack.enter_context(closing(host.log))
        first = hosts[0].messages(Probe())
        # Offsets have gaps, which say nothing.
        offsets = [3 * n for n in range(10_000)]
        messages = list(zip(offsets, [*first, *topic(draw, hosts)], strict=False))
        hosts[0].log.carry_out(messages)
        for message in messages:
            hosts[1].log.carry_out([message])
        at = 0
        while at < len(messages):
            size = draw.randrange(1, 9)
            hosts[2].log.carry_out(messages[max(at - draw.randrange(4), 0) : at + size])
            at += size
        expected = hosts[0].content()
        assert hosts[1].content() == expected
        assert hosts[2].content() == expected
        assert hosts[0].log.end() > 5, "the draws append something"


def test_an_order_of_a_former_version_is_carried_out_as_by_that_version(tmp_path: Path) -> None:
    """Versions up to 0.2.0 compare whole bodies, and their copies have what came of it; later orders compare calls."""
    host = Host(tmp_path, 0)

    def append(entry: Entry, form: int) -> Any:
        offset = host.log.reached().next
        messages = host.messages(Append([Call([entry], None)]), form)
        host.log.carry_out(list(enumerate(messages, offset)))
        outcome = host.content()[-2][-1][-1]
        return msgspec.msgpack.decode(outcome)[0]

    with closing(host.log):
        assert append(request("a", "call"), 1) == [[0, 1]]
        assert append(request("a", "call"), 1) == [[0, 1]]
        for other in ("read", ""):
            assert "'a' was appended before, with another body" in append(request("a", other), 1)
            assert append(request("a", other), 2) == [[0, 1]]
        assert "another body" in append(request("a", "call", amount=2), 2)
        assert append(request("b", "call"), 2) == [[1, 1]]
        assert append(request("b", "read"), 2) == [[1, 1]]
        assert "another body" in append(request("b", "call"), 1)
        assert host.log.end() == 2


def test_pieces_of_an_order_that_never_ends_count_for_no_host(tmp_path: Path) -> None:
    """A process died while it sent an order; pieces that come after very many messages do not complete it."""
    host = Host(tmp_path, 0)
    with closing(host.log):
        host.log.carry_out([(0, host.messages(Probe())[0])])
        large = Append([Call([Entry(RequestId("a"), b"x" * 500, b"", 1)], None)])
        first, second = host.messages(large)
        host.log.carry_out([(1, first)])
        host.log.carry_out([(2 + REMEMBERED_MESSAGES, second)])
        assert host.log.end() == 0


def test_a_topic_belongs_to_its_first_message(tmp_path: Path) -> None:
    """A host whose log is another one refuses it, and its copy stays empty."""
    host = Host(tmp_path, 0)
    with closing(host.log):
        with pytest.raises(ConfigError, match="log of another data directory"):
            host.log.carry_out([(0, b"of another program"), (1, host.messages(Probe())[0])])
        assert host.log.reached().next == 0
