"""The test kit: a clock that stands still, counted request ids, and a look at the state."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest

import penstock
from penstock import App, Entity, Principal, entity, key, transactional
from penstock.errors import ConfigError, OutsideTransaction, RecordTooLarge, Unencodable
from penstock.model.call import Call
from penstock.testing.kit import START, Kit


@dataclass
class Note:
    about: "Machine"
    text: str = ""


@entity
class Machine:
    name: str = key()
    count: int = 0
    notes: list[Note] = []
    seen: dict["Machine", set["Machine"]] = {}

    def step(self, by: int = 1) -> int:
        self.count += by
        return self.count

    def note_later(self) -> None:
        penstock.send(self.note("called at once"))  # type: ignore[func-returns-value, arg-type]

    def note(self, text: str) -> None:
        self.notes.append(Note(self, text))
        self.seen[self] = {self}


@transactional
def surroundings(count: int) -> list[Any]:
    penstock.random().random()
    return [
        penstock.request_id(),
        penstock.now(),
        [penstock.random().randrange(1000) for _ in range(count)],
        [penstock.uuid() for _ in range(count)],
    ]


@transactional
def sender() -> str:
    return penstock.principal().id


class Bell(Entity):
    name: str = key()
    rung_by: list[str] = []

    def ring(self) -> str:
        self.rung_by.append(penstock.principal().id)
        penstock.send(Bell(self.name).echo)
        return sender()

    def echo(self) -> None:
        self.rung_by.append(penstock.principal().id)


app = App("kit", Machine, surroundings, sender, Bell)


@pytest.fixture
def kit() -> Kit:
    kit = Kit(app)
    kit.call.Machine.create("a")
    return kit


def count_of(kit: Kit, name: str) -> int:
    found = kit.entity("Machine", name)
    assert found is not None
    return int(found["count"])


def test_entities_are_shown_as_plain_values(kit: Kit) -> None:
    """References become keys at any depth; a missing entity is None; unknown classes are named."""
    kit.call.Machine("a").note("x")
    found = kit.entity("Machine", "a")
    assert found is not None
    assert found["seen"] == {"a": {"a"}}
    assert (found["notes"][0].about, found["notes"][0].text) == ("a", "x")
    assert kit.entity("Machine", "b") is None
    assert list(kit.entities("Machine")) == ["a"]
    with pytest.raises(penstock.RequestError, match="'Engine'; there are Machine"):
        kit.entity("Engine", "a")


def test_clock_wants_a_time_zone(kit: Kit) -> None:
    """A time without a zone is refused, because it names no instant."""
    with pytest.raises(ConfigError, match="has no time zone"):
        kit.clock.set(datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None))


def test_mistakes_of_a_test_are_refused_with_the_remedy() -> None:
    """A clock that moves by a number, a fake of an unknown effect, and a method that was called in place of sent."""
    kit = Kit(app)
    wrong: Any = 60
    with pytest.raises(ConfigError, match=r"not by 60; write timedelta\(seconds=…\)"):
        kit.clock.advance(wrong)
    with pytest.raises(
        ConfigError, match="effects that the App names; there is no effect 'charge'"
    ):
        Kit(app, effects={"charge": lambda: None})  # type: ignore[dict-item]
    kit.call.Machine.create("m")
    with pytest.raises(penstock.Aborted, match="not NoneType: write send"):
        kit.call.Machine("m").note_later()


def test_result_of_another_type_is_told_as_done() -> None:
    """The error about a result that does not fit its annotation says that the changes of the request stay."""

    class Meter(Entity):
        name: str = key()
        count: int = 0

        def step(self) -> str:
            self.count += 1
            return cast("str", self.count)

    kit = Kit(App("meters", Meter))
    kit.call(Meter.create, "m")
    message = "the request is done, but its result does not fit the annotation of its handler: Expected `str`, got `int`"
    with pytest.raises(Unencodable, match=message):
        kit.call(Meter("m").step)
    assert kit.entity(Meter, "m") == kit.entity(Meter, Meter("m")) == {"name": "m", "count": 1}


@transactional
def told(
    price: Decimal | None = None,
    at: datetime | None = None,
    until: time | None = None,
    prices: list[Decimal] | None = None,
) -> str:
    return str((price, at and at.hour, until, prices))


@pytest.mark.parametrize(
    ("name", "value", "outcome"),
    [
        ("price", "NaN", "is not equal to itself"),
        ("prices", ["1", "NaN"], "is not equal to itself"),
        ("at", "2026-01-01T12:00:00", "has no time zone"),
        ("until", "10:00:00+01:00", "is a time of day with a time zone"),
        ("at", "2026-01-01T12:00:00+02:00", "(None, 10, None, None)"),
        ("price", "1.50", "(Decimal('1.50'), None, None, None)"),
    ],
)
def test_texts_are_the_values_that_a_gateway_makes_of_them(
    name: str, value: Any, outcome: str
) -> None:
    """A text for a number or a time is refused where the value itself is, and an instant is in UTC."""
    kit = Kit(App("telling", told))
    try:
        found = kit.call.told(**{name: value})
    except penstock.RequestError as error:
        found = str(error)
    assert outcome in found


def test_context_is_known_inside_only() -> None:
    """`now`, `random`, `uuid` and `request_id` exist in transactions alone."""
    for ask in [penstock.now, penstock.random, penstock.uuid, penstock.request_id]:
        with pytest.raises(OutsideTransaction):
            ask()


def test_surroundings_repeat_and_differ() -> None:
    """`now`, `random` and `uuid` depend on the request alone, and `now` on the clock."""
    first, second = Kit(app), Kit(app)
    assert (
        first.submit(Call("", None, "surroundings", (3,))).data
        == second.submit(Call("", None, "surroundings", (3,))).data
    )
    request_id, time, numbers, ids = first.call.surroundings(3)
    assert (request_id, time) == ("local-1", START)
    assert len({*ids}) == 3
    again = second.submit(Call("", None, "surroundings", (3,), request_id="other")).value()
    assert again[2] != numbers
    assert again[3] != ids


def test_the_clock_moves_when_told() -> None:
    """The kit's clock stands still until it is advanced or set."""
    kit = Kit(app)
    times = [kit.call.surroundings(0)[1]]
    kit.clock.advance(timedelta(hours=1))
    times.append(kit.call.surroundings(0)[1])
    kit.clock.set(datetime(2000, 1, 1, microsecond=1, tzinfo=UTC))
    times.append(kit.call.surroundings(0)[1])
    assert times == [
        START,
        START + timedelta(hours=1),
        datetime(2000, 1, 1, microsecond=1, tzinfo=UTC),
    ]


