"""Shared by the tests of every log: a clock, entries, and the content of a log."""

from typing import Protocol

import msgspec

from penstock.base.ids import RequestId
from penstock.log.api import Entry, Log
from penstock.model.principal import Principal, encode_rights
from penstock.model.request import Request, encode_request, with_caller

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


def request(name: str, scopes: str = "", *, amount: int = 1) -> Entry:
    """Return a call whose caller has some scopes, in one word; without any, an older gateway has taken it."""
    positional = msgspec.Raw(msgspec.msgpack.encode([amount]))
    body = encode_request(Request("Item", "i1", "add", positional, msgspec.Raw(b"\x80")))
    rights = encode_rights(Principal("ada", frozenset(scopes.split()))) if scopes else b""
    return Entry(RequestId(name), with_caller(body, rights), b"", 1)


def entries(*names: object) -> list[Entry]:
    return [entry(name) for name in names]


def ids(log: Log) -> list[str]:
    return [record.request_id for record in log.read(log.start(), log.end())]
