"""The place of an error in a query: the line and the column, counted from 1.

DuckDB shows the place in the message of some errors, as a line of the query with a mark below it. This
module computes the line and the column from that. A relation's error has no mark, and neither has the
error of a query that begins with a comment. So the query is planned once more without its beginning.
"""

import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import duckdb


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


_MARKED: Final = re.compile(r"\n\nLINE (\d+): (.*)\n( *)\^")
_EXPLAIN: Final = "EXPLAIN "
_EXPLAINED: Final = re.compile(r"EXPLAIN\s+(?:ANALYZE\s+)?(?=\w|\()", re.IGNORECASE)
_CUT: Final = "..."


def syntax_error_place(
    cursor: duckdb.DuckDBPyConnection, query: str, given: GivenText | None = None
) -> str:
    """Return the place of a syntax error as `line 2, column 6: `; empty if DuckDB names none.

    Args:
        given: The text in which the place is counted; None is the query itself.
    """
    start = _beginning_of(query)
    try:
        cursor.extract_statements(query[start:])
    except duckdb.Error as error:
        return _place_text(query, start, offset_of(str(error), query[start:]), given)
    return ""


def error_place(
    cursor: duckdb.DuckDBPyConnection,
    query: str,
    parameters: list[Any] | dict[str, Any],
    given: GivenText | None = None,
) -> str:
    """Return the place of an error as `line 2, column 6: `; empty if DuckDB names none.

    Args:
        cursor: The database; a transaction of it is ended.
        query: A query that `query_guard` allows; it is planned and not executed.
        given: The text in which the place is counted; None is the query itself.
    """
    start = _beginning_of(query)
    explained = _EXPLAINED.match(query, start)
    start = explained.end() if explained else start
    text = _EXPLAIN + query[start:]
    with suppress(duckdb.Error):
        cursor.execute("ROLLBACK")
    try:
        cursor.execute(text, parameters or None)
    except duckdb.Error as error:
        return _place_text(query, start - len(_EXPLAIN), offset_of(str(error), text), given)
    return ""


def offset_of(message: str, query: str) -> int | None:
    """Return the position of the first marked character; None if the message marks none."""
    marked = _MARKED.search(message)
    lines = query.split("\n")
    if marked is None or int(marked[1]) > len(lines):
        return None
    number, shown = int(marked[1]) - 1, marked[2]
    line = lines[number].removesuffix("\r")
    column = _characters(shown, len(marked[3]) - len(f"LINE {marked[1]}: "))
    if shown != line:  # of a long line, DuckDB shows a part
        column -= len(_CUT) if shown.startswith(_CUT) else 0
        part = shown.removeprefix(_CUT).removesuffix(_CUT)
        if line.count(part) != 1:
            return None
        column += line.index(part)
    return sum(len(earlier) + 1 for earlier in lines[:number]) + column if column >= 0 else None


def _place_text(query: str, start: int, offset: int | None, given: GivenText | None) -> str:
    if offset is None or start + offset < 0:
        return ""
    given = given or GivenText(query)
    before = given.text[: given.offset(query, start + offset)]
    line_start = before.rfind("\n") + 1
    line = before.count("\n") + 1
    return f"line {line}, column {len(before) - line_start + 1}: "


def _beginning_of(query: str) -> int:
    """Return the position behind the comments and spaces at the beginning of a query."""
    data = query.encode()
    for start, token_type in duckdb.tokenize(query):
        if token_type != duckdb.token_type.comment:
            return len(data[:start].decode())
    return 0


def _characters(text: str, width: int) -> int:
    """Return how many characters of a text a terminal shows in a number of columns."""
    for count, character in enumerate(text):
        if width <= 0:
            return count
        if not unicodedata.combining(character):
            width -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return len(text)
