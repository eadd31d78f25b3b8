"""Indexes that are prepared beside the epochs: the rows are those that the epoch of the deployment builds alone, whatever happens meanwhile."""

import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, RequestId
from penstock.base.subject_keys import MemoryKeys
from penstock.deployment import index_build, prepared_indexes
from penstock.deployment.archives import Archives, pack
from penstock.deployment.code_in_force import unpacked
from penstock.deployment.deploy_order import put_in_force
from penstock.deployment.index_build import (
    PREPARED_MIN,
    BuildQuestion,
    build_beside,
    prepare_indexes,
)
from penstock.deployment.prepared_indexes import PREPARE, DeployedRows
from penstock.deployment.side_modules import load_aside
from penstock.engine import built_indexes
from penstock.engine.built_indexes import BUILD, RowsOf, build_in
from penstock.errors import OperationalError, PenstockError, RequestError
from penstock.files.key_file import KeyFile
from penstock.files.layout import SUBJECT_KEYS
from penstock.journal.api import PartKind
from penstock.journal.deployments import Deployments
from penstock.journal.replies import find_reply
from penstock.journal.staged import StagedRows
from penstock.log.api import Log
from penstock.model.control import Deploy, DeployedCode, Prepare, Prepared, encode_control
from penstock.orders.erasure_order import certificates, request_erasure
from penstock.orders.order import Place, append_control
from penstock.process.config import Config
from penstock.process.erasures import Erasures
from penstock.process.question import ChildEnded, ChildOutput
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.spark import stage
from tests.differential.committed import answers_of
from tests.differential.inline import ONLY
from tests.differential.programs import drawn
from tests.differential.simulation import Answer
from tests.differential.test_index_deployments import Pets
from tests.faults.disk import Disk, missing_for_disks

SOURCE = """
from penstock import App, Entity, index, key, transactional, unique

class Pet(Entity):
    name: str = key()
    chip: str | None = None
    age: int = 0
    {indexes}

    def move(self, chip: str | None, age: int) -> None:
        self.chip, self.age = chip, age

class Toy(Entity):
    name: str = key()
    size: int = 0
    {more}

class Owner(Entity, personal=True):
    name: str = key()
    mail: str | None = None
    street: int = 0
    {persons}

@transactional
def fill(first: int, count: int) -> None:
    for number in range(first, first + count):
        Pet.create(f"q{{number:03}}", chip=f"c{{number}}", age=number % 3)
        Toy.create(f"t{{number:03}}", size=number % 2)
        Owner.create(f"o{{number:03}}", mail=f"m{{number}}", street=number % 3)

@transactional
def count(age: int) -> None:
    found = Pet.by_age(age) if hasattr(Pet, "by_age") else []
    Toy.upsert("counted", size=len(found))

app = App("pets", Pet, Toy, Owner, fill, count)
"""
CODES = {
    "plain": {"indexes": "", "more": "", "persons": ""},
    "indexed": {
        "indexes": 'by_chip = unique("chip"); by_age = index("age"); oldest = index(order="age")',
        "more": 'by_size = index("size", order="size")',
        "persons": 'by_mail = unique("mail"); by_street = index("street")',
    },
    "other": {
        "indexes": 'by_age = index("age", order="chip"); by_chip = index("chip"); oldest = index(order="age")',
        "more": 'by_size = index("size")',
        "persons": 'by_mail = index("mail"); by_street = index("street", "mail")',
    },
}

S = TypeVar("S", bound="Shelter")
OWNER = EntityKey("Owner/o000")
Step = tuple[str, int, int, int]
"""What happens, the number of a pet, of a chip, and an age."""

ops: st.SearchStrategy[Step] = st.tuples(
    st.sampled_from(["create", "move", "move", "delete", "toy", "owner"]),
    st.integers(0, 5),
    st.integers(60, 66),
    st.integers(0, 3),
)
events: st.SearchStrategy[Step] = st.tuples(
    st.sampled_from(["lose", "other", "indexed", "rival", "restart", "erase", "erase"]),
    st.just(0),
    st.just(0),
    st.just(0),
)


