"""The durable log against its plain twin: the same calls, the same answers."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from penstock.base.ids import Lsn, RequestId
from penstock.errors import PenstockError
from penstock.log.api import Entry, Log
from penstock.log.memory import MemoryLog
from penstock.log.sqlite import SqliteLog


class Clock:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.now_us = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now_us

    def forward(self, seconds: int) -> None:
        self.now_us += seconds * 1_000_000


def entry(name: object, body: bytes | None = None, touches: bytes = b"") -> Entry:
    text = str(name)
    return Entry(RequestId(text), text.encode() if body is None else body, touches, len(text))


def entries(*names: object) -> list[Entry]:
    return [entry(name) for name in names]


class Twins(RuleBasedStateMachine):
    """Does the same to both adapters; reopening the durable one changes nothing."""

    directory: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(dir=self.directory), "log")
        self.clock = Clock()
        self.memory = MemoryLog(record_bytes_max=50, retention_s=10, clock_us=self.clock)
        self.sqlite = self.opened()

    def opened(self) -> SqliteLog:
        return SqliteLog(self.path, record_bytes_max=50, retention_s=10, clock_us=self.clock)

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
            st.tuples(st.integers(0, 12), st.sampled_from([b"", b"x", b"y" * 51])), max_size=6
        )
    )
    def append(self, given: list[tuple[int, bytes]]) -> None:
        some = [entry(n, body or str(n).encode(), bytes(n % 3)) for n, body in given]
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
    def reopen(self) -> None:
        self.sqlite.close()
        self.sqlite = self.opened()

    @rule(low=st.integers(-3, 60), high=st.integers(-3, 60))
    def read(self, low: int, high: int) -> None:
        start, end = Lsn(self.memory.start() + low), Lsn(self.memory.start() + high)
        self.both(lambda log: log.read(start, end))
        self.both(lambda log: log.touches(start, end))

    @rule(low=st.integers(-1, 40), records=st.integers(0, 40), size=st.integers(0, 120))
    def limit(self, low: int, records: int, size: int) -> None:
        start = Lsn(self.memory.start() + low)
        self.both(lambda log: log.limit(start, records, size))

    @rule(name=st.integers(0, 12))
    def find(self, name: int) -> None:
        self.both(lambda log: log.find(RequestId(str(name))))

    @invariant()
    def agree(self) -> None:
        self.both(lambda log: (log.start(), log.end(), log.wait(Lsn(-1), 0)))
        self.both(lambda log: log.read(log.start(), log.end()))


def test_adapters_agree(tmp_path: Path) -> None:
    """`SqliteLog` answers like `MemoryLog`, whatever is done to both, and however often reopened."""

    class Here(Twins):
        directory = tmp_path

    run_state_machine_as_test(Here, settings=settings(max_examples=30, stateful_step_count=30))
