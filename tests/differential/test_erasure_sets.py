"""Two applications in one data directory: the persons of one are in arguments, state, streams and tasks of the other."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.base.ids import EntityKey, Lsn
from penstock.cli.main import execute
from penstock.files.key_file import KeyFile
from penstock.files.layout import SUBJECT_KEYS
from penstock.history.backup import Backups
from penstock.journal.atoms import AtomReader, opened_atom
from penstock.model.reply import Reply
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import Certificate
from tests.differential.committed import state_of
from tests.differential.persons import Persons
from tests.differential.test_erasure_faults import files_with, seeds_of
from tests.differential.test_erasure_twins import TOMORROW_US
from tests.market import PLACES
from tests.modules import own_modules
from tests.readable_files import readable_in

KEYS = ("ada", "bob")
ADA, BOB = EntityKey("Reader/ada"), EntityKey("Reader/bob")
LIBRARY = """
from penstock import App, Entity, key

class Reader(Entity, personal=True):
    reader_id: str = key()
    name: str

    def rename(self, name: str) -> str:
        former, self.name = self.name, name
        return former

app = App("library", Reader)
"""
HOTEL = """
from dataclasses import dataclass
from datetime import timedelta

from penstock import App, Emit, Entity, ask, flow, key, portal, registry, send, send_after, stream

@registry.entity("/library/Reader")
class Reader(Entity):
    reader_id: str = key()

    def rename(self, name: str) -> str: ...

class Room(Entity):
    room_id: str = key()
    nights: int = 0
    guest: Reader | None = None

    def book(self, guest: Reader, words: str) -> str:
        self.nights += 1
        self.guest = guest
        send(Room.note, self, guest, words)
        send_after(timedelta(days=1), Room.note, self, guest, words)
        return guest.rename(words)

    def note(self, guest: Reader, words: str) -> None:
        if "fail" in words:
            raise ValueError(words)
        self.nights += 1

@dataclass(frozen=True)
class Arrival:
    guest: Reader
    words: str

arrivals = stream("arrivals", Arrival)
calls = portal("calls", Arrival, Arrival)

def guest_of(arrival: Arrival) -> Reader:
    return arrival.guest

class Album:
    words: list[str] = []

    def on_event(self, arrival: Arrival, out: Emit[Arrival]) -> None:
        self.words.append(arrival.words)
        out(arrival)

class Desk:
    async def on_event(self, arrival: Arrival, out: Emit[Arrival]) -> None:
        if "fail" in arrival.words:
            raise ValueError(arrival.words)
        if "wait" in arrival.words:
            await calls.ask(arrival)
        former = await ask(Reader.rename, arrival.guest, arrival.words)
        out(Arrival(arrival.guest, former))

class Porter:
    def on_event(self, note: str) -> None: ...

    @calls.reply
    async def on_call(self, arrival: Arrival) -> Arrival:
        return Arrival(arrival.guest, await ask(Reader.rename, arrival.guest, arrival.words))

albums = flow("albums", arrivals).key(guest_of).task(Album).sink("seen")
desks = flow("desks", arrivals).task(Desk).sink("formers")
notes = stream("notes", str)
porter = flow("porter", notes).task(Porter).sink("nothing", str)
app = App("hotel", Reader, Room, arrivals, notes, calls, albums, desks, porter)
"""


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Path]:
    """Write the two applications, and return their folder."""
    for name, source in (("town_library", LIBRARY), ("town_hotel", HOTEL)):
        folder = tmp_path / "town" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(source)
    with own_modules(PLACES):
        yield tmp_path / "town"


def words_of(persons: Persons, name: str) -> list[str]:
    """Return the readable words of a stream of the hotel."""
    events = persons.app.stream(name).events
    with closing(DataDirectory(persons.folder).open_journal(persons.app)) as journal:
        atoms = AtomReader(journal).atoms(name, 0)
        opened = [msgspec.msgpack.decode(opened_atom(events, each.events)) for each in atoms]
    return [event["words"] for atom in opened for event in atom]


def use(persons: Persons) -> None:
    """Let Ada and Bob use the hotel in each way; some requests and steps fail, and some wait."""
    hotel: Any = sys.modules["town_hotel"]
    for key, name in (("ada", "Ada Lovelace"), ("bob", "Babbage")):
        reader = hotel.Reader(key)
        persons.send("Reader", key, "create", name=name)
        persons.send("Room", key, "create")
        for words in (f"hello {name}", f"fail {name}"):
            persons.send("Room", key, "book", reader, words)
            persons.run()
            persons.publish("arrivals", hotel.Arrival(reader, words))
            persons.run()
        persons.publish("arrivals", hotel.Arrival(reader, f"wait {name}"))


def replies(persons: Persons, start: Lsn) -> list[Reply]:
    return [persons.reply(Lsn(lsn)) for lsn in range(start, persons.runtime.log.end())]


def settle(persons: Persons) -> None:
    """Process the log, and all that it causes."""
    while persons.run().lsn + 1 < persons.runtime.log.end():
        pass


def test_persons_of_another_application_are_erased(
    town: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file shows the person, the other person goes on, and history, verification and a backup agree."""
    persons = Persons(tmp_path / "data", str(town))
    use(persons)
    data, app = persons.folder, persons.app
    seeds = seeds_of(KeyFile(data / SUBJECT_KEYS).tree(), ADA)
    Backups(tmp_path / "backups").make(data, "town")
    order = persons.order(ADA)
    settle(persons)
    persons.runtime.log.promote(TOMORROW_US)
    settle(persons)
    assert persons.reply(order).value(Certificate).subject == ADA
    assert [each.error for each in replies(persons, order)].count("erased") == 2, "her notes"
    rows = state_of(persons.runtime.journal)
    assert sorted(rows) == [BOB, "Room/ada", "Room/bob", "albums.Album/bob"]
    rooms = {key: app.entities["Room"].decode(key, rows[EntityKey(f"Room/{key}")]) for key in KEYS}
    assert {key: room["nights"] for key, room in rooms.items()} == {"ada": 3, "bob": 4}
    assert words_of(persons, "seen") == [f"{word} Babbage" for word in ("hello", "fail", "wait")]
    assert words_of(persons, "formers") == ["hello Babbage", "wait Babbage"]
    persons.runtime.close()
    assert files_with(tmp_path, seeds) == []
    assert readable_in(data, "Lovelace") + readable_in(tmp_path / "backups", "Lovelace") == []
    for command in (
        ["replay"],
        ["verify"],
        ["trace", "r3"],
        ["tail", "arrivals", "--no-follow", "--from", "earliest"],
    ):
        assert execute([*command, str(town), "--data", str(data)]) == 0, command
    told = capsys.readouterr().out
    for text in ("concern erased persons", "nothing has to be done", "<erased>", "wait Babbage"):
        assert text in told
    assert "Lovelace" not in told