class Shelter(Pets):
    """A running application whose builds go on step by step, with a part of a program after each step."""

    def __init__(self, data: Path) -> None:
        self.bursts: list[list[Step]] = []
        super().__init__(data)
        self.tree = KeyFile(data / SUBJECT_KEYS).tree()
        for name, parts in CODES.items():
            self.version(name, parts)
        self.call("", None, "fill", first=0, count=60)
        self.answer()

    def version(self, name: str, parts: dict[str, str]) -> DeployedCode:
        source = textwrap.dedent(SOURCE).format(**CODES[name])
        archive = Archives(self.data).put(pack({"shelterpets.py": source.encode()}))
        self.codes[name] = DeployedCode(archive, "shelterpets", "app", "3", {})
        return self.codes[name]

    def happen(self, step: Step) -> None:
        """Let one step of a program happen."""
        what, number, chip, age = step
        name = f"q{number:03}"
        match what:
            case "create":
                self.call("Pet", name, "create", chip=f"c{chip}", age=age)
            case "move":
                self.call("Pet", name, "move", chip=None if chip == 60 else f"c{chip}", age=age)
            case "delete":
                self.call("Pet", name, "delete")
            case "toy" if number:
                self.call("Toy", f"t{number:03}", "upsert", size=age)
            case "toy":
                self.call("", None, "count", age=age)
            case "owner":
                mail = None if chip == 60 else f"m{chip}"
                self.call("Owner", f"o{number:03}", "upsert", mail=mail, street=age)
            case "lose" | "rival" | "restart" | "erase":
                getattr(self, what)()
            case other:
                self.deploy(other)

    def erase(self) -> None:
        """Erase the first owner."""
        self.inline.advance(self.inline.log.end())
        generation = Erasures(self.data).generation(OWNER)
        request_erasure(self.inline.log, OWNER, generation)

    def serial(self) -> LocalRuntime:
        """Return one thread that has taken all records, with the keys of the beginning."""
        self.wait_for_worker()
        codes = {
            code.archive: load_aside(unpacked(self.data, code)).app for code in self.codes.values()
        }
        keys = MemoryKeys(self.tree)
        for app in codes.values():
            app.use_keys(keys)
        first = codes[self.codes["plain"].archive]
        serial = LocalRuntime(first, secret=self.inline.journal.secret)
        log = self.inline.log
        serial.replay(log.read(log.start(), log.end()), codes=codes)
        return serial

    def lose(self) -> None:
        """Lose two files."""
        staged = StagedRows(self.data)
        staged.remove(staged.names()[:2])

    def rival(self) -> None:
        """Let another build begin."""
        body = encode_control(Prepare("rival", ("Pet.by_age",)))
        self._append(body, b"", is_control=True)

    def restart(self) -> None:
        """Let another driver go on, with the code in force."""
        self.settle()
        *_, last = Deployments(self.data / "journal").every()
        self.inline.spec, self.inline.since = unpacked(self.data, last.code).spec, last.since
        self.inline.restart()

    def settle(self) -> None:
        """Process all records, also those that remove rows after a deployment."""
        while (end := self.inline.log.end()) > self.inline.driver.positions[ONLY]:
            self.inline.advance(end)

    def burst(self) -> None:
        for step in self.bursts.pop(0) if self.bursts else ():
            self.happen(step)
        self.inline.advance(self.inline.log.end())

    def build(self) -> Prepared | None:
        """Build the indexes of the version `indexed` in this process; None if that cannot go on."""
        app = self.loaded(self.codes["indexed"])
        question = BuildQuestion(self.inline.config, self.codes["indexed"], (), 1.0)
        try:
            return build_beside(question, app)
        except PenstockError:
            return None

    def deploy_prepared(self, prepared: Prepared | None) -> None:
        body = encode_control(Deploy(self.codes["indexed"], prepared=prepared))
        self._append(body, b"", is_control=True)
        self.deployment = RequestId(f"r{self.number}")

    def deployed(self) -> Answer:
        """Return the answer to the deployment of the build."""
        self.settle()
        answers = answers_of(self.inline.journal)
        return next(each for each in answers if each.request_id == self.deployment)


