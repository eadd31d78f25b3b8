"""Tasks whose keys are references: state by person is encrypted, and an erasure deletes it."""

from dataclasses import dataclass

import pytest

from penstock import (
    App,
    DefinitionError,
    Emit,
    Entity,
    PerTask,
    clear,
    flow,
    key,
    states,
    stream,
)
from penstock.testing import Kit
from tests.streams.hotel_app import Arrival, arrivals, hotel
from tests.streams.hotel_app import Reader as Guest


class Reader(Entity, personal=True):
    reader_id: str = key()
    name: str = ""


@dataclass(frozen=True)
class Loan:
    reader: Reader
    title: str


loans = stream("loans", Loan)


def reader_of(loan: Loan) -> Reader:
    return loan.reader


def pair_of(loan: Loan) -> tuple[Reader, str]:
    return loan.reader, loan.title


class Shelf:
    titles: list[str] = []
    loans: PerTask[int] = 0

    def on_event(self, loan: Loan, out: Emit[list[str]]) -> None:
        self.loans += 1
        self.titles.append(loan.title)
        if loan.title == "none":
            clear(self)
        out(list(self.titles))

    def on_atom_complete(self, out: Emit[list[str]]) -> None:
        out([f"{reader!r} {len(shelf.titles)} of {self.loans}" for reader, shelf in states(self)])


shelves = flow("shelves", loans).key(reader_of).task(Shelf).sink("titles")
ADA, BOB = Reader("ada"), Reader("bob")


def test_a_person_is_the_key_of_state() -> None:
    """Each person has state of its own, which no other row shows, and which has no row where it is the default."""
    kit = Kit(App("library", Reader, shelves))
    kit.append(loans, [Loan(ADA, "Emma"), Loan(BOB, "Dune"), Loan(ADA, "Persuasion")])
    expected = [["Emma"], ["Dune"], ["Emma", "Persuasion"]]
    counts = ["Reader('ada') 2 of 3", "Reader('bob') 1 of 3"]
    assert kit.atoms(shelves) == [[*expected, counts]]
    assert kit.task("shelves.Shelf", ADA) == {"titles": ["Emma", "Persuasion"], "loans": 3}
    assert all(b"Emma" not in row for row in kit.runtime.state.values())
    kit.append(loans, [Loan(BOB, "none")])
    assert sorted(kit.runtime.state) == ["shelves.Shelf.task/-", "shelves.Shelf/ada"]


def test_an_erasure_deletes_the_state_of_a_person() -> None:
    """The state of others stays, and a person with the same key begins without state."""
    kit = Kit(App("library", Reader, shelves))
    kit.append(loans, [Loan(ADA, "Emma"), Loan(BOB, "Dune")])
    kit.erase("Reader", "ada")
    assert kit.task("shelves.Shelf", ADA) == {"titles": [], "loans": 2}
    kit.append(loans, [Loan(ADA, "Persuasion"), Loan(BOB, "Emma")])
    assert kit.atoms(shelves)[-1][:2] == [["Persuasion"], ["Dune", "Emma"]]


def test_a_part_of_a_key_is_no_reference() -> None:
    """The subject of a row must be known, so a tuple of references is refused."""
    with pytest.raises(DefinitionError, match="or a reference to an entity"):
        App("library", Reader, flow("pairs", loans).key(pair_of).task(Shelf).sink("titles"))


def test_a_person_of_another_application_is_protected() -> None:
    """An interface of a personal class is as personal as the class: for events, as a key, and for an erasure."""
    kit = Kit(hotel, App("library", Reader))
    guests = [Arrival(Guest("ada"), "Lovelace"), Arrival(Guest("bob"), "Babbage")]
    kit.append(arrivals, guests)
    streams = kit.runtime.streams
    assert all(b"Lovelace" not in data for atom in streams["seen"] for data in atom)
    assert all(b"Lovelace" not in row for row in kit.runtime.state.values())
    kit.erase("Reader", "ada")
    assert [[each.words for each in atom] for atom in kit.atoms("seen")] == [["Babbage"]]
    assert sorted(kit.runtime.state) == ["albums.Album/bob"]
