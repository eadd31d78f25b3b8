"""The rows of an index: sorted entries, in rows of bounded size.

The entries of one value are a B+ tree (Bayer, McCreight, "Organization and maintenance of large ordered indexes", 1972; Comer,
"The ubiquitous B-tree", 1979) whose pages are system rows. Transactions read and write these rows as they read and write
entities, so whoever reads a part of an index, and whoever changes this part, are in conflict: there are no phantoms. A change reads
one page of each level, and writes one page, or some more if it divides a page.

The root has the name of the value; each other page has a number behind it. A leaf is an array of entries. An inner page is an
array of a number and, in turn, the number of a page and the first entry of the next page. The first number of the root is
that of the next new page.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from penstock.base.ids import EntityKey
from penstock.errors import Corrupt
from penstock.native.choice import core

INDEX: Final = "$index"
"""The name of the system rows of indexes; the key has the class and the index, and the value."""

LEAF_ENTRIES: Final = 32
LEAF_BYTES: Final = 4_096
"""A leaf is divided if it has more entries, or more bytes."""

BRANCHES: Final = 32
"""The most pages below an inner page."""

_FILLED: Final = 24
"""The entries of a leaf, and the branches of an inner page, that are built at once: changes find room."""

Read = Callable[[EntityKey], bytes | None]
"""Returns a row of the state; None if it does not exist."""

_Page = list[Any]

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[int | bytes]).decode


class Pages:
    """The pages that a piece of work reads and changes; `changes` returns the rows that are others then."""

    __slots__ = ("_changed", "_former", "_read", "_rows")

    def __init__(self, read: Read) -> None:
        self._read = read
        self._former: dict[EntityKey, bytes | None] = {}
        self._rows: dict[EntityKey, bytes | None] = {}
        self._changed: dict[EntityKey, None] = {}

    def row(self, name: EntityKey) -> bytes | None:
        """Return the row of a page, or None."""
        rows = self._rows
        if name not in rows:
            rows[name] = self._former[name] = self._read(name)
        return rows[name]

    def change_leaf(self, root: EntityKey, entry: bytes, *, adds: bool) -> bool:
        """Change the leaf of an entry by the compiled implementation; return False where Python must do it, or other pages change, too."""
        return core is not None and core.change_leaf(
            self._rows,
            self._former,
            self._changed,
            self._read,
            root,
            entry,
            LEAF_ENTRIES,
            LEAF_BYTES,
            adds,
        )

    def at(self, name: EntityKey) -> _Page | None:
        """Return a page, or None.

        Raises:
            Corrupt: The row is not a page.
        """
        row = self.row(name)
        try:
            return None if row is None else _decode(row)
        except msgspec.MsgspecError as error:
            raise _damaged(name) from error

    def existing(self, name: EntityKey) -> _Page:
        """Return a page that another page names; raises as `at`."""
        page = self.at(name)
        if not page:
            raise _damaged(name)
        return page

    def put(self, name: EntityKey, page: _Page | None) -> None:
        """Note a page that is new or changed; None removes it."""
        self._rows[name] = None if page is None else _encode(page)
        self._changed[name] = None

    def read_rows(self) -> dict[EntityKey, bytes]:
        """Return the rows that were read, and that exist."""
        return {name: row for name, row in self._former.items() if row is not None}

    def changes(self) -> dict[EntityKey, bytes | None]:
        """Return the rows that differ from those that were read."""
        rows, former = self._rows, self._former
        return {name: rows[name] for name in self._changed if rows[name] != former.get(name)}


def _damaged(name: EntityKey) -> Corrupt:
    return Corrupt(f"the index row {name} is damaged; penstock verify looks for the cause")


class SortedEntries:
    """The entries of one value of an index, in order; an entry is there once."""

    def __init__(self, pages: Pages, name: EntityKey) -> None:
        self._pages = pages
        self._name = name

    def insert(self, entry: bytes) -> None:
        """Add an entry; raises `Corrupt` if it is there already."""
        if self._pages.row(self._name) is None:
            self._pages.put(self._name, [entry])
            return
        if self._pages.change_leaf(self._name, entry, adds=True):
            return
        path = self._path(entry)
        name, leaf, _ = path[-1]
        place = bisect_left(leaf, entry)
        if place < len(leaf) and leaf[place] == entry:
            raise _damaged(name)
        leaf.insert(place, entry)
        self._pages.put(name, leaf)
        is_large = len(leaf) > 1 and sum(map(len, leaf)) > LEAF_BYTES
        if is_large or len(leaf) > LEAF_ENTRIES:
            # Most values grow at their end, where a half would always stay empty.
            self._divide(path, len(leaf) - 1 if place == len(leaf) - 1 else len(leaf) // 2)

    def remove(self, entry: bytes) -> None:
        """Remove an entry; raises `Corrupt` if it is not there."""
        if self._pages.change_leaf(self._name, entry, adds=False):
            return
        self._pages.existing(self._name)
        path = self._path(entry)
        name, page, _ = path.pop()
        place = bisect_left(page, entry)
        if place == len(page) or page[place] != entry:
            raise _damaged(name)
        del page[place]
        while True:
            is_empty = not page or (len(page) == 1 and type(page[0]) is int)
            self._pages.put(name, None if is_empty else page)
            if not is_empty or not path:
                break
            name, page, branch = path.pop()
            # The number of a page goes with the border before it; that of the first page with the border behind it.
            begin = max(1, 2 * branch)
            del page[begin : begin + 2]
        self._shorten()

    def ascending(self, begin: bytes = b"") -> Iterator[bytes]:
        """Yield the entries in order, from `begin` on; a page is read when its first entry is due."""
        return self._from(begin) if begin else self._walk(self._name, 1)

    def descending(self) -> Iterator[bytes]:
        """Yield the entries in the opposite order, likewise."""
        return self._walk(self._name, -1)

    def _from(self, begin: bytes) -> Iterator[bytes]:
        if self._pages.row(self._name) is None:
            return
        path = self._path(begin)
        _, leaf, _ = path.pop()
        yield from leaf[bisect_left(leaf, begin) :]
        for _, page, branch in reversed(path):
            for number in page[3 + 2 * branch :: 2]:
                yield from self._walk(self._page_of(number), 1)

    def _walk(self, name: EntityKey, step: int) -> Iterator[bytes]:
        page = self._pages.at(name)
        if not page:
            return
        if type(page[0]) is bytes:
            yield from page[::step]
            return
        for number in page[1::2][::step]:
            yield from self._walk(self._page_of(number), step)

    def _page_of(self, number: int) -> EntityKey:
        return EntityKey(f"{self._name}#{number}")

    def _path(self, entry: bytes) -> list[tuple[EntityKey, _Page, int]]:
        """Return the pages from the root to the leaf of an entry, each with the branch that leads on."""
        path = []
        name, page = self._name, self._pages.existing(self._name)
        while type(page[0]) is int:
            branch = bisect_right(page[2::2], entry)
            path.append((name, page, branch))
            name = self._page_of(page[1 + 2 * branch])
            page = self._pages.existing(name)
        path.append((name, page, 0))
        return path

    def _divide(self, path: list[tuple[EntityKey, _Page, int]], cut: int) -> None:
        """Divide the leaf at the end of a path, and each inner page above it that then has too many branches."""
        name, page, _ = path.pop()
        first, second, border = page[:cut], page[cut:], page[cut]
        root = self._pages.existing(self._name)
        while True:
            if not path:  # the root keeps its name, so both halves get new pages
                number = root[0] if type(root[0]) is int else 1
                if type(first[0]) is int:
                    first[0] = 0
                self._pages.put(self._page_of(number), first)
                self._pages.put(self._page_of(number + 1), second)
                self._pages.put(self._name, [number + 2, number, border, number + 1])
                return
            self._pages.put(name, first)
            number = root[0]
            root[0] += 1
            self._pages.put(self._name, root)
            self._pages.put(self._page_of(number), second)
            name, _, branch = path.pop()
            page = self._pages.existing(name)  # the root has another number now
            page[2 + 2 * branch : 2 + 2 * branch] = [border, number]
            self._pages.put(name, page)
            branches = len(page) // 2
            if branches <= BRANCHES:
                return
            middle = branches - 1 if branch == branches - 2 else branches // 2
            border = page[2 * middle]
            first, second = page[: 2 * middle], [0, *page[2 * middle + 1 :]]

    def _shorten(self) -> None:
        """Let the root take the content of its only page, as long as it has one."""
        root = self._pages.at(self._name)
        while root is not None and type(root[0]) is int and len(root) == 2:
            only = self._page_of(root[1])
            page = self._pages.existing(only)
            self._pages.put(only, None)
            root = [root[0], *page[1:]] if type(page[0]) is int else page
            self._pages.put(self._name, root)


def built(name: EntityKey, entries: Iterable[bytes]) -> Mapping[EntityKey, bytes]:
    """Return the rows of the entries of one value.

    Args:
        entries: All entries, in order.
    """
    level: list[tuple[bytes, _Page]] = []
    leaf: _Page = []
    size = 0
    for entry in entries:
        if leaf and (len(leaf) == _FILLED or size + len(entry) > LEAF_BYTES):
            level.append((leaf[0], leaf))
            leaf, size = [], 0
        leaf.append(entry)
        size += len(entry)
    level.append((leaf[0], leaf))
    rows: dict[EntityKey, bytes] = {}
    number = 1
    while len(level) > 1:
        above: list[tuple[bytes, _Page]] = []
        for begin in range(0, len(level), _FILLED):
            inner: _Page = [0]
            for border, page in level[begin : begin + _FILLED]:
                rows[EntityKey(f"{name}#{number}")] = _encode(page)
                inner += [number] if len(inner) == 1 else [border, number]
                number += 1
            above.append((level[begin][0], inner))
        level = above
    root = level[0][1]
    if type(root[0]) is int:
        root[0] = number
    rows[name] = _encode(root)
    return rows
