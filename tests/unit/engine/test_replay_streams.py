"""Replay of records with their cascades: equal outcomes are no difference, and a wrong row is found."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from penstock import App, Emit, Entity, flow, key, send, stream, transactional
from penstock.base.ids import EntityKey, Epoch, Lsn, RequestId
from penstock.engine.execute import Limits
from penstock.engine.replay import (
    RecordedEpoch,
    ReplayDifference,
    Replayer,
    RequestRow,
    first_difference,
)
from penstock.engine.request_text import call_text, rejection_of
from penstock.engine.streams.cascade import LaterRecord, PublishedAtom
from penstock.engine.streams.recorded_cascade import RecordedAtom, RecordedCascade, sent_of
from penstock.engine.tracing import trace
from penstock.log.api import Record
from penstock.runtime.local.runtime import LocalRuntime

words = stream("words", str)
COUNT_A = EntityKey("wordcount.Count/a")


class Count:
    total: int = 0

    def on_event(self, word: str, out: Emit[tuple[str, int]]) -> None:
        self.total += 1
        out((word, self.total))


class Shelf(Entity):
    name: str = key()
    books: int = 0

    def put(self, count: int) -> int:
        self.books += count
        if count > 1:
            send(Shelf.put, self, count - 1)
        return self.books


counts = flow("wordcount", words).flat_map(str.split).key(str).task(Count).sink("counts")
app = App("replayed", Shelf, counts)
BODIES = [
    app.request("Shelf", "a", "create", (), {})[0],
    app.append("words", ["a b", "a"]),
    app.request("Shelf", "a", "put", (3,), {})[0],
    app.append("words", ["b"]),
]


@pytest.fixture
def recorded() -> RecordedEpoch:
    """Return an epoch as the local runtime processes it, from the empty state on."""
    runtime = LocalRuntime(app)
    rows = [
        RequestRow(Lsn(lsn), RequestId(f"r{lsn}"), 1_000, body, None, b"")
        for lsn, body in enumerate(BODIES)
    ]
    replies = runtime.replay(Record(row.lsn, row.request_id, row.body, row.time_us) for row in rows)
    answered = [
        row._replace(error=reply.error, reply=reply.data)
        for row, reply in zip(rows, replies, strict=True)
    ]
    return RecordedEpoch(Epoch(0), 5, answered, dict(runtime.state), cascades_of(answered))


def cascades_of(rows: Sequence[RequestRow]) -> dict[Lsn, RecordedCascade]:
    """Return what the rows cause, as a journal has it."""
    replayer = Replayer(app, {}, Limits())
    replayer.run_all(rows)
    numbers = Counter[str]()
    recorded: dict[Lsn, RecordedCascade] = {}
    for row, cascade in zip(rows, replayer.ran, strict=True):
        if cascade is not None:
            atoms = []
            for atom in cascade.published:
                atoms.append(RecordedAtom(numbers[atom.stream], atom))
                numbers[atom.stream] += 1
            recorded[row.lsn] = RecordedCascade(atoms, sent_of(cascade), cascade.later)
    return recorded


def test_replay_runs_whole_cascades(recorded: RecordedEpoch) -> None:
    """Sent requests and workflow steps run again, so that tasks and entities come out as recorded."""
    replayer = Replayer(app, {}, Limits())
    outcomes = replayer.run_all(recorded.rows)
    assert first_difference(replayer, recorded, outcomes) is None
    assert replayer.written[COUNT_A] == app.stored["wordcount.Count"].encode(
        {"__task_key": "a", "total": 2}
    )
    put = outcomes[2]
    assert put is not None
    assert app.entities["Shelf"].plain("a", put.writes[EntityKey("Shelf/a")] or b"") == {"books": 6}
    replayer.finish()
    assert replayer.state == recorded.changes


def test_wrong_row_of_a_task_is_found(recorded: RecordedEpoch) -> None:
    """The difference names the key of the task, its attribute and the record that wrote it last."""
    count = app.stored["wordcount.Count"]
    changes = recorded.changes | {COUNT_A: count.encode({"__task_key": "a", "total": 9})}
    wrong = replace(recorded, changes=changes)
    replayer = Replayer(app, {}, Limits())
    difference = first_difference(replayer, wrong, replayer.run_all(wrong.rows))
    assert difference is not None
    assert difference.position == 1
    assert difference.findings == ((COUNT_A, "total", 9, 2),)


def _other_event(cascade: RecordedCascade) -> RecordedCascade:
    (number, atom), *others = cascade.atoms
    other = PublishedAtom(atom.stream, atom.step, (b"\xa1z", *atom.events[1:]))
    return replace(cascade, atoms=[RecordedAtom(number, other), *others])


@pytest.mark.parametrize(
    ("position", "change"),
    [
        (1, _other_event),
        (1, lambda cascade: replace(cascade, atoms=cascade.atoms[1:])),
        (2, lambda cascade: replace(cascade, sent=cascade.sent[1:])),
        (2, lambda cascade: replace(cascade, sent=[cascade.sent[0]._replace(reply=b"\x09")])),
        (3, lambda cascade: replace(cascade, later=[LaterRecord(RequestId("r3~~9"), b"", 0)])),
        (0, lambda _: RecordedCascade(later=[LaterRecord(RequestId("r0~~9"), b"", 0)])),
    ],
)
def test_wrong_result_of_a_cascade_is_found(
    recorded: RecordedEpoch, position: int, change: Callable[[RecordedCascade], RecordedCascade]
) -> None:
    """An atom, a sent request and a later record are compared, also where state and replies are equal."""
    row = recorded.rows[position]
    wrong = replace(
        recorded, cascades={**recorded.cascades, row.lsn: change(recorded.cascade(row))}
    )
    replayer = Replayer(app, {}, Limits())
    difference = first_difference(replayer, wrong, replayer.run_all(wrong.rows))
    assert difference == ReplayDifference(position, (), (position,))


def test_trace_of_an_append_has_the_writes_of_its_cascade(recorded: RecordedEpoch) -> None:
    """An append has no calls, and its outcome has the rows of tasks; a request has its own calls alone."""
    replayer = Replayer(app, {}, Limits())
    replayer.run(recorded.rows[0])
    traced = trace(app, replayer, recorded.rows[1], time.perf_counter)
    assert traced.root is None
    assert COUNT_A in traced.outcome.writes
    traced = trace(app, replayer, recorded.rows[2], time.perf_counter)
    assert traced.root is not None
    assert (traced.root.call, traced.root.calls) == ("Shelf/a.put(3)", [])


def test_appends_are_shown_with_their_stream() -> None:
    """An append is no invalid request, and an application accepts it."""
    assert [call_text(body) for body in BODIES[1:3]] == [
        "words.append('a b', 'a')",
        "Shelf/a.put(3)",
    ]
    assert rejection_of(app, BODIES[1]) == ""
    assert "there is no stream" in rejection_of(App("other", Shelf), BODIES[1])


def test_times_and_floats_are_shown_as_callers_write_them() -> None:
    """A call in a trace has the texts of JSON, also for NaN, which is no number there."""

    @transactional
    def weigh(at: datetime, scales: list[float]) -> None: ...

    body, _ = App("scales", weigh).request(
        "", None, "weigh", (datetime(2026, 1, 2, tzinfo=UTC), [math.nan, -math.inf, 1.5]), {}
    )
    assert call_text(body) == "weigh('2026-01-02T00:00:00Z', ['NaN', '-Infinity', 1.5])"
