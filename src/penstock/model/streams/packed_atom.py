"""A packed atom: the encoded events of a large atom as one MessagePack array, as the journal stores them.

Most atoms that a workflow publishes go to the journal alone. So their single events become objects only at their first
use.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast, overload

from penstock.base.encoder import array_elements, array_head
from penstock.model.streams.stream import Atom


class PackedAtom(Sequence[bytes]):
    """The events of an atom; equal to a tuple of them."""

    __slots__ = ("_count", "_events", "data")

    def __init__(self, pieces: Sequence[bytes], count: int) -> None:
        self.data = b"".join((array_head(count), *pieces))
        self._count = count
        self._events: Atom | None = None

    @property
    def events(self) -> Atom:
        """The single events."""
        if self._events is None:
            self._events = array_elements(self.data)
        return self._events

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Atom: ...
    def __getitem__(self, index: Any) -> Any:
        return self.events[index]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.events)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedAtom):
            return self.data == other.data
        return isinstance(other, tuple) and self.events == other

    __hash__ = None  # type: ignore[assignment]  # as that of a list

    def __repr__(self) -> str:
        return repr(self.events)


def plain_atom(events: Sequence[bytes]) -> Atom:
    """Return an atom as a tuple."""
    return events.events if isinstance(events, PackedAtom) else tuple(events)


def packed_atom(pieces: Sequence[bytes], count: int) -> Atom:
    """Return a packed atom under the type of an atom; see `PackedAtom`."""
    return cast("Atom", PackedAtom(pieces, count))
