"""The queue of a cascade: pages of bounded size, limits, a cut at a recorded place, and its end."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import msgspec
import pytest

from penstock import App, Emit, Entity, connect, emit, entity, flow, key, send, sequencer, stream
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.limits import Limits
from penstock.engine.streams.cascade_runner import (
    QUEUE,
    SHARE_MIN_S,
    SHARE_S,
    SHORT,
    WIDER,
    CascadeTime,
)
from penstock.engine.streams.derived_ids import cascade_id, continuation_id, end_id
from penstock.engine.streams.stored_cascade import PAGE_BYTES, encode_requests
from penstock.engine.streams.system_rows import REQUESTS, former_rest_key
from penstock.engine.task import Task
from penstock.model.call import Call
from penstock.model.request import NOT_CUT, Cut, cancelled_body, cut_of, encode_continuation
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.spark.quarantine import Quarantine, read_note
from penstock.runtime.spark.stage import note_parts

numbers = stream("numbers", int)
PAD = "x" * 4_000


@entity
class Bomb(Entity):
    name: str = key()
    ran: int = 0

    def explode(self, pad: str) -> None:
        self.ran += 1
        send(Bomb.explode, self, pad)
        send(Bomb.explode, self, pad)

    def send_many(self, times: int) -> None:
        self.ran += 1
        for _ in range(times):
            send(Bomb.count, self)

    def count(self) -> None:
        self.ran += 1

    def total(self) -> int:
        return self.ran

    def publish_many(self, times: int) -> None:
        for number in range(times):
            emit(numbers, number)
            send(Bomb.count, self)


class Double:
    seen: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.seen += 1
        out(number)
        out(number)


loop = sequencer("loop", int, numbers)
around = flow("around", loop).task(Double).sink("doubled")
app = App("queue", Bomb, around, connect(around, loop))


def begun(**limits: int) -> LocalRuntime:
    runtime = LocalRuntime(app, limits=Limits(**limits))
    runtime.call.Bomb.create("b")
    return runtime


def system_rows(runtime: LocalRuntime) -> dict[EntityKey, bytes]:
    return {name: row for name, row in runtime.state.items() if name.startswith("$")}


def continuations(runtime: LocalRuntime) -> list[RequestId]:
    return [name for name, (body, _) in runtime._known.items() if cut_of(body) != NOT_CUT]


def test_rows_of_a_cut_cascade_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is larger than a page and a message, and a record writes what it has caused, not the whole queue."""
    runtime = begun(cascade_steps=100)
    written: list[int] = []
    apply = runtime._runner._apply

    def noting(writes: dict[EntityKey, bytes | None]) -> None:
        rows = [row for name, row in writes.items() if name.startswith("$") and row is not None]
        written.append(sum(map(len, rows)))
        apply(writes)

    monkeypatch.setattr(runtime._runner, "_apply", noting)
    runtime.call.Bomb("b").explode(PAD)
    rows = system_rows(runtime)
    assert sum(map(len, rows.values())) > 20 * PAGE_BYTES
    assert max(map(len, rows.values())) < PAGE_BYTES + 2 * len(PAD)
    assert max(written) < 200 * 2 * len(PAD)


@pytest.mark.parametrize("steps", [1, 7, 1_000])
def test_a_request_that_fills_the_queue_fails(steps: int) -> None:
    """It is undone, and names the limit; the cascade goes on with what waits."""
    runtime = begun(cascade_queue=10, cascade_steps=steps)
    reply = runtime.submit(Call("Bomb", "b", "send_many", (11,)))
    assert reply.error == "limit-exceeded"
    assert "11 requests would wait, more than cascade_queue = 10" in str(reply.data)
    assert runtime.submit(Call("Bomb", "b", "send_many", (10,))).error is None
    assert runtime.call.Bomb("b").total() == 11


def test_a_sent_request_that_fills_the_queue_fails() -> None:
    """A cascade that doubles itself stays below the limit of bytes."""
    runtime = begun(cascade_queue_bytes=20 * len(PAD), cascade_steps=50)
    runtime.submit(Call("Bomb", "b", "explode", (PAD,)))
    replies = [reply for _, reply in runtime._known.values()]
    assert {reply.error for reply in replies} == {None, "limit-exceeded"}
    failed = next(reply for reply in replies if reply.error)
    assert "more than cascade_queue_bytes" in str(failed.data)
    assert sum(map(len, system_rows(runtime).values())) < 25 * len(PAD)


