"""A request that a mistake in the code has failed gets another attempt, once, and a declared answer is final."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.base.ids import Epoch, LogPartition, Lsn, RequestId
from penstock.deployment.loading import load_app
from penstock.errors import RequestError, TooLate
from penstock.journal.api import SENT, Commit, Journal, PartKind
from penstock.journal.replies import find_reply
from penstock.log.api import Entry, Log
from penstock.model.request import Failure, Request, encode_failure, encode_request
from penstock.orders.attempts import discard, retry
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from tests.deployments import kept_imports, write_version
from tests.history import Call, journal_of
from tests.serial_driver import SerialDriver

__all__ = ["kept_imports"]

APP = """
from penstock import Aborted, App, Entity, key

class Empty(Aborted):
    code = "empty"

class Till(Entity):
    name: str = key()
    total: int = 0

    def pay(self, amount: int) -> int:
        self.total += {amount}
        return self.total

    def refuse(self) -> None:
        raise Empty("the till is empty")

app = App("tills", Till)
"""
CALLS: list[list[Call]] = [
    [("Till", "a", "create", {})],  # r0
    [("Till", "a", "pay", (5,)), ("Till", "a", "refuse", ())],  # r1, r2
]


@pytest.fixture
def broken(tmp_path: Path, kept_imports: None) -> Path:
    """Return a data directory in which a payment has failed, and a request was refused."""
    sys.modules.pop("tills", None)
    spec = write_version(tmp_path / "broken", "tills", APP.replace("{amount}", "amount[0]"))
    journal_of(spec, tmp_path / "data", CALLS)
    return tmp_path


@contextmanager
def opening(broken: Path) -> Iterator[tuple[Log, Journal]]:
    directory = DataDirectory(broken / "data")
    with (
        closing(directory.open_log()) as log,
        closing(directory.open_journal_of("tills")) as journal,
    ):
        yield log, journal


@pytest.fixture
def opened(broken: Path) -> Iterator[tuple[Log, Journal]]:
    with opening(broken) as both:
        yield both


def test_a_failed_request_runs_again_after_the_code_was_mended(broken: Path) -> None:
    """The id leads to the new attempt, which takes effect once; a further attempt is refused."""
    with opening(broken) as (log, journal):
        assert retry(log, journal, RequestId("r1")) == 3
        with pytest.raises(TooLate, match="has not run yet"):
            retry(log, journal, RequestId("r1"))
    del sys.modules["tills"]
    mended = write_version(broken / "mended", "tills", APP.replace("{amount}", "amount"))
    driver = SerialDriver(mended, Config(broken / "data"))
    driver.start()
    assert driver.wait_until(Lsn(4), 30_000)
    driver.stop()
    with opening(broken) as (log, journal):
        place = log.find(RequestId("r1"))
        assert place == (0, 3)
        assert find_reply(journal, place).value() == 5
        with pytest.raises(TooLate, match="took effect in epoch 2"):
            retry(log, journal, RequestId("r1"))


def test_a_declared_answer_is_final(opened: tuple[Log, Journal]) -> None:
    """The message has the answer; ids that the log does not know are named, too."""
    log, journal = opened
    for order in (retry, discard):
        with pytest.raises(TooLate, match=r"empty \(Empty: the till is empty\).*is final"):
            order(log, journal, RequestId("r2"))
        with pytest.raises(TooLate, match="took effect"):
            order(log, journal, RequestId("r0"))
        with pytest.raises(RequestError, match="no processed request has the id nobody"):
            order(log, journal, RequestId("nobody"))
        log.schedule(Entry(RequestId("later"), b"", b"", 0), 2**62)
        with pytest.raises(TooLate, match="is scheduled"):
            order(log, journal, RequestId("later"))
    assert log.end() == 3


def test_a_discarded_request_runs_nowhere(broken: Path) -> None:
    """Its result is `cancelled` from then on, which is final."""
    with opening(broken) as (log, journal):
        assert discard(log, journal, RequestId("r1")) == 3
    driver = SerialDriver(str(broken / "broken" / "tills.py"), Config(broken / "data"))
    driver.start()
    assert driver.wait_until(Lsn(4), 30_000)
    driver.stop()
    with opening(broken) as (log, journal):
        assert find_reply(journal, (LogPartition(0), Lsn(3))).error == "cancelled"
        with pytest.raises(TooLate, match="cancelled"):
            retry(log, journal, RequestId("r1"))


def test_a_request_that_a_handler_has_sent_gets_an_attempt(broken: Path) -> None:
    """It is found by the record whose cascade has sent it, and its attempt is a record with its id."""
    directory = DataDirectory(broken / "data")
    app = load_app(str(broken / "broken" / "tills.py"))
    body = app.request("Till", "a", "pay", (5,), {})[0]
    failure = encode_failure(Failure("unhandled", "TypeError", "no"))
    with closing(directory.open_log()) as log, closing(directory.open_journal(app)) as journal:
        row = {
            "epoch": 2, "partition": 0, "lsn": 3, "request_id": "root~~1", "time_us": 9,
            "request": body, "error": "unhandled", "reply": failure,
        }  # fmt: skip
        nothing = encode_request(Request("Till", "a", "refuse", b"\x90", b"\x80"))  # type: ignore[arg-type]
        log.append([Entry(RequestId("root"), nothing, b"", 9)])
        root = {**row, "request_id": "root", "request": nothing, "error": None, "reply": b"\xc0"}
        parts = tuple(
            journal.write(kind, pa.Table.from_pylist([each], SENT), "x")
            for kind, each in ((PartKind.TRANSACTIONS, root), (PartKind.SENT, row))
        )
        journal.commit(Commit(Epoch(2), {LogPartition(0): Lsn(4)}, parts, 9, {}))
        assert [retry(log, journal, RequestId("root~~1")) for _ in range(1)] == [4]
        (record,) = log.read(Lsn(4), Lsn(5))
        assert (record.request_id, record.body) == ("root~~1", body)
        with pytest.raises(TooLate, match="has not run yet"):
            retry(log, journal, RequestId("root~~1"))
        with pytest.raises(RequestError, match="no processed request"):
            retry(log, journal, RequestId("root~~2"))
