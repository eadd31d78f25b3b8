"""The durable log against its plain twin: the same calls, the same answers."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from penstock.base.ids import Lsn, RequestId
from penstock.errors import PenstockError
from penstock.log import block, sqlite
from penstock.log import request_id_index as identity
from penstock.log.api import Log
from penstock.log.sqlite import SqliteLog
from tests.conformance.logs import Clock, entries, entry
from tests.memory_log import MemoryLog


class Twins(RuleBasedStateMachine):
    """Does the same to both adapters; the durable one is used through two objects, and reopened.

    Each of the objects must learn the other's changes from the file, as two processes would.
    """

    directory: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(dir=self.directory), "log")
        self.clock = Clock()
        self.memory = MemoryLog(record_bytes_max=50, retention_s=10, clock_us=self.clock)
        self.sqlite = self.opened()
        self.other = self.opened()

    def opened(self) -> SqliteLog:
        return SqliteLog(self.path, record_bytes_max=50, retention_s=10, clock_us=self.clock)

    def teardown(self) -> None:
        self.sqlite.close()
        self.other.close()

    def both(self, action: Callable[[Log], object]) -> None:
        answers: list[object] = []
        for log in (self.memory, self.sqlite):
            try:
                answers.append(action(log))
            except PenstockError as error:
                answers.append(type(error))
        assert answers[0] == answers[1]

    @rule(
        given=st.lists(
            st.tuples(
                st.integers(0, 12), st.sampled_from([b"", b"x", b"y" * 51]), st.integers(0, 3)
            ),
            max_size=6,
        )
    )
    def append(self, given: list[tuple[int, bytes, int]]) -> None:
        some = [
            entry(n, body or str(n).encode(), bytes(n % 3), is_control=choice == 0)
            for n, body, choice in given
        ]
        self.both(lambda log: log.append(some))

    @rule(count=st.integers(1, 60), first=st.integers(100, 200))
    def append_many(self, count: int, first: int) -> None:
        self.both(lambda log: log.append(entries(*range(first, first + count))))

    @rule(back=st.integers(-2, 30))
    def truncate(self, back: int) -> None:
        before = Lsn(self.memory.end() - back)
        self.both(lambda log: log.truncate(before))

    @rule(seconds=st.integers(1, 6))
    def pass_time(self, seconds: int) -> None:
        self.clock.forward(seconds)

    @rule()
    def swap(self) -> None:
        self.sqlite, self.other = self.other, self.sqlite

    @rule()
    def reopen(self) -> None:
        self.sqlite.close()
        self.sqlite = self.opened()

    @rule(low=st.integers(-3, 60), high=st.integers(-3, 60))
    def read(self, low: int, high: int) -> None:
        start, end = Lsn(self.memory.start() + low), Lsn(self.memory.start() + high)
        self.both(lambda log: log.read(start, end))
        self.both(lambda log: log.hints(start, end))

    @rule(low=st.integers(-1, 40), records=st.integers(0, 40), size=st.integers(0, 120))
    def limit(self, low: int, records: int, size: int) -> None:
        start = Lsn(self.memory.start() + low)
        self.both(lambda log: log.limit(start, records, size))
        self.both(lambda log: log.controls(start, Lsn(start + records)))

    @rule(
        name=st.integers(0, 16),
        body=st.sampled_from([b"", b"x", b"y" * 51]),
        due_us=st.integers(0, 4),
    )
    def schedule(self, name: int, body: bytes, due_us: int) -> None:
        one = entry(name, body or str(name).encode())
        self.both(lambda log: log.schedule(one, due_us))
        self.both(lambda log: log.scheduled(one.request_id))
        self.both(lambda log: log.upcoming(3))
        self.both(lambda log: log.scheduled_ids("1", 3))

    @rule(now_us=st.integers(-1, 4))
    def promote(self, now_us: int) -> None:
        self.both(lambda log: log.promote(now_us))

    @rule(name=st.integers(0, 16))
    def cancel(self, name: int) -> None:
        request_id = RequestId(str(name))
        self.both(
            lambda log: log.append_scheduled(request_id, 3, lambda body: b"cancelled " + body)
        )

    @rule(name=st.integers(0, 12))
    def find(self, name: int) -> None:
        self.both(lambda log: log.find(RequestId(str(name))))

    @invariant()
    def agree(self) -> None:
        self.both(lambda log: (log.start(), log.end(), log.wait(Lsn(-1), 0)))
        self.both(lambda log: log.read(log.start(), log.end()))


@pytest.mark.parametrize("size", [1, 1000], ids=["small parts", "large parts"])
def test_adapters_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """`SqliteLog` answers like `MemoryLog`, for any operations, however they are divided."""
    monkeypatch.setattr(block, "BLOCK_BYTES", 80 * size)
    monkeypatch.setattr(identity, "RECENT_COUNT", 4 * size)
    monkeypatch.setattr(sqlite, "_TRUNCATED_BYTES", 200 * size)

    class Here(Twins):
        directory = tmp_path

    run_state_machine_as_test(Here, settings=settings(max_examples=25, stateful_step_count=30))