def test_a_workflow_step_that_fills_the_queue_fails() -> None:
    """Its atom is set aside."""
    runtime = begun(cascade_queue_bytes=500, cascade_steps=30)
    runtime.append("numbers", [1])
    assert runtime.streams["around-failed"]
    assert "the queue of the cascade is full" in str(runtime.failures[0])


def test_events_of_requests_count_for_the_queue_of_steps() -> None:
    """A request cannot publish more atoms than may wait."""
    runtime = begun(cascade_queue=5)
    reply = runtime.submit(Call("Bomb", "b", "publish_many", (6,)))
    assert "more than cascade_queue = 5" in str(reply.data)


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_a_log_is_processed_again_with_its_cuts(steps: int) -> None:
    """The log says where cascades were cut, so other limits change nothing."""
    runtime = begun(cascade_steps=steps, cascade_queue_bytes=1_000)
    runtime.append("numbers", [1], request_id="appended")
    runtime.submit(Call("Bomb", "b", "explode", ("x",), request_id="exploded"))
    records = [
        runtime._record(name, body, 0)
        for name, (body, _) in runtime._known.items()
        if "~~" not in name or cut_of(body) != NOT_CUT
    ]
    cuts = {name: cut_of(body) for name, (body, _) in runtime._known.items()}
    cuts |= {later.request_id: cut_of(later.body) for later in runtime._later}
    again = LocalRuntime(app, limits=Limits(cascade_steps=10_000, cascade_queue_bytes=1_000))
    again.replay(records, cuts=cuts)
    assert again.state == runtime.state
    assert again.streams == runtime.streams


def test_a_continuation_that_was_set_aside_reads_no_page() -> None:
    """Its queue is dropped, also if a page is damaged."""
    runtime = begun(cascade_steps=20)
    runtime._settle = lambda: False  # type: ignore[method-assign]
    runtime.submit(Call("Bomb", "b", "explode", (PAD,), request_id="first"))
    (record,) = runtime._later
    for name in system_rows(runtime):
        if name != f"{REQUESTS}/first":
            runtime.state[name] = b"damaged"
    runtime._process(msgspec.structs.replace(record, body=cancelled_body(record.body)))
    assert system_rows(runtime) == {}
    assert runtime._known[record.request_id][1].error == "cancelled"


def test_a_record_ends_the_rest_of_a_cascade() -> None:
    """Nothing of it runs any more; the record that continues it finds nothing."""
    runtime = begun(cascade_steps=20, cascade_queue_bytes=2_000)
    runtime.submit(Call("Bomb", "b", "explode", ("x",), request_id="first"))
    runtime.append("numbers", [1], request_id="second")
    for name in ("first", "second"):
        runtime._process(runtime._record(end_id(RequestId(name)), encode_continuation(), 0))
    ran = runtime.state[EntityKey("Bomb/b")]
    assert runtime.settle()
    assert runtime.state[EntityKey("Bomb/b")] == ran
    assert system_rows(runtime) == {}


def test_the_rest_of_an_earlier_penstock_goes_on() -> None:
    """It is one row, and becomes pages."""
    runtime = begun(cascade_steps=3)
    body = app.request("Bomb", "b", "count")[0]
    name = RequestId("old~~c4")
    row = encode_requests([(RequestId(f"old~~{place}"), body) for place in range(10)])
    runtime.state[former_rest_key(REQUESTS, name)] = row
    runtime._process(runtime._record(name, encode_continuation(), 0))
    assert f"{REQUESTS}/old/0" in runtime.state
    assert runtime.settle()
    assert runtime.call.Bomb("b").total() == 10
    assert system_rows(runtime) == {}


def test_the_rest_of_an_earlier_penstock_may_be_too_large() -> None:
    """The record that continues it fails, and the row is removed."""
    runtime = begun(cascade_queue_bytes=1_000)
    name = RequestId("old~~c4")
    runtime.state[former_rest_key(REQUESTS, name)] = bytes(2_000)
    reply = runtime._process(runtime._record(name, encode_continuation(), 0))
    assert reply.error == "limit-exceeded"
    assert system_rows(runtime) == {}


def test_a_cascade_is_cut_when_its_time_is_over() -> None:
    """The record that continues it has the place, and at least one request runs before each cut."""
    runtime = begun()
    seconds = count(0.0, SHARE_S / 4)
    runtime._runner.time = CascadeTime(lambda: next(seconds), short=1)
    runtime.submit(Call("Bomb", "b", "send_many", (12,)))
    cuts = [cut_of(runtime._known[name][0]) for name in continuations(runtime)]
    assert cuts[0] == Cut(5)
    assert runtime.call.Bomb("b").total() == 13


