"""Indexes come and go with deployments, imports and erasures: in one epoch, over the entities that are there."""

import json
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.base.ids import EntityKey, Epoch, RequestId
from penstock.deployment.archives import Archives, pack
from penstock.deployment.code_check import check_code
from penstock.deployment.code_in_force import load_deployed, spec_to_run, unpacked
from penstock.deployment.deploy_order import store_code
from penstock.deployment.deployment_start import deploy
from penstock.deployment.index_trial import TriedIndex, try_indexes
from penstock.deployment.loading import load_app
from penstock.deployment.side_modules import load_aside
from penstock.engine.built_indexes import index_updates
from penstock.engine.limits import Limits
from penstock.engine.rows import RowsWanted
from penstock.errors import ConfigError, NotUnique, StateUnavailable, Unencodable
from penstock.exchange.import_order import ImportOrder
from penstock.history.code_versions import CodeVersions
from penstock.history.reader import HistoryReader
from penstock.history.replay import replay
from penstock.journal.deployments import Deployments
from penstock.log.api import Entry
from penstock.model.application import App
from penstock.model.call import Call, encoded
from penstock.model.control import Deploy, DeployedCode, encode_control
from penstock.orders.order import Place
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.reads.messages import ReadCall
from penstock.runtime.reads.reader import CallReader
from penstock.testing import Kit
from tests.differential.committed import answers_of, state_of
from tests.differential.inline import Inline
from tests.differential.persons import Persons
from tests.differential.simulation import Answer

SOURCE = """
from penstock import App, Entity, index, key, migrate, transactional, unique, was

class Pet(Entity):
    name: str = key()
    {attributes}

    def rename(self, chip: str) -> None:
        self.chip = chip

{more}
app = App("pets", Pet{members})
"""
PLAIN = {"attributes": 'chip: str = ""; age: int = 0', "more": "", "members": ""}
INDEXED = {
    "attributes": 'chip: str = unique(default=""); age: int = 0; by_age = index(order="age")',
    "more": """
@transactional
def oldest() -> list[str]:
    return [pet.name for pet in Pet.by_age(last=2)]

@transactional
def having(chip: str) -> str | None:
    pet = Pet.by_chip(chip)
    return None if pet is None else pet.name
""",
    "members": ", oldest, having",
}
RENAMED = {
    **INDEXED,
    "attributes": 'chip: str = unique(default=""); years: int = was("age", default=0); by_age = index(order="years")',
}
MIGRATED = {
    **INDEXED,
    "more": INDEXED["more"]
    + """
@migrate(Pet, since=2)
def changed(old):
    return {"chip": old["chip"].upper(), "age": -old["age"], "size": 0}
""",
    "attributes": INDEXED["attributes"] + "; size: int = 0",
    "members": INDEXED["members"] + ", changed",
}


