"""The rows of an index hold the entries in order, whatever came and went, in rows of bounded size."""

from bisect import insort
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import EntityKey
from penstock.errors import Corrupt
from penstock.model.index_rows import BRANCHES, LEAF_ENTRIES, Pages, SortedEntries, built

NAME = EntityKey("$index/Task.by_owner/61")
State = dict[EntityKey, bytes]


def applied(state: State, pages: Pages) -> None:
    for name, row in pages.changes().items():
        if row is None:
            del state[name]
        else:
            state[name] = row


def entries_in(state: State) -> list[bytes]:
    ascending = list(SortedEntries(Pages(state.get), NAME).ascending())
    assert list(SortedEntries(Pages(state.get), NAME).descending()) == ascending[::-1]
    return ascending


def entry(number: int) -> bytes:
    return b"%05d" % number


@settings(max_examples=15)
@given(st.integers(0, 1 << 32), st.sampled_from(["random", "rising", "falling"]))
def test_entries_stay_in_order(seed: int, way: str) -> None:
    """As a sorted list would have them, while entries come and go; in the end no row is left."""
    random = Random(seed)
    state: State = {}
    expected: list[bytes] = []
    for step in range(150):
        pages = Pages(state.get)
        tree = SortedEntries(pages, NAME)
        for number in range(random.randrange(30)):
            place = step * 30 + number
            new = {"random": random.randrange(10**5), "rising": place, "falling": 10**5 - place - 1}
            if expected and random.random() < (0.3 if step < 75 else 0.9):
                tree.remove(expected.pop(random.randrange(len(expected))))
            elif entry(new[way]) not in expected:
                tree.insert(entry(new[way]))
                insort(expected, entry(new[way]))
        applied(state, pages)
    assert entries_in(state) == expected
    pages = Pages(state.get)
    for each in expected:
        SortedEntries(pages, NAME).remove(each)
    applied(state, pages)
    assert state == {}


def test_a_change_of_many_entries_touches_few_rows() -> None:
    """Of 50,000 entries: a page of each level is read, and one is written."""
    state = dict(built(NAME, map(entry, range(0, 100_000, 2))))
    read: list[EntityKey] = []

    def reader(name: EntityKey) -> bytes | None:
        read.append(name)
        return state.get(name)

    pages = Pages(reader)
    SortedEntries(pages, NAME).remove(entry(50_000))
    assert len(read) == 4
    assert len(pages.changes()) == 1
    pages = Pages(reader)
    SortedEntries(pages, NAME).insert(entry(50_001))
    assert len(pages.changes()) == 1
    assert max(map(len, state.values())) < 1_000
    read.clear()
    first = SortedEntries(Pages(reader), NAME).ascending()
    assert [next(first) for _ in range(LEAF_ENTRIES)][-1] == entry(2 * LEAF_ENTRIES - 2)
    assert len(read) == 5


@pytest.mark.parametrize("count", [1, 32, 33, 32 * BRANCHES, 32 * BRANCHES + 1, 15_000])
def test_rows_can_be_built_at_once(count: int) -> None:
    """They have the entries, and take changes as rows that grew do."""
    state = dict(built(NAME, map(entry, range(count))))
    assert entries_in(state) == [*map(entry, range(count))]
    pages = Pages(state.get)
    for number in range(0, count, 7):
        SortedEntries(pages, NAME).remove(entry(number))
    applied(state, pages)
    pages = Pages(state.get)
    for number in range(0, count, 7):
        SortedEntries(pages, NAME).insert(entry(number))
    applied(state, pages)
    assert entries_in(state) == [*map(entry, range(count))]


def test_long_entries_divide_a_page_earlier() -> None:
    """The bytes of a page are bounded, too."""
    state: State = {}
    pages = Pages(state.get)
    for number in range(40):
        SortedEntries(pages, NAME).insert(entry(number) * 100)
    applied(state, pages)
    assert max(map(len, state.values())) < 5_000
    assert len(entries_in(state)) == 40


def test_damage_is_an_error() -> None:
    """An entry that is missing, or there already, or a row that is no page, is damage and no answer."""
    state = dict(built(NAME, [b"a", b"b"]))
    with pytest.raises(Corrupt, match="by_owner/61 is damaged"):
        SortedEntries(Pages(state.get), NAME).remove(b"c")
    with pytest.raises(Corrupt, match="is damaged"):
        SortedEntries(Pages(state.get), NAME).insert(b"a")
    state[NAME] = msgspec.msgpack.encode("no page")
    with pytest.raises(Corrupt, match="is damaged"):
        list(SortedEntries(Pages(state.get), NAME).ascending())
