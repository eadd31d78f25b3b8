"""The properties of every log adapter with entries that are due later: one suite, run against each."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.errors import (
    RecordTooLarge,
    RequestConflict,
)
from penstock.log.api import PROMOTED_MAX, Entry, Log, Record
from penstock.model.request import cancelled_body
from tests.conformance.logs import DEADLINE_MS, Clock, Make, entries, entry, ids, request


def test_scheduled_entry_is_appended_when_due(log: Log) -> None:
    """An entry waits until its due time, is then appended once, and is as old as its promotion."""
    log.append(entries("first"))
    log.schedule(Entry(RequestId("later"), b"body", b"12345678", 7), 100)
    assert (log.promote(99), log.end(), log.find(RequestId("later"))) == (0, 1, None)
    assert log.scheduled(RequestId("later")) == 100
    assert (log.promote(100), log.promote(100), log.end()) == (1, 0, 2)
    assert log.scheduled(RequestId("later")) is None
    assert log.find(RequestId("later")) == (0, 1)
    assert log.read(Lsn(1), Lsn(2)) == [Record(Lsn(1), RequestId("later"), b"body", 100)]
    assert log.hints(Lsn(1), Lsn(2)) == [b"12345678"]


def test_due_entries_come_in_due_order(log: Log) -> None:
    """The order is by due time, then by scheduling; entries that are not due wait."""
    for name, due_us in [("c", 3), ("b", 2), ("z", 1), ("a", 1), ("d", 9)]:
        log.schedule(entry(name), due_us)
    assert log.promote(5) == 4
    assert ids(log) == ["z", "a", "b", "c"]
    assert log.promote(9) == 1
    assert ids(log)[4:] == ["d"]


def test_upcoming_entries_are_in_the_order_of_their_promotion(log: Log) -> None:
    """The entries that are due next are listed without a change; a promoted entry is not."""
    assert log.upcoming(5) == []
    for name, due_us in [("c", 3), ("b", 2), ("z", 1), ("a", 1), ("d", 9)]:
        log.schedule(entry(name), due_us)
    assert log.upcoming(3) == [(1, entry("z")), (1, entry("a")), (2, entry("b"))]
    assert log.promote(1) == 2
    assert [one.request_id for _, one in log.upcoming(9)] == ["b", "c", "d"]
    assert log.upcoming(0) == []


def test_scheduled_ids_are_listed_by_their_beginning(log: Log) -> None:
    """They are sorted, and so many at most; letters are not patterns, and a promoted entry is not listed."""
    for due_us, name in enumerate(["a2", "a1", "b", "a%", "A3", "a_"]):
        log.schedule(entry(name), due_us)
    assert log.scheduled_ids("a", 9) == ["a%", "a1", "a2", "a_"]
    assert log.scheduled_ids("a", 2) == ["a%", "a1"]
    assert log.scheduled_ids("a%", 9) == ["a%"]
    assert log.promote(1) == 2
    assert log.scheduled_ids("", 9) == ["A3", "a%", "a_", "b"]


def test_promotion_is_bounded(log: Log) -> None:
    """One call moves so many entries at most; the next one goes on, and none is left out."""
    names = [str(n) for n in range(PROMOTED_MAX + 2)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: log.schedule(entry(name), int(name)), names))
    due_us = len(names)
    assert [log.promote(due_us) for _ in range(3)] == [PROMOTED_MAX, 2, 0]
    assert ids(log) == names


def test_scheduling_again_adds_nothing(log: Log) -> None:
    """A known id with the same body changes nothing, also with another due time."""
    log.schedule(entry("a"), 5)
    log.schedule(entry("a"), 1)
    assert log.scheduled(RequestId("a")) == 5
    assert (log.promote(4), log.promote(5)) == (0, 1)
    log.schedule(entry("a"), 6)
    log.append(entries("b"))
    log.schedule(entry("b"), 6)
    assert (log.scheduled(RequestId("a")), log.scheduled(RequestId("b"))) == (None, None)
    assert (log.promote(10), ids(log)) == (0, ["a", "b"])


def test_scheduling_another_body_is_refused(log: Log) -> None:
    """An id that waits or was appended is refused with another body."""
    log.append(entries("a"))
    log.schedule(entry("b"), 5)
    for name in "ab":
        with pytest.raises(RequestConflict, match=f"'{name}'"):
            log.schedule(entry(name, b"other"), 5)
    assert (log.promote(5), ids(log)) == (1, ["a", "b"])


def test_waiting_id_is_not_appended_before_it_is_due(log: Log) -> None:
    """An append of an id that waits is refused whole, and a repetition once it was promoted."""
    log.schedule(entry("a"), 5)
    for body in (b"a", b"other"):
        with pytest.raises(
            RequestConflict, match=r"'a' is scheduled for 1970-01-01T00:00:00.000005"
        ):
            log.append([entry("b"), entry("a", body)])
    assert log.append(entries("b")) == [0]
    assert log.promote(5) == 1
    assert log.append(entries("a")) == [1]
    with pytest.raises(RequestConflict, match="'a'"):
        log.append([entry("a", b"other")])


def test_large_body_is_not_scheduled(make: Make) -> None:
    """The limit on bodies holds when an entry is scheduled, not when it is too late."""
    log = make(record_bytes_max=10)
    with pytest.raises(RecordTooLarge, match=r"'b'.*11.*10"):
        log.schedule(entry("b", bytes(11)), 0)
    log.schedule(entry("b", bytes(10)), 0)
    assert log.promote(0) == 1


def test_clock_jumps_fire_once(log: Log) -> None:
    """For any jumps of the clock, an entry is appended once, and only when it is due."""
    hour_us = 3_600_000_000
    log.schedule(entry("a"), 10 * hour_us)
    assert [log.promote(hours * hour_us) for hours in (9, 8, 10, 9, 11, 10)] == [0, 0, 1, 0, 0, 0]
    assert ids(log) == ["a"]


def test_promoted_id_is_kept_from_its_append(make: Make, clock: Clock) -> None:
    """The retention of an id that waited counts from its append."""
    log = make(retention_s=100)
    log.schedule(entry("a"), 5)
    clock.forward(1_000)
    log.promote(5)
    clock.forward(99)
    assert log.append(entries("a")) == [0]
    clock.forward(1)
    assert log.append(entries("a")) == [1]


def test_acknowledged_schedule_is_kept_when_an_expired_id_revives(make: Make, clock: Clock) -> None:
    """A clock that goes back makes an old append known again, and swallows no scheduled entry."""
    log = make(retention_s=100)
    log.append(entries("a"))
    clock.forward(100)
    log.schedule(entry("a", b"other"), 5)
    clock.forward(-50)
    assert log.promote(5) == 1
    assert [one.body for one in log.read(Lsn(0), log.end())] == [b"a", b"other"]


def test_many_wait_while_others_are_appended(log: Log) -> None:
    """However many wait, and however many are appended at once, each id is told apart."""
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: log.schedule(entry(n), n), range(300)))
    assert log.append(entries(*range(300, 2_000)))[-1] == 1_699
    with pytest.raises(RequestConflict, match="'299'"):
        log.append(entries(*range(2_000, 3_500), 299))
    assert (log.end(), log.promote(1_000), log.end()) == (1_700, 300, 2_000)


def test_promotion_ends_a_wait(log: Log) -> None:
    """A waiter for the log's end is woken by a promotion as by an append."""
    log.schedule(entry("a"), 5)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(log.wait, Lsn(0), DEADLINE_MS)
        log.promote(5)
        assert waiting.result() == 1


