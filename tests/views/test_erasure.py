"""Erasures reach the views that show personal data."""

import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from penstock import App, Entity, key, sqlite, stream, view
from penstock.base.ids import Epoch, LogPartition, Lsn
from penstock.files.key_file import KeyFile
from penstock.files.layout import SUBJECT_KEYS
from penstock.journal.api import EVENTS, Commit, PartKind
from penstock.journal.atoms import encode_atom
from penstock.journal.delta import DeltaJournal
from penstock.process.data_directory import DataDirectory
from penstock.process.view_files import folder_of
from penstock.views.applier import Applier
from penstock.views.targets import open_target
from tests.waiting import wait_for


class Person(Entity, personal=True):
    name: str = key()


@dataclass
class Note:
    about: Person
    text: str


notes = stream("notes", Note)
files = view("files", sqlite(personal=True), notes)
app = App("people", Person, notes, files)


def publish(journal: DeltaJournal, *given: Note) -> None:
    """Commit an epoch with one atom of encrypted events."""
    row = {
        "epoch": 0,
        "stream": "notes",
        "atom": 0,
        "partition": 0,
        "lsn": 0,
        "time_us": 1,
        "count": len(given),
        "events": encode_atom([notes.events.encode(note) for note in given]),
    }
    part = journal.write(PartKind.EVENTS, pa.Table.from_pylist([row], EVENTS), "events-0")
    journal.commit(Commit(Epoch(0), {LogPartition(0): Lsn(1)}, (part,), 1, {"notes": 1}))


def shown(path: Path) -> list[tuple[object, ...]]:
    """Return the events that the view shows; none before its tables exist."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        try:
            return connection.execute('SELECT _place, about, "text" FROM notes').fetchall()
        except sqlite3.OperationalError:
            return []


def test_events_about_an_erased_person_leave_the_view(tmp_path: Path) -> None:
    """Events of a stream name persons; when one is erased, the tables are made again without them."""
    folder = folder_of(tmp_path, "files")
    folder.mkdir(parents=True)
    stop = threading.Event()
    with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
        journal.deploy()
        publish(journal, Note(Person("ann"), "likes tea"), Note(Person("bob"), "likes rice"))
        feeding = Applier(
            app, tmp_path, "files", journal, partial(open_target, url="", folder=folder)
        )
        thread = threading.Thread(target=feeding.run, args=(stop,))
        thread.start()
        try:
            path = folder / "view.sqlite"
            wait_for(lambda: len(shown(path)) == 2, "both events")
            KeyFile(tmp_path / SUBJECT_KEYS).destroy("Person/ann", 0)
            wait_for(lambda: shown(path) == [(1, "bob", "likes rice")], "the erasure")
        finally:
            stop.set()
            thread.join()
