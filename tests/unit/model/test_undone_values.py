"""Values that variables hold when a savepoint is undone: they stay parts of their entities, whatever their type."""

from collections import OrderedDict, deque
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Entity, key, readonly, savepoint, transactional
from penstock.testing import Kit


@dataclass
class Line:
    marks: list[int] = field(default_factory=list)
    state: str = ""


@dataclass(slots=True)
class Slotted:
    marks: list[int] = field(default_factory=list)
    state: str = ""


@dataclass(frozen=True, slots=True)
class Frozen:
    marks: list[int] = field(default_factory=list)


class Tupled(NamedTuple):
    marks: list[int]
    state: str = ""


class Struct(msgspec.Struct):
    marks: list[int] = []
    state: str = ""


class Model(pydantic.BaseModel):
    marks: list[int] = []
    state: str = ""


class Shelf(Entity):
    id: str = key()
    n: int = 0
    marks: list[int] = []
    more: list[int] = []
    names: set[str] = set()
    totals: dict[str, int] = {}
    groups: dict[str, list[int]] = {}
    last: deque[int] = field(default_factory=deque)
    lines: list[Line] = []
    tuples: list[Tupled] = []
    slotted: Slotted = field(default_factory=Slotted)
    frozen: Frozen = field(default_factory=Frozen)
    struct: Struct = field(default_factory=Struct)
    model: Model = field(default_factory=Model)

    @readonly
    def look(self) -> int:
        return self.n


def put(it: Any, **values: Any) -> bool:
    """Assign attributes."""
    for name, value in values.items():
        setattr(it, name, value)
    return True


CHANGES: dict[str, Any] = {
    "marks": lambda it, n: it.marks.append(n),
    "replace": lambda it, n: put(it, marks=[n]),
    "alias": lambda it, _: put(it, more=it.marks),
    "names": lambda it, n: it.names.symmetric_difference_update({str(n)}),
    "totals": lambda it, n: it.totals.update({str(n): n}),
    "untotal": lambda it, n: it.totals.pop(str(n), None),
    "groups": lambda it, n: it.groups.setdefault(str(n), []).append(n),
    "regroup": lambda it, n: it.groups.update({str(n): it.marks}),
    "last": lambda it, n: it.last.appendleft(n),
    "unlast": lambda it, _: it.last and it.last.pop(),
    "line": lambda it, n: it.lines.insert(0, Line([n])),
    "turn": lambda it, _: it.lines.reverse(),
    "unline": lambda it, _: it.lines and it.lines.pop(),
    "edit": lambda it, n: it.lines and put(it.lines[0], state=str(n)),
    "into": lambda it, _: it.lines and put(it.lines[0], marks=it.marks),
    "tuple": lambda it, n: it.tuples.append(Tupled([n])),
    "in_tuple": lambda it, n: it.tuples and it.tuples[0].marks.append(n),
    "slotted": lambda it, n: (it.slotted.marks.append(n), put(it.slotted, state=str(n))),
    "frozen": lambda it, n: it.frozen.marks.append(n),
    "struct": lambda it, n: (it.struct.marks.append(n), put(it.struct, state=str(n))),
    "model": lambda it, n: (it.model.marks.append(n), put(it.model, state=str(n))),
    "new_model": lambda it, n: put(it, model=Model(marks=[n])),
    "number": lambda it, n: put(it, n=n),
}

HOLDS: list[Any] = [
    lambda it: it.marks,
    lambda it: it.groups.get("1"),
    lambda it: it.lines[0] if it.lines else None,
    lambda it: it.lines[-1].marks if it.lines else None,
    lambda it: it.lines,
    lambda it: it.tuples[0] if it.tuples else None,
    lambda it: it.slotted,
    lambda it: it.frozen.marks,
    lambda it: it.struct,
    lambda it: it.model,
    lambda it: it.totals,
    lambda it: it.names,
    lambda it: it.last,
    vars,
]