@contextmanager
def stepped(shelter: Shelter) -> Iterator[list[bool]]:
    """Let small parts of a build be executed in this thread; yields whether each deployment has used its build."""
    used: list[bool] = []
    correct = DeployedRows.corrections

    def execute(_: Any, log: Log, step: Prepare, number: str) -> bool:
        lsn = append_control(log, PREPARE, f"{step.build}-{number}", step)
        shelter.inline.advance(log.end())
        reply = find_reply(shelter.inline.journal, (ONLY, lsn))
        shelter.burst()
        is_more: bool = reply.value(bool)
        return is_more

    def noted(self: DeployedRows, indexes: Any) -> Any:
        made = correct(self, indexes)
        used.append(made is not None)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_build._Build, "_execute", execute)
        patch.setattr(DeployedRows, "corrections", noted)
        patch.setattr(built_indexes, "REMOVED_MAX", 20)
        patch.setattr(stage, "REMOVED_MAX", 20)
        patch.setattr(index_build, "PREPARED_MIN", 1)
        patch.setattr(index_build, "_PIECE_ROWS", 25)
        patch.setattr(index_build, "_FEW", -1)
        patch.setattr(prepared_indexes, "ENTITIES_MAX", 30)
        yield used


@contextmanager
def shelters(kind: Callable[[Path], S]) -> Iterator[tuple[S, list[bool]]]:
    with tempfile.TemporaryDirectory() as folder, stepped_in(kind(Path(folder))) as running:
        yield running


@contextmanager
def stepped_in(shelter: S) -> Iterator[tuple[S, list[bool]]]:
    with stepped(shelter) as used:
        yield shelter, used
    shelter.inline.close()


def compare(shelter: Shelter, *, is_refused: bool = False) -> None:
    """Compare the state with that of one thread, which prepares nothing."""
    if is_refused:
        shelter.deploy("plain")  # a refusal leaves the prepared rows to the next deployment
    shelter.settle()
    assert shelter.state() == shelter.serial().state
    assert BUILD not in shelter.state()


CHANGED: list[list[Step]] = [
    [("move", 0, 61, 3), ("delete", 1, 0, 0)],
    [("create", 1, 62, 0), ("move", 0, 60, 1)],
    [("move", 2, 61, 2), ("toy", 3, 0, 3)],
]


@pytest.mark.turns(
    1,
    *("deployment", "engine", "journal", "model", "orders", "process", "runtime", "state"),
    of="prepared indexes",
)
@drawn(2)
@given(
    st.sampled_from(["plain", "other"]),
    st.lists(st.lists(ops, max_size=4), max_size=12),
    st.lists(ops, max_size=4),
)
@example("plain", CHANGED, [("move", 3, 3, 0), ("move", 4, 64, 0)])
@example("plain", [[]], [("move", 3, 65, 0), ("move", 4, 65, 0)])
@example("other", [*CHANGED, [("toy", 0, 0, 1)]], [("toy", 0, 0, 0)])
def test_prepared_rows_are_those_of_one_epoch(
    former: str, bursts: list[list[Step]], rest: list[Step]
) -> None:
    """Also of entities that change before, between and after the steps, and of indexes that had another definition; lookups find the former rows
    until the deployment. Two entities with one value refuse it."""
    with shelters(Shelter) as (shelter, used):
        if former != "plain":
            shelter.deploy(former)
            shelter.settle()
        shelter.bursts = list(bursts)
        prepared = shelter.build()
        for step in rest:
            shelter.happen(step)
        shelter.deploy_prepared(prepared)
        answer = shelter.deployed().error
        assert answer in (None, "not-unique")
        if prepared is not None:
            assert used == [answer is None]
        compare(shelter, is_refused=answer is not None)


