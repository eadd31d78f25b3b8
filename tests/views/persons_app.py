"""An application whose views show personal data, in each kind of target."""

from dataclasses import dataclass

from penstock import App, Entity, kafka, key, postgres, search, sqlite, stream, view


class Person(Entity, personal=True):
    """A person."""

    name: str = key()
    motto: str = ""


@dataclass
class Note:
    """An event about a person."""

    about: Person
    text: str


notes = stream("notes", Note)
counts = stream("counts", int)
files = view("files", sqlite(personal=True), Person, notes)
index = view("index", search(personal=True), Person, notes)
base = view("base", postgres(personal=True), Person, notes)
log = view("log", kafka(personal=True), Person, notes)
public = view("public", sqlite(), counts)
app = App("people", Person, notes, counts, files, index, base, log, public)