def use(held: Any, n: int) -> None:
    """Change a value that a variable holds."""
    match held:
        case list() if not held or isinstance(held[0], int):
            held.append(n)
        case list():
            held.reverse()
        case set():
            held.symmetric_difference_update({str(n)})
        case deque():
            held.append(n)
        case dict():
            held.update({"n" if "marks" in held else str(n): n})
        case None:
            pass
        case _:
            held.marks.append(n)
            if not isinstance(held, Tupled):
                held.state = str(n)


class Undo(Exception):
    """Raised to leave a savepoint."""


def perform(  # noqa: C901 -- one case for each act
    it: Any, others: Any, held: list[Any], acts: Any, save: Any, look: Any
) -> None:
    """Perform acts on an entity, or on a plain object in its place."""
    for act, *arguments in acts:
        match act:
            case "save":
                inner, undo = arguments
                with suppress(Undo), save():
                    perform(it, others, held, inner, save, look)
                    if undo:
                        raise Undo
            case "hold":
                held.append(HOLDS[arguments[0]](it))
            case "use":
                if held:
                    use(held[arguments[0] % len(held)], arguments[1])
            case "look":
                look(it)
            case "other":
                perform(others(), others, held, arguments[0], save, look)
            case _:
                CHANGES[act](it, *arguments)


@transactional
def play(acts: list[Any]) -> None:
    perform(Shelf("a"), lambda: Shelf("b"), [], acts, savepoint, lambda it: it.look())


app = App("shelves", Shelf, play)


class Plain:
    """The twin of a shelf."""

    def __init__(self) -> None:
        self.n = 0
        self.marks: list[int] = []
        self.more: list[int] = []
        self.names: set[str] = set()
        self.totals: dict[str, int] = {}
        self.groups: dict[str, list[int]] = {}
        self.last: deque[int] = deque()
        self.lines: list[Line] = []
        self.tuples: list[Tupled] = []
        self.slotted, self.frozen, self.struct, self.model = Slotted(), Frozen(), Struct(), Model()


class CopyingSavepoint:
    """The savepoint of the twin: it copies everything, and puts the contents of all copies back into the originals."""

    def __init__(self, roots: list[Plain]) -> None:
        self.roots = roots

    def __enter__(self) -> None:
        self.memo: dict[int, Any] = {}
        self.kept = [vars(root) for root in self.roots]
        self.copies = deepcopy(self.kept, self.memo)
        self.originals = {
            id(copy): it
            for it in self.all(self.kept)
            if (copy := self.memo.get(id(it))) is not None
        }

    def all(self, value: Any) -> Any:
        """Yield a value and what is inside."""
        yield value
        match value:
            case dict():
                inside: Any = value.values()
            case list() | tuple() | set() | deque():
                inside = value
            case Line() | Slotted() | Frozen() | Struct() | Model():
                inside = [value.marks]
            case _:
                inside = []
        for part in inside:
            yield from self.all(part)

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            return
        for copy in [*self.all(self.copies)]:
            original = self.originals.get(id(copy), copy)
            match original:
                case dict():
                    items = {name: self.originals.get(id(it), it) for name, it in copy.items()}
                    original.clear()
                    original.update(items)
                case list():
                    original[:] = [self.originals.get(id(it), it) for it in copy]
                case set() | deque():
                    content = [*copy]
                    original.clear()
                    original.update(content) if isinstance(original, set) else original.extend(
                        content
                    )
                case Line() | Slotted() | Struct() | Model():
                    original.marks = self.originals.get(id(copy.marks), copy.marks)
                    original.state = copy.state
                case _:
                    pass


numbers = st.integers(0, 2)
simple = st.one_of(
    st.tuples(st.sampled_from([*CHANGES]), numbers),
    st.tuples(st.just("hold"), st.integers(0, len(HOLDS) - 1)),
    st.tuples(st.just("use"), st.integers(0, 5), numbers),
    st.tuples(st.just("look")),
)
acts = st.recursive(
    st.lists(simple, max_size=6),
    lambda inner: st.lists(
        simple
        | st.tuples(st.just("save"), inner, st.booleans())
        | st.tuples(st.just("other"), inner),
        max_size=8,
    ),
    max_leaves=8,
)