@pytest.mark.turns(
    1,
    *("deployment", "engine", "journal", "model", "orders", "process", "runtime", "state"),
    of="prepared indexes",
)
@drawn(2)
@given(
    st.lists(st.lists(ops | events, max_size=3), min_size=1, max_size=10),
    st.lists(ops | events, max_size=3),
)
@example([[], [("other", 0, 0, 0)]], [])
@example([[], [], [("indexed", 0, 0, 0)]], [])
@example([[], [], [], [("rival", 0, 0, 0)]], [])
@example([[("restart", 0, 0, 0)], [], [("restart", 0, 0, 0)]], [("lose", 0, 0, 0)])
@example([], [("other", 0, 0, 0)])
def test_a_build_is_only_a_help(bursts: list[list[Step]], rest: list[Step]) -> None:
    """Lost files, other deployments, another build and a driver that starts again: the deployment builds the same rows."""
    with shelters(Shelter) as (shelter, _):
        shelter.bursts = list(bursts)
        prepared = shelter.build()
        for step in rest:
            shelter.happen(step)
        shelter.deploy_prepared(prepared)
        answer = shelter.deployed().error
        assert answer in (None, "not-unique")
        compare(shelter, is_refused=answer is not None)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if missing := missing_for_disks():
        pytest.skip(missing)
    with Disk(tmp_path, 64) as mounted:
        yield mounted


class Killed(BaseException):
    """Ends a build where it stands, as a kill does: it removes nothing."""


class DyingShelter(Shelter):
    """Kills the build, or lets another thing happen, after one of its steps.

    Attributes:
        left: The number of steps until then.
        fault: What happens then.
    """

    left = 1_000
    fault = staticmethod(lambda: None)

    def burst(self) -> None:
        self.left -= 1
        self.happen(("move", self.left % 6, 61 + self.left % 6, self.left % 4))
        self.inline.advance(self.inline.log.end())
        if self.left == 0:
            self.fault()

    def kill(self) -> None:
        raise Killed


def steps_of_a_build() -> int:
    """Return the number of steps of an undisturbed build."""
    with shelters(DyingShelter) as (shelter, _):
        assert shelter.build() is not None
        return DyingShelter.left - shelter.left


@pytest.fixture(scope="module")
def all_steps() -> int:
    return steps_of_a_build()


@pytest.mark.parametrize(
    ("then", "share"), [("its-own", 1), ("another", 0.5), ("another", 1), ("a-standby", 1)]
)
def test_a_killed_build_loses_nothing(all_steps: int, then: str, share: float) -> None:
    """The order goes on without it, another order makes the indexes, or a standby takes over first: each has the rows of one thread."""
    with shelters(DyingShelter) as (shelter, used):
        shelter.left = int(
            all_steps * share
        )  # 1: all of its records, and not that of the deployment
        shelter.fault = shelter.kill
        with pytest.raises(Killed):
            shelter.build()
        assert build_in(rows_of(shelter)) is not None
        if then == "a-standby":
            shelter.restart()
        shelter.left = 1_000
        prepared = shelter.build() if then == "another" else None
        shelter.deploy_prepared(prepared)
        assert shelter.deployed().error is None
        assert used == ([True] if then == "another" else [])
        compare(shelter)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_standby_that_takes_over_uses_the_build(all_steps: int, share: float) -> None:
    """A new driver goes on in the middle of a build, which the deployment uses."""
    with shelters(DyingShelter) as (shelter, used):
        shelter.left = int(all_steps * share)
        shelter.fault = shelter.restart
        shelter.deploy_prepared(shelter.build())
        assert shelter.deployed().error is None
        assert used == [True]
        compare(shelter)


def test_of_two_orders_the_later_one_is_prepared(all_steps: int) -> None:
    """The former one gives up at its next step, and removes its files; both deployments have the rows of one thread."""
    with shelters(DyingShelter) as (shelter, used):
        made: list[Prepared | None] = []

        def order() -> None:
            made.append(shelter.build())

        shelter.left = all_steps // 2
        shelter.fault = order
        assert shelter.build() is None
        (prepared,) = made
        assert prepared is not None
        assert {*StagedRows(shelter.data).names()} == {*prepared.files, *prepared.later}
        shelter.deploy_prepared(prepared)
        assert shelter.deployed().error is None
        assert used == [True]
        compare(shelter)


