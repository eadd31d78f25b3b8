"""The properties of every log adapter: one suite, run against each."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.base.ids import LogPartition, Lsn, RequestId
from penstock.errors import (
    Corrupt,
    LogUnavailable,
    RecordTooLarge,
    RequestConflict,
    Truncated,
)
from penstock.log.api import Entry, Log, Record
from tests.conformance.logs import DEADLINE_MS, Clock, Make, entries, entry, ids, request


def test_new_log_is_empty(log: Log) -> None:
    """A new log starts and ends at 0, has one partition and holds nothing."""
    assert (log.start(), log.end(), list(log.partitions)) == (0, 0, [0])
    assert log.read(Lsn(0), Lsn(0)) == []
    assert log.hints(Lsn(0), Lsn(0)) == []
    assert log.find(RequestId("a")) is None


def test_appended_entries_are_read_back(log: Log) -> None:
    """Appended entries are read back whole, at consecutive positions from 0."""
    given = [
        Entry(RequestId("a"), b"first", b"12345678", -5),
        Entry(RequestId("ü" * 50), b"", b"", 2**62),
        Entry(RequestId(""), bytes(range(256)), b"x" * 800, 0),
    ]
    assert log.append(given[:1]) + log.append(given[1:]) == [0, 1, 2]
    assert log.end() == 3
    assert log.read(Lsn(0), Lsn(3)) == [
        Record(Lsn(lsn), one.request_id, one.body, one.time_us) for lsn, one in enumerate(given)
    ]
    assert log.hints(Lsn(0), Lsn(3)) == [one.hint for one in given]


def test_append_of_nothing_adds_nothing(log: Log) -> None:
    """An empty call is allowed and changes nothing."""
    assert log.append([]) == []
    assert log.end() == 0


@pytest.mark.parametrize(("start", "end"), [(0, 3000), (1, 2), (0, 1), (2999, 3000), (700, 2200)])
def test_any_range_is_read(log: Log, start: int, end: int) -> None:
    """Every range of a log gives just its records and touches, for any division into blocks."""
    given = [entry(n, bytes(n % 997), n.to_bytes(8, "little")) for n in range(3000)]
    log.append(given[:1])
    log.append(given[1:2000])
    log.append(given[2000:])
    assert [one.body for one in log.read(Lsn(start), Lsn(end))] == [
        one.body for one in given[start:end]
    ]
    assert log.hints(Lsn(start), Lsn(end)) == [one.hint for one in given[start:end]]


def test_repeated_id_gets_the_first_position(log: Log) -> None:
    """An entry whose id and body are known adds nothing and gets the first position."""
    log.append(entries("a", "b"))
    assert log.append(entries("b")) == [1]
    assert log.append(entries("c", "a", "d")) == [2, 0, 3]
    assert ids(log) == ["a", "b", "c", "d"]


def test_repetition_ignores_time_and_touches(log: Log) -> None:
    """Only id and body decide whether two requests are the same; a retry has another time."""
    log.append([Entry(RequestId("a"), b"body", b"", 1)])
    assert log.append([Entry(RequestId("a"), b"body", b"12345678", 2)]) == [0]
    assert [one.time_us for one in log.read(Lsn(0), Lsn(1))] == [1]


def test_id_repeated_in_one_call_counts_once(log: Log) -> None:
    """Two entries of one call with the same id and body are one record."""
    assert log.append(entries("a", "b", "a", "c")) == [0, 1, 0, 2]
    assert ids(log) == ["a", "b", "c"]


def test_other_body_is_refused_whole(log: Log) -> None:
    """An id with another body refuses its call, of which nothing is appended."""
    log.append(entries("a"))
    with pytest.raises(RequestConflict, match="'a'"):
        log.append([entry("b"), entry("a", b"other"), entry("c")])
    with pytest.raises(RequestConflict, match="'b'"):
        log.append([entry("b"), entry("b", b"other")])
    assert ids(log) == ["a"]
    assert log.append(entries("b")) == [1]


def test_repetition_with_other_rights_is_the_same_request(make: Make) -> None:
    """The scopes of a caller may change before it sends a request again; its arguments may not."""
    first = make()
    first.append([request("a", "call"), request("b")])
    log = make(again=first)
    for scopes in ("call", "call read", "*", ""):
        assert log.append([request("a", scopes), request("b", scopes)]) == [0, 1]
        with pytest.raises(RequestConflict, match="'a'"):
            log.append([request("a", scopes, amount=2)])
    assert log.append([request("c", "call"), request("c", "read"), request("c")]) == [2, 2, 2]
    log.truncate(Lsn(3))
    assert log.append([request("a", "read"), request("b", "read")]) == [0, 1]
    with pytest.raises(RequestConflict, match="'b'"):
        log.append([request("b", "call", amount=2)])


def test_large_body_is_refused_whole(make: Make) -> None:
    """A body at the limit passes; one byte more refuses its call, which leaves no trace."""
    log = make(record_bytes_max=10)
    with pytest.raises(RecordTooLarge, match=r"'b'.*11.*record_bytes_max = 10"):
        log.append([entry("a"), entry("b", bytes(11))])
    assert log.end() == 0
    assert log.append([entry("b", bytes(10))]) == [0]


def test_giant_bodies_are_kept(make: Make) -> None:
    """Bodies far larger than a block are stored among small bodies."""
    log = make(record_bytes_max=2_000_000)
    given = [entry("a"), entry("b", bytes(2_000_000)), entry("c"), entry("d", b"x" * 1_000_000)]
    log.append(given)
    assert [one.body for one in log.read(Lsn(0), Lsn(4))] == [one.body for one in given]
    assert [one.body for one in log.read(Lsn(2), Lsn(3))] == [b"c"]


def test_find_names_the_first_append(log: Log) -> None:
    """An id is found where it was first appended, also after its record was truncated."""
    log.append(entries("a", "b"))
    assert log.find(RequestId("b")) == (0, 1)
    log.truncate(Lsn(2))
    assert log.find(RequestId("b")) == (0, 1)
    assert log.find(RequestId("c")) is None


def test_ids_outlive_truncation(log: Log) -> None:
    """Duplicates and conflicts with truncated records are still seen."""
    log.append(entries("a", "b"))
    log.truncate(Lsn(2))
    assert log.append(entries("a", "c")) == [0, 2]
    with pytest.raises(RequestConflict):
        log.append([entry("b", b"other")])
    assert (log.start(), log.end()) == (2, 3)


def test_ids_expire(make: Make, clock: Clock) -> None:
    """An id is new again when its retention is over, and not a second earlier."""
    log = make(retention_s=100)
    log.append(entries("a"))
    clock.forward(99)
    assert log.append(entries("a")) == [0]
    clock.forward(1)
    assert log.find(RequestId("a")) is None
    assert log.append([entry("a", b"other")]) == [1]
    assert log.find(RequestId("a")) == (0, 1)
    assert log.append([entry("a", b"other")]) == [1]


def test_ids_expire_after_truncation(make: Make, clock: Clock) -> None:
    """A truncated record's id expires like any other."""
    log = make(retention_s=100)
    log.append(entries("a"))
    log.truncate(Lsn(1))
    clock.forward(100)
    log.append(entries("b"))
    log.truncate(Lsn(2))
    assert log.append(entries("a", "b")) == [2, 1]


