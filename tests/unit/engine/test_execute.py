"""One request, one transaction, one outcome, however a handler behaves."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App, Entity, key, savepoint, transactional
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Executor, Limits, Outcome
from penstock.engine.failure import Escape
from penstock.model.context import active
from penstock.model.request import cancelled_body, decode_failure, decode_request, is_cancelled
from penstock.model.time_limit import Interrupted
from tests.unit.engine.misbehaviour import EXPECTED, WAYS


class Cell(Entity):
    name: str = key()
    value: int = 0
    text: str = ""

    def add(self, amount: int) -> int:
        self.value += amount
        return self.value

    def move(self, to: "Cell", amount: int) -> int:
        to.add(amount)
        self.value -= amount
        return self.value

    def look_at(self, to: "Cell") -> int:
        return self.value + to.value

    def swallow(self, to: "Cell") -> str:
        try:
            return f"saw {to.value}"
        except BaseException as error:  # noqa: BLE001 -- as in a careless handler
            self.value = -1
            return f"swallowed {type(error).__name__}"

    def swallow_in_savepoint(self, to: "Cell") -> None:
        with savepoint():
            try:
                to.add(1)
            finally:
                self.value = -1
        self.value = -2

    def grow(self, size: int) -> None:
        self.text = "x" * size

    def answer(self, size: int) -> str:
        self.value = 1
        return "x" * size

    def misbehave(self, how: str) -> Any:
        self.value = 99
        return WAYS[how]()

    def same(self) -> int:
        value = self.value
        self.value = value + 1
        self.value = value
        return value


@transactional
def touch(names: list[str]) -> int:
    total = 0
    for name in names:
        total += Cell(name).value
    return total


app = App("cells", Cell, touch)


class Bench:
    """Runs requests against a dictionary, of which some keys are elsewhere."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.state: dict[EntityKey, bytes] = {}
        self.elsewhere: set[EntityKey] = set()
        self.executor = Executor(app, self.read, limits or Limits())
        for name in "ab":
            self.run("Cell", name, "create")

    def read(self, key: EntityKey) -> bytes | None:
        if key in self.elsewhere:
            self.executor.escaped = key
            raise Escape(key)
        return self.state.get(key)

    def try_out(self, entity: str, key: str | None, method: str, *arguments: Any) -> Outcome:
        body, _ = app.request(entity, key, method, arguments)
        return self.executor.run(RequestId("request"), body, 0)

    def run(self, entity: str, key: str | None, method: str, *arguments: Any) -> Outcome:
        outcome = self.try_out(entity, key, method, *arguments)
        for name, data in outcome.writes.items():
            assert data is not None
            self.state[name] = data
        return outcome


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_outcome_tells_reads_in_order_and_writes(bench: Bench) -> None:
    """Accesses come in the order of first access, changes with their new attributes."""
    outcome = bench.try_out("Cell", "a", "move", Cell("b"), 5)
    assert outcome.error is None
    assert msgspec.msgpack.decode(outcome.reply) == -5
    assert outcome.reads == ("Cell/a", "Cell/b")
    assert sorted(outcome.writes) == ["Cell/a", "Cell/b"]


def test_unchanged_entities_are_not_written(bench: Bench) -> None:
    """An entity that ends as it began was read, not written."""
    outcome = bench.try_out("Cell", "a", "same")
    assert (outcome.reads, outcome.writes) == (("Cell/a",), {})


def test_cancelled_request_runs_nothing(bench: Bench) -> None:
    """A cancelled request touches nothing, whatever it calls, and its failure says so."""
    known, _ = app.request("Cell", "a", "add", (5,))
    unknown = known.replace(b"\xa3add", b"\xa3xyz")
    assert decode_request(cancelled_body(unknown)).method == "xyz"
    for body in (known, unknown):
        outcome = bench.executor.run(RequestId("request"), cancelled_body(body), 0)
        assert (outcome.error, outcome.reads, outcome.writes) == ("cancelled", (), {})
        assert decode_failure(outcome.reply).kind == "Cancelled"


@pytest.mark.parametrize("way", WAYS)
def test_misbehaviour_undoes_its_transaction_alone(bench: Bench, way: str) -> None:
    """Every exception of a handler is recorded as a short failure; the next request is unharmed."""
    outcome = bench.run("Cell", "a", "misbehave", way)
    failure = decode_failure(outcome.reply)
    assert (outcome.error, failure.kind) == EXPECTED[way]
    assert failure.code == outcome.error
    assert len(failure.message) <= 2_000
    assert "0x7" not in failure.message
    assert (outcome.reads, outcome.writes) == (("Cell/a",), {})
    assert active() is None
    assert not bench.executor.running
    assert bench.run("Cell", "a", "add", 1).reply == msgspec.msgpack.encode(1)


