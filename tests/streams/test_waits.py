"""Handlers that wait: in memory, or stored and run again from their start, they give the same bytes."""

from typing import Any

import msgspec
import pytest

from penstock import (
    Emit,
    PerTask,
    ask,
    gather,
    now,
    random,
    request_id,
    uuid,
)
from penstock.base.ids import Lsn, RequestId
from penstock.engine.limits import Limits
from penstock.engine.streams.waiting import _KEPT_BYTES, KeptHandlers, Waiting, _Kept
from penstock.log.api import Record
from penstock.process import guard
from penstock.runtime.local.runtime import LocalRuntime
from tests.streams.waiting_app import (
    Shelf,
    app_of,
    double,
    events,
    numbers,
    running,
    slow,
    waiting_rows,
)


class Stateful:
    """Changes its state before, between and after its waits."""

    total: int = 0
    seen: list[int] = []
    shared: PerTask[int] = 0

    async def on_event(self, number: int, out: Emit[list[int]]) -> None:
        self.total += number
        self.seen.append(number)
        self.shared += 1
        at_first = self.total
        doubled = await double.ask(number)
        self.total += 100
        self.shared += self.total
        pieces = await ask(Shelf.add, Shelf("a"), doubled)
        self.seen.append(pieces)
        out([at_first, doubled, pieces, self.total, self.shared, *self.seen])
        self.shared += len(self.seen)


class Following:
    """The same without async; its state is read before and after the request."""

    total: int = 0
    shared: PerTask[int] = 0

    def on_event(self, number: int, out: Emit[list[int]]) -> None:
        self.total += number
        self.shared += 1
        asked = double.ask(self.total)
        self.total += 1
        asked.then(self.on_doubled, self.total, out)

    def on_doubled(self, doubled: int, total: int, out: Emit[list[int]]) -> None:
        self.total += 1
        ask(Shelf.add, Shelf("a"), doubled).then(self.on_pieces, [total, self.total], out)

    def on_pieces(self, pieces: int, totals: list[int], out: Emit[list[int]]) -> None:
        totals.append(pieces)
        out([*totals, self.total, self.shared])


class Mixed:
    """Asks several at once, and awaits the last one first."""

    rounds: int = 0

    async def on_event(self, number: int, out: Emit[list[int]]) -> None:
        first = double.ask(number)
        later = [ask(Shelf.add, Shelf("a"), number), slow.ask(number)]
        double.ask(-1)  # no coroutine awaits it
        self.rounds += 1
        last = await later[1]
        self.rounds += 1
        out([last, *await gather(first, later[0]), self.rounds])


class Repeatable:
    """Uses everything that repeats."""

    async def on_event(self, number: int, out: Emit[list[int]]) -> None:
        generator = random()
        values = [generator.randrange(1000), uuid().int % 1000, now().second, len(request_id())]
        await double.ask(values[0])
        values += [generator.randrange(1000), random().randrange(1000), uuid().int % 1000]
        await ask(Shelf.add, Shelf("a"), 0)
        out([*values, uuid().int % 1000, random().randrange(1000), len(request_id())])


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("task", [Stateful, Following, Mixed, Repeatable])
def test_both_ways_of_waiting(task: Any, *, exclusive: bool) -> None:
    """Handlers of one key wait at once; streams, state and replies are equal, and no row is left."""
    kit = running(task, exclusive=exclusive)
    for atom in [[1, 2, 3], [4], [5, 5]]:
        kit.append(numbers, atom)
    assert (len(events(kit)), len(events(kit, "outs"))) == (6, 6)
    assert waiting_rows(kit.runtime) == []


@pytest.mark.parametrize("task", [Stateful, Following])
def test_cuts_change_no_result_of_a_cascade(task: Any) -> None:
    """A cascade that is cut at every step gives the same as in one piece, if no request comes between."""
    whole, cut = running(task), running(task)
    cut.runtime._runner._limits = Limits(cascade_steps=2)
    for kit in (whole, cut):
        kit.append(numbers, [1, 2])
    assert sorted(events(whole)) == sorted(events(cut))
    assert waiting_rows(cut.runtime) == []


def test_values_of_handlers_differ() -> None:
    """Each turn of a handler has randomness of its own."""
    kit = running(Repeatable)
    kit.append(numbers, [1, 1])
    one, other = events(kit)
    assert all(a != b for a, b in zip(one[:2], other[:2], strict=True))
    assert one[0] != one[5]


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_wait_outlives_its_process(*, exclusive: bool) -> None:
    """Other runtimes with the same state take the next records; the events behind an exclusive key are kept, too."""
    app = app_of(Asking, exclusive=exclusive)
    runtime = LocalRuntime(app)
    runtime.call.Shelf.create("a")
    for number, name in enumerate(["first", "second"]):
        runtime = resumed(runtime)
        body = app.append(numbers.name, [number])
        runtime.replay([Record(Lsn(number), RequestId(name), body, 7)])
    kinds = {"$wait", "$turn", "$line", "$asker", *(["$queued"] if exclusive else [])}
    assert {name.partition("/")[0] for name in waiting_rows(runtime)} == kinds
    answered = []
    while waiting_rows(runtime):
        runtime = resumed(runtime)
        asker = min(name for name in waiting_rows(runtime) if name.startswith("$asker/"))
        body, _ = app.request("Shelf", "a", "add", [1], {})
        request = RequestId(asker.removeprefix("$asker/"))
        runtime.replay([Record(Lsn(2), request, body, 8)])
        answered += [decoded(data) for atom in runtime.streams["out"] for data in atom]
    assert answered == [(0, 1 if exclusive else 2), (1, 2)]


