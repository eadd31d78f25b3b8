"""Generators append the events of a source: each atom once, in time, and with errors that name their place."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import parquet

from penstock import (
    App,
    DefinitionError,
    Emit,
    LocalRuntime,
    UserError,
    flow,
    from_file,
    generator,
    stream,
)
from penstock.runtime.generators.run import GeneratorState
from penstock.testing import Kit

numbers = stream("numbers", int)


@dataclass
class Put:
    item: str
    pieces: int = 1
    since: date | None = None


puts = stream("puts", Put)


class Sum:
    total: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.total += number
        out(self.total)


def only(kit: Kit) -> GeneratorState:
    (state,) = kit.generators()
    return state


def kit_of(*generators: Any) -> Kit:
    return Kit(App("sources", *generators))


def test_events_become_atoms_of_a_size() -> None:
    """A list of events becomes atoms of the size; the last one is shorter, and the workflow takes each."""
    totals = flow("sum", numbers).task(Sum).sink("totals")
    kit = kit_of(generator("count", numbers, range(1, 6), atom_size=2), totals)
    assert kit.generate() == 3
    assert kit.atoms(numbers) == [[1, 2], [3, 4], [5]]
    assert kit.atoms(totals) == [[1, 3], [6, 10], [15]]
    assert only(kit) == GeneratorState("count", "numbers", "finished", 3, 5, "", None, "")  # type: ignore[arg-type]
    assert kit.generate() == 0


def test_source_can_have_whole_atoms() -> None:
    """Without a size, each item of the source is an atom; an append without events publishes nothing."""
    kit = kit_of(generator("atoms", numbers, [[1, 2], [], [3]]))
    assert kit.generate() == 3
    assert kit.atoms(numbers) == [[1, 2], [3]]


def test_source_without_end_gives_so_many_atoms_as_asked() -> None:
    """A function without end is read step by step; without a number, the kit says so."""
    kit = kit_of(generator("count", numbers, itertools.count, atom_size=3))
    assert kit.generate(atoms=2) == 2
    assert kit.atoms(numbers) == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(UserError, match="still more are due"):
        kit.generate()


@pytest.mark.parametrize("pace", [{"every": timedelta(seconds=1)}, {"per_second": 2}])
def test_throttling_keeps_atoms_whole(pace: dict[str, Any]) -> None:
    """An atom comes when it is due, with all of its events."""
    kit = kit_of(generator("count", numbers, range(6), atom_size=2, **pace))
    assert kit.generate() == 1
    assert kit.generate() == 0
    kit.clock.advance(timedelta(milliseconds=999))
    assert kit.generate() == 0
    kit.clock.advance(timedelta(milliseconds=1))
    assert kit.generate() == 1
    kit.clock.advance(timedelta(hours=1))
    assert kit.generate() == 1
    assert kit.atoms(numbers) == [[0, 1], [2, 3], [4, 5]]


def test_generators_take_turns() -> None:
    """The atom that is due first comes first; generators without a pace alternate."""
    letters = stream("letters", str)
    kit = kit_of(
        generator("numbers", numbers, range(3), atom_size=1),
        generator("letters", letters, lambda: iter("abc"), atom_size=1),
    )
    assert [kit.generate(atoms=1) for _ in range(3)] == [1, 1, 1]
    assert kit.atoms(numbers) == [[0], [1]]
    assert kit.atoms(letters) == [["a"]]
    assert kit.generate("letters") == 2
    assert [state.status for state in kit.generators()] == ["running", "finished"]


@pytest.mark.parametrize("known", [1, 2, 3, 7, 8, 20])
@pytest.mark.parametrize("takes_number", [False, True])
def test_restart_goes_on_behind_the_last_atom(known: int, takes_number: bool) -> None:  # noqa: FBT001 -- a case
    """A runtime that knows some atoms gets the others, each once."""

    def events(first: int = 0) -> Iterator[int]:
        yield from range(first, 40)

    def behind(first: int) -> Iterator[int]:
        return events(first)

    app = App("again", generator("count", numbers, behind if takes_number else events, atom_size=2))
    runtime = LocalRuntime(app)
    for number in range(known):
        pair = [2 * number, 2 * number + 1]
        runtime.append("numbers", pair, request_id=f"again/count/{number}")
    while runtime.generate():
        pass
    atoms = [
        [app.topology.streams["numbers"].events.decode(data) for data in atom]
        for atom in runtime.streams["numbers"]
    ]
    assert atoms == [[number, number + 1] for number in range(0, 40, 2)]
    assert runtime.generators()[0].atoms == 20


def test_source_that_changed_is_refused() -> None:
    """A source that gives other events than those on the stream stops its generator."""
    app = App("again", generator("count", numbers, [1, 2, 3], atom_size=2))
    runtime = LocalRuntime(app)
    runtime.append("numbers", [8, 9], request_id="again/count/0")
    assert not runtime.generate()
    (state,) = runtime.generators()
    assert state.status == "failed"
    assert "again/count/0 has another body" in state.reason


class Hostile(BaseException):
    def __str__(self) -> str:
        raise SystemExit(3)


def raising() -> Iterator[int]:
    yield 1
    raise Hostile


def exiting() -> Iterator[int]:
    yield 1
    raise SystemExit


SOURCES = [
    (raising, 1, "generator bad, atom 1: Hostile: (its text raised SystemExit)"),
    (exiting, 1, "generator bad, atom 1: SystemExit"),
    (lambda: 5, 0, "generator bad, atom 0: TypeError: 'int' object is not iterable"),
    (lambda: ["word"], 0, "stream numbers: events[0]: Expected `int`, got `str`"),
    (lambda: [1 << 70], 0, "stream numbers: events[0]: an int has 64 bits"),
]


@pytest.mark.parametrize(("source", "atoms", "reason"), SOURCES)
def test_failing_source_stops_its_generator_alone(source: Any, atoms: int, reason: str) -> None:
    """The generator has failed with a reason, and the others go on."""
    kit = kit_of(
        generator("bad", numbers, source, atom_size=1),
        generator("good", numbers, [7, 8, 9], atom_size=1),
    )
    assert kit.generate(check=False) == atoms + 3
    bad, good = kit.generators()
    assert (bad.status, bad.atoms) == ("failed", atoms)
    assert reason in bad.reason
    assert (good.status, good.atoms) == ("finished", 3)


def test_kit_raises_the_failure_of_a_source() -> None:
    """Without `check=False`, a test sees the exception of the source."""
    kit = kit_of(generator("bad", numbers, raising, atom_size=1))
    with pytest.raises(UserError, match="generator bad, atom 1") as caught:
        kit.generate()
    assert isinstance(caught.value.__cause__, Hostile)


def test_atoms_that_are_no_lists_are_refused() -> None:
    """A source of events without a size is a mistake, which the reason explains."""
    kit = kit_of(generator("bad", stream("words", str), lambda: ["a word"]))
    kit.generate(check=False)
    assert "if the source has events, name atom_size=" in only(kit).reason


PUTS = [Put("tea", 2, date(2026, 5, 1)), Put("cup"), Put("a, b", 3)]


def write_json(path: Path) -> Path:
    path.write_text(
        '{"item": "tea", "pieces": 2, "since": "2026-05-01"}\n\n{"item": "cup"}\n{"item": "a, b", "pieces": 3}\n'
    )
    return path


def write_csv(path: Path) -> Path:
    path.write_text('item,pieces,since\ntea,2,2026-05-01\ncup,,\n"a, b",3,\n')
    return path


def write_parquet(path: Path) -> Path:
    columns = {
        "item": ["tea", "cup", "a, b"],
        "pieces": [2, 1, 3],
        "since": [date(2026, 5, 1), None, None],
    }
    parquet.write_table(arrow.table(columns), path)
    return path


FILES = [(write_json, "puts.jsonl"), (write_csv, "puts.csv"), (write_parquet, "puts.parquet")]


@pytest.mark.parametrize(("write", "name"), FILES)
def test_file_of_each_form(tmp_path: Path, write: Any, name: str) -> None:
    """The rows of a file become events; the state has the place in the file and the share that was read."""
    path = write(tmp_path / name)
    kit = kit_of(generator("file", puts, from_file(path), atom_size=2))
    assert kit.generate(atoms=1) == 1
    assert only(kit).place.startswith(f"{path}, ")
    kit.generate()
    assert kit.atoms(puts) == [PUTS[:2], PUTS[2:]]
    assert only(kit).share == 1.0


MISTAKES = [
    (
        "a.jsonl",
        '{"item": "tea"}\n{"item": "cup", "pieces": "two"}\n',
        "a.jsonl, line 2, field pieces: Expected `int`",
    ),
    ("a.jsonl", '{"item": "tea"}\n{"item": \n', "a.jsonl, line 2: "),
    (
        "a.csv",
        'item,pieces\n"tea\nbag",1\ncup,two\n',
        "a.csv, line 4, field pieces: Expected `int`",
    ),
    (
        "a.csv",
        "item,pice\ntea,1\n",
        "a.csv, line 1: column 'pice' is no field of the events; did you mean pieces?",
    ),
    ("a.csv", "item,pieces\ntea\n", "a.csv, line 2: the row has 1 cells, and the header has 2"),
    ("a.csv", "pieces\n1\n", "a.csv, line 2: Object missing required field `item`"),
    ("a.csv", "item,pieces,pieces\ntea,1,2\n", "a.csv, line 1: 2 columns are named 'pieces'"),
    (
        "a.csv",
        f"item,pieces\ntea,1\ncup,{2**70}\n",
        "a.csv, line 3, field pieces: an int has 64 bits",
    ),
    ("a.jsonl", f'\n{{"item": "tea", "pieces": {2**70}}}', "a.jsonl, line 2, field pieces: "),
    (
        "a.jsonl",
        '{"item": "tea", "Pieces": 1}',
        "a.jsonl, line 1: Object contains unknown field `Pieces`; the fields are item, pieces, since",
    ),
    (
        "a.jsonl",
        '{"item": "tea", "pieces": 1, "pieces": 2}',
        "a.jsonl, line 1: Object contains the field `pieces` twice",
    ),
    ("a.csv", "item\n\udcff\n", "a.csv, line 1: the file cannot be read"),
    ("a.parquet", "no parquet", "a.parquet: the file cannot be read"),
]


@pytest.mark.parametrize(("name", "text", "reason"), MISTAKES)
def test_mistake_in_a_file_names_its_place(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    """The reason has the file, the line and the field, and the atom with the mistake is not appended."""
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    kit = kit_of(generator("file", puts, from_file(str(path)), atom_size=10))
    assert kit.generate(check=False) == 0
    assert only(kit).status == "failed"
    assert f"{tmp_path}/{reason}" in only(kit).reason


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.jsonl", '\ufeff{"item": "tea"}\n'), ("a.csv", "\ufeffitem\ntea\n")],
)
def test_a_byte_order_mark_begins_a_file(tmp_path: Path, name: str, text: str) -> None:
    """Some programs write it; it is no part of the first row."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    kit = kit_of(generator("file", puts, from_file(tmp_path / name), atom_size=10))
    kit.generate()
    assert kit.atoms(puts) == [[Put("tea")]]