@pytest.mark.parametrize("way", WAYS)
def test_failures_are_the_same_at_every_run(way: str) -> None:
    """Two runs of a failing request record the same bytes."""
    outcomes = [Bench().try_out("Cell", "a", "misbehave", way) for _ in range(2)]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("method", ["look_at", "swallow", "swallow_in_savepoint"])
def test_escape_cannot_be_swallowed(bench: Bench, method: str) -> None:
    """A transaction that accesses a missing entity escapes, also if its handler catches all."""
    bench.elsewhere.add(EntityKey("Cell/b"))
    with pytest.raises(Escape) as caught:
        bench.try_out("Cell", "a", method, Cell("b"))
    assert caught.value.key == "Cell/b"
    assert "Cell/a" in bench.executor.touched
    assert active() is None
    bench.elsewhere.clear()
    assert bench.run("Cell", "a", "swallow", Cell("b")).error is None


def test_interruption_cannot_be_swallowed(bench: Bench) -> None:
    """A handler that swallows its interruption is undone all the same."""

    def interrupt(key: EntityKey) -> bytes | None:
        if key == "Cell/b":
            bench.executor.interrupted = "ran longer than it may"
            raise Interrupted(bench.executor.interrupted)
        return bench.state.get(key)

    bench.read = interrupt  # type: ignore[method-assign]
    bench.executor = Executor(app, interrupt, Limits())
    outcome = bench.run("Cell", "a", "swallow", Cell("b"))
    assert outcome.error == "limit-exceeded"
    assert decode_failure(outcome.reply).message == "ran longer than it may"
    assert outcome.writes == {}


@pytest.mark.parametrize(
    ("limits", "method", "size", "name"),
    [
        (Limits(reply_bytes=100), "answer", 200, "reply_bytes"),
        (Limits(state_bytes=100), "grow", 200, "state_bytes"),
        (Limits(output_bytes=100), "grow", 200, "output_bytes"),
    ],
)
def test_limits_of_size_name_themselves(limits: Limits, method: str, size: int, name: str) -> None:
    """A result or an entity over its limit aborts and names the setting."""
    bench = Bench(limits)
    assert bench.run("Cell", "a", method, size // 4).error is None
    outcome = bench.run("Cell", "a", method, size)
    assert outcome.error == "limit-exceeded"
    assert name in decode_failure(outcome.reply).message
    assert outcome.writes == {}


def test_limit_of_entities() -> None:
    """A transaction that touches more entities than it may aborts."""
    bench = Bench(Limits(entities=1))
    assert bench.run("", None, "touch", ["a"]).error is None
    outcome = bench.run("", None, "touch", ["a", "b"])
    assert outcome.error == "limit-exceeded"


@given(body=st.binary(max_size=60))
def test_arbitrary_bytes_are_a_failed_request(body: bytes) -> None:
    """A body that is not a request is answered with an error, and changes nothing."""
    bench = Bench()
    outcome = bench.executor.run(RequestId("r"), body, 0)
    assert outcome.error == ("cancelled" if is_cancelled(body) else "request")
    assert (outcome.reads, outcome.writes) == ((), {})


@given(
    entity=st.sampled_from(["", "Cell", "Nope"]),
    key=st.none() | st.text(max_size=3) | st.just("x" * 500),
    method=st.sampled_from(["touch", "add", "create", "exists", "delete", "nope", "__init__"]),
    positional=st.binary(max_size=9) | st.just(b"\x91\x01") | st.just(b"\x90"),
    named=st.binary(max_size=9) | st.just(b"\x80") | st.just(b"\x81\xa5value\x01"),
)
def test_damaged_requests_are_answered(
    entity: str, key: str | None, method: str, positional: bytes, named: bytes
) -> None:
    """A request with arbitrary parts ends in an outcome, because a log takes any bytes."""
    parts = [msgspec.msgpack.encode(one) for one in (entity, key, method)]
    body = b"\x95" + b"".join(parts) + positional + named
    outcome = Bench().executor.run(RequestId("r"), body, 0)
    assert outcome.error is None or decode_failure(outcome.reply).code == outcome.error


def test_key_over_the_limit_is_refused_when_it_runs(bench: Bench) -> None:
    """A key that no store could take is refused, also if a request has it as plain text."""
    body = msgspec.msgpack.encode(["Cell", "x" * 401, "exists", [], {}])
    outcome = bench.executor.run(RequestId("r"), body, 0)
    assert outcome.error == "unencodable"
    assert outcome.reads == ()