class Pets:
    """A running application, beside a serial runtime that takes the same records."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.codes: dict[str, DeployedCode] = {}
        code = self.version("plain", PLAIN)
        self.inline = Inline(data, 2, unpacked(data, code).spec, "pets")
        Deployments(data / "journal").record(Epoch(0), 0, code, {})
        self.number = 0
        self.app = self.loaded(code)

    def wait_for_worker(self) -> None:
        """Wait until the worker, a thread, has ended its last work: it loads versions, too, and one thread at a time may."""
        self.inline.driver._stores.settle()

    def loaded(self, code: DeployedCode) -> App:
        self.wait_for_worker()
        return load_deployed(self.data, unpacked(self.data, code).spec)

    def version(self, name: str, parts: dict[str, str]) -> DeployedCode:
        """Store the archive of a version."""
        source = textwrap.dedent(SOURCE).format(**parts)
        archive = Archives(self.data).put(pack({"indexpets.py": source.encode()}))
        self.codes[name] = DeployedCode(archive, "indexpets", "app", "3", {})
        return self.codes[name]

    def use(self, name: str) -> None:
        """Let later calls be those of a version that is in force."""
        self.answer()
        self.app = self.loaded(self.codes[name])

    def call(self, entity: str, key: str | None, method: str, **named: Any) -> None:
        self._append(*encoded(self.app, Call(entity, key, method, (), named)))

    def deploy(self, name: str) -> None:
        body = encode_control(Deploy(self.codes[name]))
        self._append(body, b"", is_control=True)

    def _append(self, body: bytes, hint: bytes, *, is_control: bool = False) -> None:
        self.number += 1
        entry = Entry(RequestId(f"r{self.number}"), body, hint, 0, is_control=is_control)
        self.inline.log.append([entry])

    def answer(self) -> Any:
        """Return the last result, or the code of the failure."""
        last = self.last()
        return last.error or json.loads(msgspec.json.encode(msgspec.msgpack.decode(last.data)))

    def last(self) -> Answer:
        self.inline.advance(self.inline.log.end())
        return answers_of(self.inline.journal)[-1]

    def state(self) -> dict[EntityKey, bytes]:
        self.inline.advance(self.inline.log.end())
        return state_of(self.inline.journal)

    def agrees(self) -> bool:
        """Say whether a replay agrees with the journal; the version `indexed` is in force."""
        self.wait_for_worker()
        spec = unpacked(self.data, self.codes["indexed"]).spec
        with (
            HistoryReader(self.data, self.app) as past,
            CodeVersions(past, self.app, spec) as versions,
        ):
            replayed = replay(past, versions, Limits(), past.span(None, None), lambda *_: None)
        return replayed.divergence is None

    def serial(self) -> LocalRuntime:
        """Return one thread that has taken all records."""
        self.wait_for_worker()
        codes = {
            code.archive: load_aside(unpacked(self.data, code)).app for code in self.codes.values()
        }
        first = codes[self.codes["plain"].archive]
        serial = LocalRuntime(first, secret=self.inline.journal.secret)
        log = self.inline.log
        serial.replay(log.read(log.start(), log.end()), codes=codes)
        return serial


@pytest.fixture
def pets(tmp_path: Path) -> Iterator[Pets]:
    pets = Pets(tmp_path)
    for number in range(40):
        pets.call("Pet", f"p{number}", "create", chip=f"c{number}", age=number % 7)
    yield pets
    pets.inline.close()


def test_a_deployment_builds_an_index(pets: Pets) -> None:
    """Its epoch has the rows of all entities, in the same bytes as in one thread; another one removes them."""
    pets.version("indexed", INDEXED)
    pets.deploy("indexed")
    assert pets.answer() is None
    built = pets.state()
    assert sum(key.startswith("$index/Pet.by_chip/") for key in built) == 40
    assert built == pets.serial().state
    pets.use("indexed")
    pets.call("", None, "having", chip="c7")
    assert pets.answer() == "p7"
    pets.call("", None, "oldest")
    assert pets.answer() == ["p34", "p6"]
    pets.call("Pet", "p1", "rename", chip="c7")
    assert pets.answer() == "not-unique"
    pets.deploy("plain")
    assert not [key for key in pets.state() if key.startswith("$index/")]
    pets.call("Pet", "p1", "rename", chip="c7")
    pets.deploy("indexed")
    assert pets.answer() == "not-unique"
    assert b"Pet 'p1' and Pet 'p7' have the same chip, and chip is unique" in last_data(pets)
    assert pets.state() == pets.serial().state
    assert Deployments(pets.data / "journal").indexes_at(Epoch(1_000)) == {}


def test_forbidden_values_are_found_before_the_record(pets: Pets) -> None:
    """The check names each entity that has the value of another one, and a value that no index can have; nothing is appended."""
    code = pets.version("indexed", INDEXED)
    for name, other in (("p1", "c7"), ("p30", "c7"), ("p4", "c5")):
        pets.call("Pet", name, "rename", chip=other)
    before = pets.state()
    with pytest.raises(NotUnique) as refused:
        check_code(pets.data, code)
    rule = "have the same chip, and chip is unique"
    assert str(refused.value).splitlines() == [
        f"Pet 'p1' and Pet 'p30' {rule}",
        f"Pet 'p4' and Pet 'p5' {rule}",
        f"Pet 'p1' and Pet 'p7' {rule}",
        "Nothing was written. Give these entities other values, and deploy again.",
    ]
    pets.call("Pet", "p2", "rename", chip="x" * 500)
    assert pets.answer() is None
    with pytest.raises(Unencodable, match="Pet 'p2': a text of 500 bytes is too large"):
        tried(pets, code)
    pets.call("Pet", "p2", "rename", chip="")
    for name in ("p1", "p30", "p4"):
        pets.call("Pet", name, "rename", chip=name)
    assert pets.state().keys() == before.keys()
    assert tried(pets, code) == [
        TriedIndex(f"Pet.{name} was tried on all 40 stored entities", [], 40)
        for name in ("by_chip", "by_age")
    ]


def test_changed_attributes_build_the_index_again(pets: Pets) -> None:
    """A new name, and values that a function of `@migrate` makes, are those by which entities are found."""
    for name, parts in (("indexed", INDEXED), ("renamed", RENAMED), ("migrated", MIGRATED)):
        pets.version(name, parts)
    pets.deploy("indexed")
    pets.deploy("renamed")
    pets.use("indexed")
    pets.call("", None, "oldest")
    assert pets.answer() == ["p34", "p6"]
    assert pets.state() == pets.serial().state


def test_values_of_a_migration_are_found(pets: Pets) -> None:
    """The rows are former ones, and the index has the present values."""
    pets.version("migrated", MIGRATED)
    pets.deploy("migrated")
    assert pets.answer() is None
    pets.use("migrated")
    pets.call("", None, "having", chip="C7")
    assert pets.answer() == "p7"
    pets.call("", None, "oldest")
    assert pets.answer() == ["p35", "p7"]
    pets.call("Pet", "p7", "rename", chip="new")
    pets.call("", None, "having", chip="C7")
    assert pets.answer() is None
    assert pets.state() == pets.serial().state


def test_a_replay_agrees(pets: Pets) -> None:
    """Over the epoch of a deployment that builds an index, too."""
    pets.version("indexed", INDEXED)
    pets.deploy("indexed")
    pets.use("indexed")
    pets.call("Pet", "p1", "rename", chip="x")
    assert pets.agrees()


def test_an_index_changes_under_its_name(pets: Pets) -> None:
    """The new rows have the other place each time; a replay gives each epoch those of its own deployment, also after the same source has come back."""
    pets.version("indexed", INDEXED)
    for name, by_age in (("ordered", 'index("age", order="chip")'), ("chips", 'index("chip")')):
        attributes = f'chip: str = unique(default=""); age: int = 0; by_age = {by_age}'
        pets.version(name, {**PLAIN, "attributes": attributes})
    places: list[list[str]] = []
    for name in ("indexed", "ordered", "chips", "indexed"):
        pets.deploy(name)
        assert pets.answer() is None
        pets.use(name)
        pets.call("Pet", "p1", "rename", chip=f"x{len(places)}")
        if name == "indexed":
            pets.call("", None, "oldest")
            assert pets.answer() == ["p34", "p6"]
        heads = {key.rpartition("/")[0] for key in pets.state() if key.startswith("$index/")}
        places.append(sorted(head.removeprefix("$index/") for head in heads))
    assert places == [
        ["Pet.by_age", "Pet.by_chip"],
        ["Pet.by_age:2", "Pet.by_chip"],
        ["Pet.by_age", "Pet.by_chip"],
        ["Pet.by_age:2", "Pet.by_chip"],
    ]
    assert pets.state() == pets.serial().state
    assert pets.agrees()


READING = """
from penstock import readonly