def marked(body: bytes) -> bytes:
    return b"cancelled " + body


def test_cancelled_entry_takes_its_position_with_a_mark(log: Log) -> None:
    """A cancelled entry is appended once, marked and touching nothing, and is never promoted."""
    log.append(entries("first"))
    log.schedule(Entry(RequestId("a"), b"body", b"12345678", 7), 100)
    log.schedule(entry("b"), 100)
    assert log.append_scheduled(RequestId("a"), 50, marked) == 1
    assert (log.scheduled(RequestId("a")), log.find(RequestId("a"))) == (None, (0, 1))
    assert log.read(Lsn(1), Lsn(2)) == [Record(Lsn(1), RequestId("a"), b"cancelled body", 50)]
    assert log.hints(Lsn(1), Lsn(2)) == [b""]
    assert (log.promote(100), ids(log)) == (1, ["first", "a", "b"])


def test_a_scheduled_entry_may_come_before_it_is_due(log: Log) -> None:
    """It is the entry as it was scheduled, and kept apart from others as before."""
    log.schedule(Entry(RequestId("a"), b"body", b"12345678", 7, is_control=True), 100)
    assert log.append_scheduled(RequestId("a"), 50) == 0
    assert log.read(Lsn(0), Lsn(1)) == [Record(Lsn(0), RequestId("a"), b"body", 50)]
    assert log.hints(Lsn(0), Lsn(1)) == [b"12345678"]
    assert log.controls(Lsn(0), Lsn(1)) == [0]
    assert (log.promote(100), log.append_scheduled(RequestId("a"), 100)) == (0, None)


def test_cancelled_id_stays_taken(log: Log) -> None:
    """The id remains the id of the first body: with that body it repeats, with another it conflicts."""
    log.schedule(entry("a"), 5)
    assert log.append_scheduled(RequestId("a"), 1, marked) == 0
    log.schedule(entry("a"), 9)
    assert (log.append(entries("a")), log.scheduled(RequestId("a"))) == ([0], None)
    for body in (b"other", marked(b"a")):
        with pytest.raises(RequestConflict, match="'a'"):
            log.append([entry("a", body)])
    assert (log.promote(9), log.end()) == (0, 1)


