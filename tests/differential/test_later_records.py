"""Later records through the driver of epochs: each is processed, whatever its size and the length of its ancestry."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.base.ids import Epoch, RequestId
from penstock.journal.api import PartKind
from penstock.log.api import Entry
from tests.differential.inline import Inline
from tests.differential.later_app import LARGE, app

SPEC = "tests.differential.later_app:app"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Inline]:
    made = Inline(tmp_path, 1, SPEC, app.name, small_epoch=100)
    yield made
    made.close()


def run(runtime: Inline, records_max: int = 100) -> None:
    """Process the log until it is empty and nothing is scheduled."""
    for number in range(records_max):
        runtime.advance(int(runtime.log.end()))
        if not runtime.log.promote((1 << 60) + 10 * number):
            return
    raise AssertionError("records remain")


def replies(runtime: Inline) -> dict[str, str | None]:
    """Return the error of each record of the log, by its id."""
    columns = ("request_id", "error")
    last = runtime.journal.last()
    assert last is not None
    found: dict[str, str | None] = {}
    for _, rows in runtime.journal.rows(PartKind.TRANSACTIONS, Epoch(-1), last.epoch, columns):
        found |= dict(zip(rows["request_id"].to_pylist(), rows["error"].to_pylist(), strict=True))
    return found


def append(runtime: Inline, method: str, *arguments: object) -> None:
    for name in ("a", "asked", "called"):
        runtime.log.append([Entry(RequestId(name), *app.request("Note", name, "create"), 0)])
    body, touches = app.request("Note", "a", method, arguments)
    runtime.log.append([Entry(RequestId("first"), body, touches, 0)])


def test_a_later_record_may_be_larger_than_a_request_from_outside(runtime: Inline) -> None:
    """It is in a commit already, so a refusal by the log would stop the driver forever."""
    assert len(LARGE) > runtime.config.record_bytes_max
    append(runtime, "write_large")
    run(runtime)
    assert list(replies(runtime).values()) == [None] * 6


def test_a_request_that_sends_itself_keeps_a_short_id(runtime: Inline) -> None:
    """A timer may run for years, and each id begins with that of the request before it."""
    append(runtime, "tick", 400)
    run(runtime, 500)
    ids = replies(runtime)
    assert len(ids) == 404, "each has an id of its own"
    assert max(map(len, ids)) < 1_100
    assert all(name.startswith("first~~") for name in list(ids)[4:])
    assert set(ids.values()) == {None}