def test_many_ids_are_known(log: Log) -> None:
    """Ids are known however many came after them."""
    for first in range(0, 90_000, 30_000):
        log.append([entry(n, b"") for n in range(first, first + 30_000)])
    assert log.append([entry(n, b"") for n in (89_999, 0, 90_000, 45_000)]) == [
        89_999,
        0,
        90_000,
        45_000,
    ]
    assert log.append([entry(n, b"") for n in range(30_000)]) == list(range(30_000))


def test_truncation_moves_the_start(log: Log) -> None:
    """Records below the new start are refused, those above remain; it never moves back."""
    log.append(entries(*range(10)))
    log.truncate(Lsn(4))
    assert (log.start(), log.end()) == (4, 10)
    assert [one.lsn for one in log.read(Lsn(4), Lsn(10))] == [4, 5, 6, 7, 8, 9]
    with pytest.raises(Truncated, match=r"3.*4"):
        log.read(Lsn(3), Lsn(10))
    with pytest.raises(Truncated):
        log.hints(Lsn(0), Lsn(1))
    log.truncate(Lsn(2))
    assert log.start() == 4


def test_truncated_to_nothing_goes_on(log: Log) -> None:
    """Positions are never given twice, even when nothing is held; beyond the end is the end."""
    log.append(entries(*range(10)))
    log.truncate(Lsn(99))
    assert (log.start(), log.end()) == (10, 10)
    assert log.append(entries("a")) == [10]
    assert ids(log) == ["a"]


def test_reading_beyond_the_end_is_refused(log: Log) -> None:
    """A range with missing records is an error, and not a shorter answer."""
    log.append(entries("a"))
    with pytest.raises(Corrupt, match="lsn 1"):
        log.read(Lsn(0), Lsn(2))
    with pytest.raises(Corrupt):
        log.hints(Lsn(1), Lsn(2))


def test_limit_counts_records_and_bytes(log: Log) -> None:
    """The end is the greatest that keeps to both limits, in and across appends."""
    log.append([entry(n, bytes(10)) for n in range(5)])
    log.append([entry(n, bytes(100)) for n in range(5, 8)])
    assert log.limit(Lsn(0), 3, 1000) == 3
    assert log.limit(Lsn(0), 100, 29) == 2
    assert log.limit(Lsn(0), 100, 30) == 3
    assert log.limit(Lsn(3), 100, 219) == 6
    assert log.limit(Lsn(3), 100, 220) == 7
    assert log.limit(Lsn(0), 100, 1000) == 8
    assert log.limit(Lsn(6), 1, 1000) == 7