@readonly
@transactional
def eldest() -> list[str]:
    return [pet.name for pet in Pet.by_age(last=2)]

@readonly
@transactional
def age(name: str) -> int:
    return Pet(name).age
"""


def asked(reader: CallReader, app: App) -> list[object]:
    calls: tuple[Call[Any], ...] = (
        Call("", None, "eldest", (), {}),
        Call("", None, "age", ("p6",), {}),
    )
    replies: list[object] = []
    for number, call in enumerate(calls):
        try:
            replies.append(
                reader.reply(ReadCall(RequestId(f"q{number}"), encoded(app, call)[0])).value()
            )
        except StateUnavailable as refused:
            replies.append(str(refused))
    return replies


def test_a_reader_uses_no_index_of_other_code(pets: Pets) -> None:
    """Its lookups are refused until it has the code in force, and before that is in force: their rows are those of another index.

    Other calls go on.
    """
    for name, index, lookup in (
        ("former", "index(order='age')", "by_age(last=2)"),
        ("present", "index('age', order='chip')", "by_age(6, last=2)"),
    ):
        attributes = f"chip: str = ''; age: int = 0; by_age = {index}"
        parts = {"attributes": attributes, "members": ", eldest, age"}
        pets.version(name, {**parts, "more": READING.replace("by_age(last=2)", lookup)})
    pets.last()
    former = pets.loaded(pets.codes["former"])
    with closing(CallReader(former, pets.data, Limits())) as reader:
        refused, found = asked(reader, former)
        assert "index Pet.by_age is not that of the code in force" in str(refused)
        assert found == 6
        pets.deploy("former")
        pets.use("former")
        assert asked(reader, former) == [["p34", "p6"], 6]
        pets.deploy("present")
        assert pets.answer() is None
        refused, found = asked(reader, former)
        assert "index Pet.by_age is not that of the code in force" in str(refused)
        assert found == 6
    pets.use("present")
    page = ReadCall(RequestId("page"), b"", rows=RowsWanted("Pet", where={"age": "6"}))
    with closing(CallReader(pets.app, pets.data, Limits())) as reader:
        assert asked(reader, pets.app) == [["p34", "p6"], 6]
        assert reader.reply(page).error is None
        pets.deploy("former")
        assert pets.answer() is None
        with pytest.raises(StateUnavailable, match=r"Pet\.by_age is not that of the code"):
            reader.reply(page)


def test_an_import_changes_indexes(pets: Pets, tmp_path: Path) -> None:
    """Imported entities are found; a value that is taken refuses all rows, and names both entities."""
    pets.version("indexed", INDEXED)
    pets.deploy("indexed")
    pets.use("indexed")
    answer = imported(pets, tmp_path, [("q1", "d1", 50), ("p3", "d3", 51)], existing="replace")
    assert (answer["created"], answer["replaced"]) == (1, 1)
    pets.call("", None, "having", chip="d3")
    assert pets.answer() == "p3"
    pets.call("", None, "oldest")
    assert pets.answer() == ["q1", "p3"]
    assert imported(pets, tmp_path, [("q2", "d2", 1), ("q3", "c9", 1)]) == "request"
    assert b"Pet 'q3' cannot have chip 'c9': Pet 'p9' has it" in last_data(pets)
    assert imported(pets, tmp_path, [("q2", "d2", 1), ("q3", "d2", 1)]) == "request"
    again = built(pets.app, pets.state())
    assert {key: pets.state()[key] for key in again if "by_chip" in key} == {
        key: row for key, row in again.items() if "by_chip" in key
    }


PATIENTS = """
from penstock import App, Entity, index, key, readonly, transactional, unique

