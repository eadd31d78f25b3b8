"""The text of a query before its clauses were cut out, for the places of errors in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Cut(NamedTuple):
    """A replaced range of a text: its start and its end, and the length of its replacement, all in bytes of UTF-8."""

    start: int
    end: int
    length: int


@dataclass(frozen=True, slots=True)
class GivenText:
    """A query as its caller gave it.

    Attributes:
        cuts: The replaced ranges, in order.
    """

    text: str
    cuts: Sequence[Cut] = ()

    def offset(self, query: str, offset: int) -> int:
        """Return the position in the given text of a character of the query that replaces it.

        The position of a replacement is the start of the range that it replaces.
        """
        place = len(query[:offset].encode())
        shift = 0
        for cut in self.cuts:
            begin = cut.start + shift
            if place < begin:
                break
            if place < begin + cut.length:
                place, shift = cut.start, 0
                break
            shift += cut.length - (cut.end - cut.start)
        return len(self.text.encode()[: place - shift].decode())