@pytest.mark.parametrize(
    ("sent", "step_s", "cut"),
    [
        (SHORT, SHARE_S, None),
        (SHORT + 1, SHARE_S, Cut(SHORT)),
        (4, WIDER * SHARE_S, Cut(2)),  # the first one always runs
        (4, WIDER * SHARE_S / 2, Cut(3)),
    ],
)
def test_a_short_cascade_has_a_wider_bound(sent: int, step_s: float, cut: Cut | None) -> None:
    """A machine that is busy for a moment cuts none, so no later record overtakes its rest."""
    runtime = begun()
    seconds = count(0.0, step_s)
    runtime._runner.time = CascadeTime(lambda: next(seconds))
    runtime.submit(Call("Bomb", "b", "send_many", (sent,)))
    cuts = [cut_of(runtime._known[name][0]) for name in continuations(runtime)]
    assert cuts[:1] == ([] if cut is None else [cut])


def test_the_time_of_cascades_shrinks_in_an_epoch() -> None:
    """However many cascades an epoch cuts, all together take little more than two shares."""
    clock = [0.0]
    share = CascadeTime(lambda: clock[0])
    spent = 0.0
    for _ in range(20):
        share.begin()
        ran = 1
        while not share.is_over(ran):
            ran += 1
            clock[0] += SHARE_MIN_S
            spent += SHARE_MIN_S
        share.cut()
    assert spent < 2 * SHARE_S + 20 * SHARE_MIN_S


def dying(task: Task, name: str) -> Callable[[dict[EntityKey, bytes | None]], None]:
    """Return a way to apply writes that ends the process where rows of this name are written."""
    apply = task._apply

    def applying(writes: dict[EntityKey, bytes | None]) -> None:
        if any(key.startswith(name) for key in writes):
            raise KeyboardInterrupt
        apply(writes)

    return applying


def run_noted(path: Path, name: str, call: tuple[str, str]) -> tuple[Task, Quarantine]:
    """Run a record at position 7 of an epoch in a worker that dies when it stores the rest of the cascade."""
    state = begun().state
    task = Task(app, state.get, Limits(cascade_steps=5), tracked=False, keys=lambda _: [])
    assert task.cascades is not None
    task.cascades._apply = dying(task, name)
    body = app.request("Bomb", "b", *call)[0] if name == REQUESTS else app.append("numbers", [1])
    quarantine = Quarantine(path, lambda: 0).__enter__()
    note_parts(task, quarantine)
    quarantine.now[0] = 7
    task.run(7, RequestId("first"), body, 0)
    return task, quarantine


def test_a_death_that_the_queue_causes_accuses_the_record(tmp_path: Path) -> None:
    """The last sent request is not the cause."""
    path = tmp_path / "e0.running"
    with pytest.raises(KeyboardInterrupt):
        run_noted(path, REQUESTS, ("explode", (PAD,)))  # type: ignore[arg-type]
    note = read_note(path)
    assert note is not None
    assert note.position == 7


def test_a_queue_of_steps_that_kills_is_dropped(tmp_path: Path) -> None:
    """The second death over it accuses the queue, and the third attempt stores nothing of it."""
    path = tmp_path / "e0.running"
    for attempt in range(3):
        task, quarantine = run_noted(path, "$steps", ("", ""))
        assert task.cascade is not None
        quarantine.now[0] = 7
        if attempt < 2:
            with pytest.raises(KeyboardInterrupt):
                task.run_steps(task.cascade, None, b"")
            continue
        task.run_steps(task.cascade, None, b"")
        assert not task.cascade.queue
        assert [done.outcome.error for done in task.cascade.completed] == ["limit-exceeded"]
        assert task.cascade.later == []


def test_ids_of_a_cascade() -> None:
    """Each record that continues a cascade has its id, also if the id of the root is long."""
    for root in (RequestId("first"), RequestId("first~~s3.0"), RequestId("x" * 2_000)):
        first = continuation_id(root)
        second = continuation_id(first)
        assert cascade_id(root) == cascade_id(first) == cascade_id(second)
        assert first == f"{cascade_id(root)}~~c1"
        assert second == f"{cascade_id(root)}~~c2"
    assert QUEUE < 0