def test_limit_lets_one_record_through(log: Log) -> None:
    """A record larger than the limit passes alone; an empty range gives no records."""
    log.append([entry(n, bytes(100)) for n in range(2)])
    assert log.limit(Lsn(0), 10, 5) == 1
    assert log.limit(Lsn(1), 0, 0) == 2
    assert log.limit(Lsn(2), 10, 1000) == 2
    log.truncate(Lsn(1))
    with pytest.raises(Truncated):
        log.limit(Lsn(0), 1, 1)


def test_a_control_record_is_a_range_of_its_own(log: Log) -> None:
    """Ranges end before and after it, in one append and in several; a repetition keeps the first mark."""
    log.append([entry(n, is_control=n in (2, 3)) for n in range(5)])
    log.append([entry(5, is_control=True)])
    log.append([entry(5), *entries(6, 7)])
    ends, start = [], Lsn(0)
    while start < log.end():
        start = log.limit(start, 100, 1000)
        ends.append(start)
    assert ends == [2, 3, 4, 5, 6, 8]
    assert log.limit(Lsn(2), 100, 0) == 3
    assert log.controls(Lsn(0), Lsn(100)) == [2, 3, 5]
    assert log.controls(Lsn(3), Lsn(5)) == [3]
    log.truncate(Lsn(3))
    assert log.controls(Lsn(0), Lsn(100)) == [3, 5]
    assert ids(log) == ["3", "4", "5", "6", "7"]


def test_a_scheduled_control_record_keeps_its_mark(log: Log) -> None:
    """The record that the schedule appends is a control record."""
    log.schedule(entry(1, is_control=True), 5)
    log.append(entries(0))
    assert log.promote(5) == 1
    assert log.controls(Lsn(0), log.end()) == [1]


def test_wait_returns_at_once_when_there_is_more(log: Log) -> None:
    """Waiting for existing records, or for no time, does not block."""
    log.append(entries("a"))
    assert log.wait(Lsn(0), DEADLINE_MS) == 1
    assert log.wait(Lsn(1), 0) == 1
    assert log.wait(Lsn(1), 5) == 1


def test_wait_sees_an_append_of_another_thread(log: Log) -> None:
    """An append ends a wait that began before it."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(log.wait, Lsn(0), DEADLINE_MS)
        log.append(entries("a"))
        assert waiting.result() == 1


def test_closed_log_refuses_everything(log: Log) -> None:
    """After `close`, which may come twice, every call says that the log is closed."""
    log.append(entries("a"))
    log.close()
    log.close()
    calls: list[Callable[[], object]] = [
        lambda: log.append(entries("b")),
        lambda: log.append([]),
        log.check_writable,
        lambda: log.read(Lsn(0), Lsn(1)),
        lambda: log.hints(Lsn(0), Lsn(1)),
        lambda: log.wait(Lsn(1), DEADLINE_MS),
        lambda: log.limit(Lsn(0), 1, 1),
        lambda: log.find(RequestId("a")),
        lambda: log.truncate(Lsn(1)),
        lambda: log.schedule(entry("c"), 0),
        lambda: log.scheduled(RequestId("c")),
        lambda: log.upcoming(1),
        lambda: log.scheduled_ids("c", 1),
        lambda: log.promote(0),
        log.start,
        log.end,
    ]
    for call in calls:
        with pytest.raises(LogUnavailable, match="closed"):
            call()


def test_closing_ends_a_wait(log: Log) -> None:
    """A thread that waits learns that the log was closed."""
    started = threading.Event()

    def wait() -> Lsn:
        started.set()
        return log.wait(Lsn(0), DEADLINE_MS)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        assert started.wait(DEADLINE_MS / 1000)
        log.close()
        with pytest.raises(LogUnavailable):
            waiting.result()


def test_other_partition_does_not_exist(log: Log) -> None:
    """An embedded log has one partition and says so."""
    with pytest.raises(LogUnavailable, match="partition 1"):
        log.end(LogPartition(1))


def test_threads_append_at_once(log: Log) -> None:
    """Appends of many threads, some of them repeated, get each one position, without gaps."""

    def work(worker: int) -> list[tuple[str, Lsn]]:
        done: list[tuple[str, Lsn]] = []
        for n in range(20):
            names = [f"own {worker} {n}", f"shared {n}"]
            done += zip(names, log.append(entries(*names)), strict=True)
        return done

    with ThreadPoolExecutor(8) as pool:
        acknowledged = [one for some in pool.map(work, range(8)) for one in some]
    assert {name: lsn for lsn, name in enumerate(ids(log))} == dict(acknowledged)
    assert len(set(acknowledged)) == log.end() == 8 * 20 + 20


def test_conflict_harms_nobody_else(log: Log) -> None:
    """Calls that share a commit with a refused one succeed."""
    log.append(entries("a"))

    def work(worker: int) -> int:
        refused = 0
        for n in range(20):
            try:
                log.append([entry(f"{worker} {n}"), entry("a", b"x" if worker % 2 else b"a")])
            except RequestConflict:
                refused += 1
        return refused

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [0, 20] * 4
    assert sorted(ids(log)[1:]) == sorted(f"{w} {n}" for w in (0, 2, 4, 6) for n in range(20))