def test_other_rights_neither_schedule_nor_attempt_another_request(log: Log) -> None:
    """An id is the same request with other rights while it waits, when it was cancelled, and for its next attempt."""
    for name in ("waits", "cancelled"):
        log.schedule(request(name, "call"), 5)
        log.schedule(request(name, "read"), 9)
        with pytest.raises(RequestConflict, match=f"'{name}'"):
            log.schedule(request(name, "call", amount=2), 9)
    assert log.append_scheduled(RequestId("cancelled"), 1, cancelled_body) == 0
    assert (log.promote(5), log.promote(9)) == (1, 0)
    for scopes in ("call", "read", ""):
        log.schedule(request("waits", scopes), 9)
        assert log.append([request("cancelled", scopes), request("waits", scopes)]) == [0, 1]
    assert log.repeat(request("waits", "read"), Lsn(1)) == 2
    assert log.repeat(request("waits"), Lsn(1)) == 2
    with pytest.raises(RequestConflict, match="another body"):
        log.repeat(request("waits", "call", amount=2), Lsn(2))
    assert (log.promote(9), log.end()) == (0, 3)


def test_only_a_scheduled_entry_is_cancelled(log: Log) -> None:
    """Nothing changes for an id that is unknown, appended, promoted or cancelled already."""
    log.append(entries("appended"))
    for name in ("promoted", "cancelled"):
        log.schedule(entry(name), 5)
    log.append_scheduled(RequestId("cancelled"), 1, marked)
    log.promote(5)
    for name in ("unknown", "appended", "promoted", "cancelled"):
        assert log.append_scheduled(RequestId(name), 6, marked) is None
    assert ids(log) == ["appended", "cancelled", "promoted"]


def test_cancellations_and_promotions_race_for_each_entry_once(log: Log) -> None:
    """Of a promotion and two cancellations at the same time, one has each entry."""
    names = [str(number) for number in range(60)]
    for name in names:
        log.schedule(entry(name), int(name))
    with ThreadPoolExecutor(3) as pool:
        promotions = pool.map(log.promote, range(60))
        cancellations = [
            pool.submit(log.append_scheduled, RequestId(name), 1, marked)
            for name in names[::-1] * 2
        ]
        moved = sum(promotions)
        positions = [one.result() for one in cancellations]
    taken = [position for position in positions if position is not None]
    assert (moved + len(taken), len(set(taken))) == (60, len(taken))
    assert sorted(ids(log)) == sorted(names)
    records = log.read(Lsn(0), log.end())
    bodies = {record.lsn for record in records if record.body.startswith(b"cancelled ")}
    assert bodies == set(taken)


def test_a_request_is_appended_again_as_its_next_attempt(log: Log) -> None:
    """The id leads to the newest attempt, also for callers that append the first body again."""
    log.append(entries("a", "b"))
    again = Entry(RequestId("a"), entry("a").body, b"12345678", 70)
    assert log.repeat(again, Lsn(0)) == 2
    assert log.repeat(again, Lsn(0)) == 2, "another caller has seen the same attempt"
    assert log.find(RequestId("a")) == (0, 2)
    assert log.append([entry("a"), entry("b")]) == [2, 1]
    assert log.repeat(again, Lsn(2), marked) == 3
    assert log.find(RequestId("a")) == (0, 3)
    assert log.append([entry("a")]) == [3], "the id keeps the body of the first append"
    assert log.end() == 4
    assert [record.body for record in log.read(Lsn(2), Lsn(4))] == [again.body, marked(again.body)]
    assert log.hints(Lsn(2), Lsn(4)) == [b"12345678", b""]


def test_an_attempt_of_another_request_is_refused(log: Log) -> None:
    """The body must be that of the request, and a request that waits has no attempt yet."""
    log.append(entries("a"))
    log.schedule(entry("later"), 100)
    with pytest.raises(RequestConflict, match="another body"):
        log.repeat(Entry(RequestId("a"), b"other", b"", 1), Lsn(0))
    with pytest.raises(RequestConflict, match="scheduled"):
        log.repeat(entry("later"), Lsn(0))
    assert log.end() == 1


def test_an_attempt_is_known_after_reopening(make: Make) -> None:
    """A new process finds the newest attempt; an expired id may be appended again, too."""
    first = make()
    first.append(entries("a", "b"))
    first.repeat(entry("a"), Lsn(0))
    first.truncate(Lsn(3))
    log = make(again=first)
    assert log.end() == 3
    assert log.find(RequestId("a")) == (0, 2)
    assert log.repeat(entry("a"), Lsn(2)) == 3
