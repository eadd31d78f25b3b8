"""Shared by the tests of every log: a clock, entries, and the content of a log."""

from typing import Protocol

from penstock.base.ids import RequestId
from penstock.log.api import Entry, Log

DEADLINE_MS = 60_000


class Clock:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.now_us = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now_us

    def forward(self, seconds: int) -> None:
        self.now_us += seconds * 1_000_000


class Make(Protocol):
    """Makes a log; with `again` it opens a former one, as a new process does. One in memory has no other process."""

    def __call__(
        self, *, record_bytes_max: int = ..., retention_s: int = ..., again: Log | None = ...
    ) -> Log: ...


def entry(
    name: object, body: bytes | None = None, hint: bytes = b"", *, is_control: bool = False
) -> Entry:
    text = str(name)
    data = text.encode() if body is None else body
    return Entry(RequestId(text), data, hint, len(text), is_control)


def entries(*names: object) -> list[Entry]:
    return [entry(name) for name in names]


def ids(log: Log) -> list[str]:
    return [record.request_id for record in log.read(log.start(), log.end())]