def test_a_full_disk_ends_a_build(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order says so, and nothing is lost: with space again, the deployment has the rows of one thread."""
    put, files = StagedRows.put, []

    def put_on_a_small_disk(self: StagedRows, data: bytes) -> str:
        files.append(data)
        if len(files) == 3:
            disk.fill()
        return put(self, data)

    with stepped_in(Shelter(disk.path)) as (shelter, used):
        monkeypatch.setattr(StagedRows, "put", put_on_a_small_disk)
        app = shelter.loaded(shelter.codes["indexed"])
        question = BuildQuestion(shelter.inline.config, shelter.codes["indexed"], (), 1.0)
        with pytest.raises(OperationalError, match=r"No space left on device"):
            build_beside(question, app)
        assert StagedRows(disk.path).names() == []
        disk.make_space()
        shelter.deploy_prepared(None)
        assert shelter.deployed().error is None
        assert used == []
        compare(shelter)


def rows_of(shelter: Shelter) -> RowsOf:
    state = shelter.state()
    return lambda prefix: [(key, row) for key, row in state.items() if key.startswith(prefix)]


def test_an_erasure_ends_a_build_and_the_next_one_has_no_row_of_the_person() -> None:
    """No change behind the erasure names the person, whose rows are gone soon; the order begins again, and its build is used."""
    with shelters(Shelter) as (shelter, used):
        shelter.bursts = [[]] * 9 + [[("erase", 0, 0, 0)]]
        prepared = shelter.build()
        assert prepared is not None
        (certificate,) = certificates(Place(shelter.inline.config))
        erased = Epoch(certificate.epoch)
        assert prepared.epoch > erased
        shelter.deploy_prepared(prepared)
        assert shelter.deployed().error is None
        assert used == [True]
        compare(shelter)
        assert changed_rows(shelter, BEFORE_FIRST, erased)
        assert not changed_rows(shelter, erased, shelter.inline.driver.epoch)
        assert not [row for row in shelter.state().values() if b"o000" in row]


def changed_rows(shelter: Shelter, after: Epoch, upto: Epoch) -> list[str]:
    """Return the keys of the rows of indexes that some epochs have changed, and that name the first owner."""
    rows = shelter.inline.journal.rows(PartKind.CHANGES, after, upto, ["key", "state"])
    return [
        row["key"]
        for _, table in rows
        for row in table.to_pylist()
        if "Owner.by_" in row["key"] and b"o000" in (row["state"] or b"")
    ]


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ChildEnded(ChildOutput(b"", -9)),
        RequestError("another build has begun"),
    ],
)
def test_an_order_goes_on_without_its_build(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    """The process of the build is killed or late, or may not go on: a line says so, and the epoch builds the rows."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(index_build, "ask_importing", fail)
    code = DeployedCode("a" * 64, "pets", "app", "3.11", {})
    assert prepare_indexes(Place(Config(tmp_path)), 1.0, code, ()) is None
    (line,) = caplog.records
    assert line.message == "indexes are not prepared, so the epoch of the deployment builds them"
    assert line.code == "pets"  # type: ignore[attr-defined]


@pytest.mark.turns(
    1,
    *("deployment", "engine", "journal", "model", "orders", "process", "runtime", "state"),
    of="prepared indexes",
)
def test_a_deployment_prepares_a_large_index() -> None:
    """The order builds it in a process of its own, tells the progress, and leaves no file; requests and the driver go on."""
    with tempfile.TemporaryDirectory() as folder:
        shelter = Shelter(Path(folder))
        for first in range(60, PREPARED_MIN, 5_000):
            shelter.call("", None, "fill", first=first, count=5_000)
        shelter.answer()
        done: list[tuple[int, int]] = []
        place = Place(shelter.inline.config, told=lambda part, parts: done.append((part, parts)))
        with shelter.inline.following():
            result = put_in_force(place, shelter.codes["indexed"], 60.0)
        assert result.number == 2
        assert done[-1][1] == 10
        steps = [
            answer for answer in answers_of(shelter.inline.journal) if PREPARE in answer.request_id
        ]
        assert len(steps) >= 11
        assert not [answer.error for answer in steps if answer.error]
        assert StagedRows(shelter.data).names() == []
        compare(shelter)
        shelter.inline.close()