class Asking:
    asked: int = 0

    async def on_event(self, number: int, out: Emit[tuple[int, int]]) -> None:
        self.asked += 1
        await ask(Shelf.add, Shelf("a"), 1)
        out((number, self.asked))


def resumed(before: LocalRuntime) -> LocalRuntime:
    """Return a new runtime with the state of another one."""
    after = LocalRuntime(before.app)
    after.state.update(before.state)
    return after


def decoded(data: bytes) -> Any:
    number, asked = msgspec.msgpack.decode(data)
    return number, asked


class Tidy:
    """Its `finally` runs when it is forgotten, too."""

    closed: int = 0

    async def on_event(self, number: int, out: Emit[int]) -> None:
        try:
            await ask(Shelf.add, Shelf("a"), number)
        finally:
            self.closed += 1
        out(self.closed)


def test_a_forgotten_handler_has_no_effect() -> None:
    """Only the `finally` block of its last run counts."""
    kit = running(Tidy)
    kit.append(numbers, [1])
    assert (events(kit), kit.task("w.T")) == ([1], {"closed": 1})


class TwoFollowers:
    """One of its methods for a reply fails; the other one goes on."""

    def on_event(self, number: int, out: Emit[str]) -> None:
        double.ask(number).then(self.on_double, out)
        ask(Shelf.add, Shelf("a"), number).then(self.on_pieces, out)

    def on_double(self, doubled: int, out: Emit[str]) -> None:
        raise ValueError(doubled)

    def on_pieces(self, pieces: int, out: Emit[str]) -> None:
        out(f"{pieces} pieces")


def test_a_lost_reply_loses_no_other() -> None:
    """The step of the failed method is undone, and the other method gets its reply."""
    kit = running(TwoFollowers)
    kit.append(numbers, [3], check=False)
    assert events(kit) == ["3 pieces"]
    assert kit.atoms("w-failed")[0][0].message == "ValueError: 6"
    assert waiting_rows(kit.runtime) == []


STARTS: list[int] = []


class Counting:
    """Waits as often as its event says."""

    total: int = 0

    async def on_event(self, number: int, out: Emit[int]) -> None:
        STARTS.append(number)
        left = number
        while left:
            self.total += await double.ask(left) // 2
            left -= 1
        out(self.total)


class Written(LocalRuntime):
    """A local runtime that counts the bytes of all rows that it writes."""

    written = 0

    def _apply(self, writes: dict[Any, bytes | None]) -> None:
        self.written += sum(len(row or b"") for row in writes.values())
        super()._apply(writes)


def cost_of(waits: int) -> tuple[int, int]:
    """Return how often a durable handler with so many waits runs from its start, and the bytes of its rows."""
    STARTS.clear()
    runtime = Written(app_of(Counting), durable_waits=True)
    runtime.append(numbers, [waits])
    assert runtime.failures == []
    assert waiting_rows(runtime) == []
    return len(STARTS) // 2, runtime.written  # two workflows take the event


def test_the_cost_of_a_handler_grows_with_its_waits() -> None:
    """Twice the waits are one more run from the start, and twice the bytes."""
    guard._data_bytes_at_first.cache_clear()  # the memory that other tests have taken is not that of handlers
    (few, bytes_of_few), (many, bytes_of_many) = cost_of(200), cost_of(400)
    assert (many - few, many < 30) == (1, True)
    assert bytes_of_many < 2.2 * bytes_of_few


def test_a_process_without_memory_keeps_no_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait is then a run from the start, with the same outcome."""
    monkeypatch.setattr(guard, "_data_bytes_at_first", lambda: -(1 << 40))
    (few, _), (many, _) = cost_of(20), cost_of(40)
    assert many - few == 20


def test_the_room_of_kept_handlers_returns_when_they_go() -> None:
    """A handler that is smaller when it goes, because a turn was undone, takes no room from later ones."""
    app = app_of(Counting)
    task = next(iter(app.topology.tasks.values()))
    tasks = {task.name: task}

    def kept(name: str) -> _Kept:
        handler = Waiting(name, task, None, (task.name, ""), None)
        handler.size = _KEPT_BYTES * 2 // 3
        return _Kept(tasks, b"", b"row", handler, handler.size)

    keeper = KeptHandlers()
    for way in (lambda: [*keeper.clear()], lambda: keeper.take("first", tasks, b"", b"row")):
        first, second = kept("first"), kept("second")
        assert [*keeper.keep(first)] == []
        first.handler.size = 0
        way()
        assert [*keeper.keep(second)] == []
        assert keeper.take("second", tasks, b"", b"row") is second.handler


def test_a_kept_handler_of_another_history_is_not_taken() -> None:
    """Two runtimes have a handler with the same id; each goes on from its own turns."""
    app = app_of(Counting)
    one, other = (LocalRuntime(app, limits=Limits(cascade_steps=5)) for _ in range(2))
    for runtime, number in ((one, 50), (other, 60)):
        runtime.append(numbers, [number], request_id="same")
    are_settled = [False, False]
    while not all(are_settled):
        are_settled = [one.settle(), other.settle()]
    for runtime, number in ((one, 50), (other, 60)):
        [said] = [msgspec.msgpack.decode(data) for atom in runtime.streams["out"] for data in atom]
        assert said == sum(range(number + 1))
        assert waiting_rows(runtime) == []