def test_same_request_id_same_answer(kit: Kit) -> None:
    """A repeated request id gets the recorded reply and has no second effect."""
    first = kit.submit(Call("Machine", "a", "step", request_id="one"))
    assert kit.submit(Call("Machine", "a", "step", request_id="one")) == first
    assert count_of(kit, "a") == 1
    with pytest.raises(penstock.UserError, match="another body"):
        kit.submit(Call("Machine", "a", "step", (2,), request_id="one"))


def test_digest_tells_states_apart(kit: Kit) -> None:
    """The digest changes with the state, and comes back with it."""
    before = kit.digest()
    kit.call.Machine("a").step()
    assert kit.digest() != before
    kit.call.Machine("a").step(-1)
    assert kit.digest() == before


def test_a_request_has_the_principal_of_its_caller(kit: Kit) -> None:
    """A handler and the methods that it calls see the sender; a request that the application sends has none."""
    kit.call.Bell.create("b")
    assert kit.call.sender() == ""
    assert kit.acting_as("ada").Bell("b").ring() == "ada"
    assert kit.acting_as("@bob%20b").Bell("b").ring(request_id="r1") == "@bob%20b"
    assert (
        kit.acting_as("ada").Bell("b").ring(request_id="r1") == "ada"
    )  # the id of another principal
    ada = kit.acting_as(Principal("ada", frozenset({"read"})))
    assert ada.Bell("b").ring(request_id="r1") == "ada", "the same request, with other rights"
    bell = kit.entity("Bell", "b")
    assert bell is not None
    assert bell["rung_by"] == ["ada", "", "@bob%20b", "", "ada", ""]


def test_a_request_that_the_log_refuses_is_refused_here_too(kit: Kit) -> None:
    """A request beyond `record_bytes_max` changes nothing and is refused as by a log, with the name of the setting."""
    with pytest.raises(RecordTooLarge, match=r"'mine' takes .* record_bytes_max = 1048576"):
        kit.submit(Call("Machine", "a", "note", ("x" * (1 << 20),), request_id="mine"))
    entity = kit.entity("Machine", "a")
    assert entity is not None
    assert entity["notes"] == []
    larger = Kit(app, record_bytes_max=2 << 20)
    larger.call.Machine.create("a")
    larger.call.Machine("a").note("x" * (1 << 20))
    with pytest.raises(RecordTooLarge):
        Kit(app, record_bytes_max=10).call.Machine.create("a")
