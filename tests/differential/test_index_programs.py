"""Random programs of requests, deployments that add and remove indexes, and erasures: outcomes and rows are those of one thread."""

import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.base.ids import EntityKey, Epoch, RequestId
from penstock.base.subject_keys import MemoryKeys
from penstock.deployment.archives import Archives, pack
from penstock.deployment.code_in_force import load_deployed, unpacked
from penstock.deployment.loading import load_app
from penstock.deployment.side_modules import load_aside
from penstock.engine.built_indexes import index_updates
from penstock.files.key_file import KeyFile
from penstock.files.layout import SUBJECT_KEYS
from penstock.journal.deployments import Deployments
from penstock.log.api import Entry
from penstock.model.control import Deploy, DeployedCode, encode_control
from penstock.orders.erasure_order import request_erasure
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import Erasures
from penstock.runtime.local.runtime import LocalRuntime
from tests.differential.committed import answers_of, state_of
from tests.differential.inline import Inline
from tests.differential.programs import drawn

SOURCE = """
from penstock import App, Entity, index, key, transactional, unique, was

class Guest(Entity, personal=True):
    name: str = key()
    phone: str | None = {phone}
    room: int = 0
    {index}

    def move(self, phone: str | None, room: int) -> None:
        self.phone, self.room = phone, room

@transactional
def swap(one: Guest, other: Guest) -> None:
    one.phone, other.phone = other.phone, one.phone

@transactional
def found(phone: str, room: int) -> list[str]:
    {found}

app = App("guests", Guest, swap, found)
"""
WITHOUT = {"phone": "None", "index": "", "found": "return []"}
UNIQUE = {
    "phone": "unique(default=None)",
    "index": "",
    "found": "guest = Guest.by_phone(phone); return [guest.name] if guest else []",
}
BOTH = {
    "phone": "unique(default=None)",
    "index": 'by_room = index("room")',
    "found": "guest = Guest.by_phone(phone); return [each.name for each in Guest.by_room(room)] + [guest.name if guest else '']",
}
OTHER = {
    "phone": "None",
    "index": 'by_room = index("phone", "room")',
    "found": "return [each.name for each in Guest.by_room(phone, room)]",
}
MORE = {**BOTH, "index": BOTH["index"] + "; stars: int = 3"}
RENAMED = {**MORE, "index": BOTH["index"] + '; points: int = was("stars", default=4)'}
VERSIONS = {
    "without": WITHOUT,
    "unique": UNIQUE,
    "both": BOTH,
    "other": OTHER,
    "more": MORE,
    "renamed": RENAMED,
}

Step = tuple[str, str, str, int]
"""What happens, the name of a guest or of a version, a phone and a room."""

guests = st.integers(0, 3).map("g{}".format)
steps: st.SearchStrategy[Step] = st.tuples(
    st.sampled_from(["create", "create", "move", "swap", "delete", "found", "erase", "run"]),
    guests,
    st.sampled_from(["1", "2", "3", ""]),
    st.integers(0, 1),
)
deployments: st.SearchStrategy[Step] = st.tuples(
    st.just("deploy"), st.sampled_from(list(VERSIONS)), st.just(""), st.just(0)
)
REFUSED: list[Step] = [
    ("create", "g0", "1", 0),
    ("create", "g1", "1", 0),
    ("deploy", "both", "", 0),
    ("erase", "g0", "", 0),
    ("deploy", "both", "", 0),
    ("found", "g0", "1", 0),
    ("create", "g0", "1", 1),
    ("erase", "g1", "", 0),
    ("create", "g2", "1", 1),
    ("deploy", "other", "", 0),
    ("found", "g0", "1", 1),
]
"""A value is taken twice until a guest is erased; then it is free again, and a later deployment drops the rule."""


KEPT: list[Step] = [
    ("create", "g0", "1", 0),
    ("deploy", "both", "", 0),
    ("move", "g0", "2", 1),
    ("deploy", "more", "", 0),
    ("create", "g1", "1", 1),
    ("deploy", "renamed", "", 0),
    ("found", "g1", "1", 1),
    ("move", "g0", "3", 0),
    ("deploy", "unique", "", 0),
    ("move", "g1", "2", 0),
]
"""Attributes come and go beside the indexed ones."""