def test_columns_of_a_table(tmp_path: Path) -> None:
    """A column that is no field, and one that stands twice, are refused."""
    text = arrow.array(["tea"])
    for columns, reason in [
        (["item", "colour"], "row 1: Object contains unknown field `colour`"),
        (["item", "item"], "2 columns are named 'item'"),
    ]:
        parquet.write_table(arrow.table([text, text], columns), tmp_path / "a.parquet")
        kit = kit_of(generator("file", puts, from_file(tmp_path / "a.parquet"), atom_size=10))
        kit.generate(check=False)
        assert reason in only(kit).reason


def test_missing_file_is_a_failure(tmp_path: Path) -> None:
    """A file that does not exist stops the generator; a runtime that starts later reads it."""
    path = tmp_path / "later.csv"
    app = App("late", generator("file", numbers, from_file(path), atom_size=1))
    assert not LocalRuntime(app).generate()
    path.write_text("number\n4\n")
    kit = Kit(app)
    assert kit.generate() == 1
    assert kit.atoms(numbers) == [[4]]


def test_mistakes_of_declarations_are_named_together() -> None:
    """`App` reports each mistake of a generator, with its place."""
    totals = flow("sum", numbers).task(Sum).sink("totals")
    sources: list[Any] = [
        generator("closed", totals, [1], atom_size=1),
        generator("once", numbers, iter([1]), atom_size=1),
        generator("size", numbers, [1], atom_size=0),
        generator("pace", numbers, [1], atom_size=1, every=timedelta(1), per_second=2),
        generator("negative", numbers, [1], atom_size=1, per_second=-2),
        generator("word", stream("words", str), "abc", atom_size=1),
        generator("form", numbers, from_file("a.xls"), atom_size=1),
        generator("file", numbers, from_file("a.csv")),  # type: ignore[call-overload]
        generator("no name!", numbers, [1], atom_size=1),
        generator("size", numbers, [1], atom_size=1),
    ]
    with pytest.raises(DefinitionError) as caught:
        App("wrong", *sources)
    expected = [
        "generator closed: <Workflow totals> takes no appends",
        "generator once: its source is list_iterator, which can be read once only",
        "generator size: atom_size is the number of events of an atom",
        "generator pace: name every= or per_second=, and not both",
        "generator negative: per_second is a number of events greater than 0",
        "generator word: its source is 'abc'",
        "generator form: from_file('a.xls'): the name of a file of events ends with .jsonl",
        "generator file: from_file('a.csv') has events and no atoms; name atom_size=",
        "'no name!' cannot name a generator",
        "the name size is taken by the generator of",
    ]
    assert len(caught.value.complaints) == len(expected)
    for complaint, part in zip(caught.value.complaints, expected, strict=True):
        assert part in complaint
        assert "test_generators.py:" in complaint


@pytest.mark.parametrize("number", ["9" * 20, "9" * 5_000])
def test_an_id_with_a_number_that_fits_no_row(number: str) -> None:
    """A caller may append under an id as those of a generator, with a number of any length."""
    runtime = LocalRuntime(App("sources", generator("count", numbers, [1, 2], atom_size=1)))
    runtime.append(numbers, [7], request_id=f"sources/count/{number}")
    assert runtime.generate(early=True)
    assert [state.atoms for state in runtime.generators()] == [1]