def shown(it: Any) -> Any:
    """Return the attributes of a shelf or of its twin, in plain types."""
    return msgspec.to_builtins(
        {
            name: value.model_dump() if isinstance(value, Model) else value
            for name, value in it.items()
            if name != "id"
        },
        enc_hook=list,
    )


@settings(max_examples=150, deadline=None)
@given(acts)
def test_undone_block_leaves_variables_attached(program: list[Any]) -> None:
    """Random programs with nested blocks and held values do the same as a twin that copies everything."""
    kit = Kit(app)
    kit.call.Shelf.create("a")
    kit.call.Shelf.create("b")
    twins = [Plain(), Plain()]
    perform(
        twins[0],
        lambda: twins[1],
        [],
        program,
        lambda: CopyingSavepoint(twins),
        lambda _: None,
    )
    kit.call.play(program)
    for name, twin in zip("ab", twins, strict=True):
        now = kit.entity("Shelf", name)
        assert now is not None
        expected = shown(vars(twin))
        expected["names"] = sorted(expected["names"])
        actual = shown(now)
        actual["names"] = sorted(actual["names"])
        assert actual == expected


def run(body: Any) -> Any:
    """Run a function as a transaction on a shelf, and return the shelf."""

    @transactional
    def probe() -> None:
        body(Shelf("a"))

    kit = Kit(App("probe", Shelf, probe))
    kit.call.Shelf.create("a", marks=[1], totals={"x": 1, "y": 2}, lines=[Line([1])])
    kit.call.probe()
    return kit.entity("Shelf", "a")


def undone(change: Any) -> None:
    with suppress(Undo), savepoint():
        change()
        raise Undo


def test_entity_that_the_block_reads_first() -> None:
    """A list that the block has read first is the list of the entity afterwards."""

    def body(shelf: Shelf) -> None:
        held = []

        def first() -> None:
            held.append(shelf.marks)
            shelf.marks.append(2)

        undone(first)
        held[0].append(3)

    assert run(body)["marks"] == [1, 3]


def test_deleted_entity() -> None:
    """A list of an entity that an undone block has deleted is its list again."""

    def body(shelf: Any) -> None:
        marks = shelf.marks
        undone(shelf.delete)
        marks.append(2)

    assert run(body)["marks"] == [1, 2]


def test_loop_goes_on() -> None:
    """A loop over a dictionary of the entity goes on after an undone block has added to it."""

    def body(shelf: Shelf) -> None:
        del shelf.totals["x"]
        shelf.totals["z"] = 3
        for name in shelf.totals:
            undone(lambda name=name: shelf.totals.update({name + "!": 1, name: 9}))
            shelf.totals[name] += 1

    assert run(body)["totals"] == {"y": 3, "z": 4}


def test_subclasses_keep_their_order() -> None:
    """An ordered dictionary has its order again."""

    def body(shelf: Shelf) -> None:
        held = shelf.totals = OrderedDict(a=1, b=2, c=3)
        held.move_to_end("a")

        def change() -> None:
            held.move_to_end("b")
            held.pop("c")

        undone(change)
        held["d"] = 4
        assert [*held] == ["b", "c", "a", "d"]

    assert run(body)["totals"] == {"a": 1, "b": 2, "c": 3, "d": 4}


def test_dictionary_of_a_record_stays() -> None:
    """The dictionary of a record is put back, too: also what was computed and cached in it."""

    def body(shelf: Shelf) -> None:
        line = shelf.lines[0]
        undone(lambda: vars(line).update(cached=1, marks=[]))
        assert "cached" not in vars(line)
        vars(line)["state"] = "x"

    assert run(body)["lines"][0].state == "x"


@pytest.mark.parametrize("depth", [1, 2])
def test_entity_sleeps_in_spite_of_images(depth: int) -> None:
    """An entity whose parts only the images of open blocks hold costs the blocks that do not use it nothing."""

    def body(shelf: Shelf) -> None:
        with savepoint():
            shelf.marks.append(2)
            if depth == 2:
                undone(lambda: shelf.lines[0].marks.append(2))
            with savepoint():
                assert type(shelf) is not Shelf

    assert run(body)["marks"] == [1, 2]