class Patient(Entity, personal=True):
    number: str = key()
    email: str = unique()
    ward: str = ""
    by_ward = index("ward")

@readonly
@transactional
def of_ward(ward: str) -> list[str]:
    return [each.number for each in Patient.by_ward(ward)]

app = App("patients", Patient, of_ward)
"""


def test_an_erased_person_leaves_the_indexes(tmp_path: Path) -> None:
    """Driver and serial runtime remove the same rows; no row has a value of a person, and the value is free."""
    source = tmp_path / "patients.py"
    source.write_text(PATIENTS)
    persons = Persons(tmp_path / "data", str(source))
    for number in ("p1", "p2"):
        persons.append("Patient", number, "create", email=f"{number}@x", ward="blue")
    persons.append("Patient", "p3", "create", email="p1@x")
    assert persons.run().error == "not-unique"
    before = state_of(persons.runtime.journal)
    assert len([key for key in before if key.startswith("$index/")]) == 3
    assert not any(value.hex() in key for key in before for value in (b"p1@x", b"blue"))
    persons.order(EntityKey("Patient/p1"))
    persons.run()
    after = state_of(persons.runtime.journal)
    assert len([key for key in after if key.startswith("$index/")]) == 2
    assert persons.send("Patient", "p3", "create", email="p1@x", ward="blue").value() == "p3"
    body, hint = persons.app.request("", None, "of_ward", ("blue",))
    persons.runtime.log.append([Entry(RequestId("q"), body, hint, 0)])
    assert persons.run().value() == ["p2", "p3"]
    persons.runtime.close()


def test_an_erased_person_leaves_the_indexes_of_a_kit(tmp_path: Path) -> None:
    """As on a driver."""
    source = tmp_path / "kitpatients.py"
    source.write_text(PATIENTS)
    kit = Kit(load_app(str(source)))
    kit.call.Patient.create("p1", email="p1@x", ward="blue")
    kit.call.Patient.create("p2", email="p2@x", ward="blue")
    kit.erase("Patient", "p1")
    assert kit.call.of_ward("blue") == ["p2"]
    kit.call.Patient.create("p3", email="p1@x")
    assert len([key for key in kit.runtime.state if key.startswith("$index/")]) == 4


def test_a_start_with_another_index_is_refused(pets: Pets) -> None:
    """Only the record of a deployment builds an index; if it waits, the start goes on with the code in force."""
    pets.state()
    folder = pets.data / "source"
    folder.mkdir()
    spec = str(folder / "otherpets.py")
    Path(spec).write_text(textwrap.dedent(SOURCE).format(**INDEXED))
    app = load_app(spec)
    with pytest.raises(
        ConfigError, match=r"Pet.by_age differs .* first give the order penstock deploy"
    ):
        deploy(pets.data, spec, app, pets.inline.journal)
    assert spec_to_run(pets.data, spec) == spec
    pets.codes["indexed"] = store_code(pets.data, spec)
    pets.deploy("indexed")
    assert spec_to_run(pets.data, spec) == unpacked(pets.data, pets.codes["plain"]).spec
    assert pets.answer() is None
    assert deploy(pets.data, spec, app, pets.inline.journal) is None


def tried(pets: Pets, code: DeployedCode) -> list[TriedIndex]:
    """Try the indexes of code in this process."""
    app = pets.loaded(code)
    with closing(DataDirectory(pets.data).open_journal(app)) as journal:
        return try_indexes(DataDirectory(pets.data), app, journal)


def imported(pets: Pets, folder: Path, rows: list[tuple[str, str, int]], **options: Any) -> Any:
    """Import pets, and return the result, or the code of the refusal."""
    source = folder / "pets.jsonl"
    lines = [json.dumps({"name": name, "chip": chip, "age": age}) for name, chip, age in rows]
    source.write_text("\n".join(lines))
    place = Place(Config(pets.data), told=lambda _done, _all: None)
    ImportOrder("Pet", str(source), **options).carry_out(place, 0.0)
    return pets.answer()


def built(app: App, state: dict[EntityKey, bytes]) -> dict[EntityKey, bytes | None]:
    """Return the rows of all indexes of an application over a state."""
    return index_updates(
        app,
        {},
        lambda prefix: [(key, state[key]) for key in sorted(state) if key.startswith(prefix)],
    )


def last_data(pets: Pets) -> bytes:
    return pets.last().data