class Hotel:
    """A running application with persons, whose versions have other indexes."""

    def __init__(self, data: Path) -> None:
        self.data = data
        data.mkdir()
        self.codes = {name: self._stored(parts) for name, parts in VERSIONS.items()}
        first = self.codes["without"]
        app = load_app(unpacked(data, first).spec)
        DataDirectory(data).open_journal(app).close()  # which makes the file of keys
        self.tree = KeyFile(data / SUBJECT_KEYS).tree()
        self.inline = Inline(data, 2, unpacked(data, first).spec, app.name)
        Deployments(data / "journal").record(Epoch(0), 0, first, {})
        self.app = load_deployed(data, unpacked(data, first).spec)
        self.number = 0

    def _stored(self, parts: dict[str, str]) -> DeployedCode:
        source = textwrap.dedent(SOURCE).format(**parts)
        archive = Archives(self.data).put(pack({"hotelguests.py": source.encode()}))
        return DeployedCode(archive, "hotelguests", "app", "3", {})

    def append(self, step: Step) -> None:
        """Append the record of a step; `run` processes what waits."""
        what, name, phone, room = step
        guest = self.app.entities["Guest"].cls
        other = guest(f"g{(int(name[-1]) + 1) % 4}") if name[-1].isdigit() else None
        match what:
            case "run":
                self.inline.advance(self.inline.log.end())
            case "deploy":
                self._append(encode_control(Deploy(self.codes[name])), b"", is_control=True)
            case "erase":
                subject = EntityKey(f"Guest/{name}")
                request_erasure(self.inline.log, subject, Erasures(self.data).generation(subject))
            case "create":
                named = {"phone": phone or None, "room": room}
                self._append(*self.app.request("Guest", name, "create", (), named))
            case "move":
                self._append(*self.app.request("Guest", name, "move", (phone or None, room)))
            case "delete":
                self._append(*self.app.request("Guest", name, "delete"))
            case "swap":
                self._append(*self.app.request("", None, "swap", (guest(name), other)))
            case _:
                self._append(*self.app.request("", None, "found", (phone or "0", room)))

    def _append(self, body: bytes, hint: bytes, *, is_control: bool = False) -> None:
        self.number += 1
        entry = Entry(RequestId(f"r{self.number}"), body, hint, 0, is_control=is_control)
        self.inline.log.append([entry])

    def serial(self) -> tuple[LocalRuntime, list[str | None]]:
        """Return one thread that has taken all records with the keys of the beginning, and its errors."""
        keys = MemoryKeys(self.tree)
        codes = {
            code.archive: load_aside(unpacked(self.data, code)).app for code in self.codes.values()
        }
        for app in codes.values():
            app.use_keys(keys)
        serial = LocalRuntime(
            codes[self.codes["without"].archive], secret=self.inline.journal.secret
        )
        log = self.inline.log
        replies = serial.replay(log.read(log.start(), log.end()), codes=codes)
        return serial, [reply.error for reply in replies]


@contextmanager
def hotel() -> Iterator[Hotel]:
    with tempfile.TemporaryDirectory() as folder:
        made = Hotel(Path(folder) / "data")
        with closing(made.inline):
            yield made


@drawn(4)
@given(st.lists(st.one_of(steps, steps, steps, deployments), min_size=6, max_size=20))
@example(REFUSED)
@example(KEPT)
def test_programs_equal_one_thread(program: list[Step]) -> None:
    """Each record has the outcome of one thread, the state is the same, and so are indexes that are made anew from the entities."""
    with hotel() as running:
        for step in program:
            running.append(step)
        running.append(("run", "g0", "", 0))
        state = state_of(running.inline.journal)
        errors = [answer.error for answer in answers_of(running.inline.journal)]
        serial, expected = running.serial()
        assert errors == expected
        assert state == serial.state
        entities = {key: row for key, row in state.items() if not key.startswith("$index/")}
        rebuilt = index_updates(
            serial.app,
            {},
            lambda prefix: [
                item for item in sorted(entities.items()) if item[0].startswith(prefix)
            ],
        )
        assert state == entities | {key: row for key, row in rebuilt.items() if row is not None}
