"""What a query says of the past: `AS OF`, and `changes(…)`.

```sql
SELECT sum(stock) FROM Item AS OF EPOCH 120
SELECT count(*) FROM "Order" WHERE paid AS OF TIMESTAMP '2026-11-21 08:30:00+01:00'
SELECT * FROM Item AS OF EPOCH 10 AS before JOIN Item AS now USING (item_id)
SELECT * FROM changes('Item', 10, 20) WHERE after.stock < 0
```

At the end of a statement the clause is for the whole of it; behind a table's name elsewhere, for
that table alone. DuckDB knows neither, so they are cut out here: a table that has its own clause, and
a feed of changes, get a schema of their own, `past 0`, `past 1` …, in which `history` puts the rows.

Promises that nothing inside of strings, quoted identifiers and comments is taken for a clause: the
text is read token by token, with DuckDB's tokens. Whether what was cut out stood where a table may
stand is left to `seal`, which looks at the parsed statement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb

from penstock.errors import QueryError
from penstock.journal.as_of import PointInTime, parse_timestamp
from penstock.snapshots.column import quoted

FEED: Final = "changes"
"""The function that gives the changes of a class; also the name of its table."""

_SCHEMA: Final = "past {}"
_WORDS: Final = ("epoch", "timestamp", FEED)
_SYNTAX: Final = "AS OF is followed by EPOCH and a number, or TIMESTAMP and a time in quotes"
_CALL: Final = "changes takes a class's name and two epochs, as in changes('Item', 10, 20)"


@dataclass(frozen=True, slots=True)
class TableAsOf:
    """A table at a moment of its own, and the schema that it is looked for in."""

    schema: str
    given: str
    name: str
    moment: PointInTime


@dataclass(frozen=True, slots=True)
class ChangesCall:
    """The changes of a class in the epochs from `first` to `last`, and the schema for them."""

    schema: str
    entity: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class AsOfStatement:
    """A query without its clauses.

    Attributes:
        query: What DuckDB shall run.
        parameters: Those that it still has.
        moment: Of all tables without a clause of their own; None: the newest epoch.
        references: Tables with a clause of their own.
        feeds: The calls of `changes`.
    """

    query: str
    parameters: list[Any] | dict[str, Any]
    moment: PointInTime | None
    references: Sequence[TableAsOf] = ()
    feeds: Sequence[ChangesCall] = ()

    @property
    def schemas(self) -> Mapping[str, str]:
        """The schemas that it was given, with the one table of each."""
        return {one.schema: one.name for one in self.references} | {
            one.schema: FEED for one in self.feeds
        }


def parse_statement(query: str, parameters: list[Any] | dict[str, Any]) -> AsOfStatement | None:
    """Return what a query asks of the past; None where it asks of nothing but the present.

    Raises:
        QueryError: A clause is incomplete, or its value is no epoch and no time.
    """
    folded = query.casefold()
    if not any(word in folded for word in _WORDS):
        return None
    found = _Reader(query, parameters).read()
    past = found.moment is not None or found.references or found.feeds
    return found if past else None


@dataclass(frozen=True, slots=True)
class _Token:
    """A token: its text, where it lies in the query's bytes, and its kind."""

    text: str
    start: int
    end: int
    kind: str

    @property
    def word(self) -> str:
        """The text as keywords are compared; a quoted identifier is none."""
        return self.text.casefold()

    @property
    def is_name(self) -> bool:
        return self.kind in ("identifier", "keyword")

    @property
    def name(self) -> str:
        """The name that it writes."""
        return self.text[1:-1].replace('""', '"') if self.text[:1] == '"' else self.text


_END: Final = _Token("", 0, 0, "end")


@dataclass(slots=True)
class _Values:
    """The parameters of a query, some of which its clauses use up."""

    given: list[Any] | dict[str, Any]
    used: set[str] = field(default_factory=set)  # "1" for the first `?` or `$1`, else the name

    def take(self, name: str) -> Any:
        values = _by_name(self.given)
        if name not in values:
            raise QueryError(f"the query has no value for parameter {name}")
        self.used.add(name)
        return values[name]

    def left(self, still_named: set[str], *, positional: bool) -> list[Any] | dict[str, Any]:
        """Return what the rest of the query needs."""
        if not self.used:
            return self.given
        kept = {
            name: value
            for name, value in _by_name(self.given).items()
            if name not in self.used or name in still_named
        }
        return list(kept.values()) if positional else kept


def _by_name(given: list[Any] | dict[str, Any]) -> dict[str, Any]:
    if isinstance(given, dict):
        return {name.removeprefix("$"): value for name, value in given.items()}
    return {str(place): value for place, value in enumerate(given, 1)}


class _Reader:
    """Goes through the tokens of a query once."""

    def __init__(self, query: str, parameters: list[Any] | dict[str, Any]) -> None:
        self._bytes = query.encode()
        self._tokens = _tokens_of(query)
        self._values = _Values(parameters)
        self._questions = 0
        self._named: set[str] = set()
        self._kept: list[bytes] = []
        self._copied = 0
        self._moment: PointInTime | None = None
        self._references: list[TableAsOf] = []
        self._feeds: list[ChangesCall] = []

    def read(self) -> AsOfStatement:
        place = 0
        while place < len(self._tokens):
            place = self._step(place)
        query = b"".join([*self._kept, self._bytes[self._copied :]]).decode()
        left = self._values.left(self._named, positional=self._questions > 0)
        return AsOfStatement(query, left, self._moment, self._references, self._feeds)

    def _step(self, place: int) -> int:
        """Look at one token, and return the place of the next."""
        match [self._at(place + ahead).word for ahead in range(3)]:
            case ["as", "of", "epoch" | "timestamp"]:
                return self._clause(place)
            case ["as", "of", _] if self._at(place + 2).kind in ("numeric_const", "string_const"):
                raise QueryError(_SYNTAX)
            case ["changes", "(", _] if self._at(place - 1).text != ".":
                return self._feed(place)
            case ["?", _, _]:
                self._questions += 1
                return place + 1
            case ["$", name, _]:
                self._named.add(self._at(place + 1).text if name else "")
                return place + 2
            case _:
                return place + 1

    def _clause(self, place: int) -> int:
        numbered = self._at(place + 2).word == "epoch"
        value, after = self._value(place + 3)
        moment: PointInTime
        match value:
            case int() if numbered:
                moment = value
            case str() if not numbered:
                moment = parse_timestamp(value)
            case _:
                raise QueryError(_SYNTAX)
        if all(one.text == ";" for one in self._tokens[after:]):
            self._cut(self._at(place).start, self._at(after - 1).end, b"")
            self._moment = moment
        else:
            self._refer(place, after, moment)
        return after

    def _refer(self, place: int, after: int, moment: PointInTime) -> None:
        """Give the table before a clause a schema of its own."""
        table = self._at(place - 1)
        if not table.is_name:
            raise QueryError("AS OF stands behind the name of a table, or at the end of the query")
        start, given = table.start, ""
        if self._at(place - 2).text == "." and self._at(place - 3).is_name:
            start, given = self._at(place - 3).start, self._at(place - 3).name
        schema = self._new_schema()
        self._references.append(TableAsOf(schema, given, table.name, moment))
        named = f"{quoted(schema)}.{quoted(table.name)}"
        self._cut(start, self._at(after - 1).end, named.encode())

    def _feed(self, place: int) -> int:
        """Put a table in the place of a call of `changes`."""
        values, after = [], place + 1
        for closing in (",", ",", ")"):
            value, after = self._value(after + 1)
            values.append(value)
            if self._at(after).text != closing:
                raise QueryError(_CALL)
        match values:
            case [str(entity), int(first), int(last)]:
                schema = self._new_schema()
            case _:
                raise QueryError(_CALL)
        self._feeds.append(ChangesCall(schema, entity, first, last))
        named = f"{quoted(schema)}.{FEED}"
        self._cut(self._at(place).start, self._at(after).end, named.encode())
        return after + 1

    def _value(self, place: int) -> tuple[Any, int]:
        """Return a constant's or parameter's value, and the place behind it."""
        token = self._at(place)
        match token.kind, token.text:
            case "numeric_const", text if text.replace("_", "").isdecimal():
                return int(text), place + 1
            case "string_const", text if text[0] == "'":
                return text[1:-1].replace("''", "'"), place + 1
            case _, "?":
                self._questions += 1
                return _plain(self._values.take(str(self._questions))), place + 1
            case _, "$":
                return _plain(self._values.take(self._at(place + 1).text)), place + 2
            case _:
                return None, place + 1

    def _new_schema(self) -> str:
        return _SCHEMA.format(len(self._references) + len(self._feeds))

    def _cut(self, start: int, end: int, instead: bytes) -> None:
        self._kept += [self._bytes[self._copied : start], instead]
        self._copied = end

    def _at(self, place: int) -> _Token:
        return self._tokens[place] if 0 <= place < len(self._tokens) else _END


def _plain(value: Any) -> Any:
    """Return a parameter's value; a truth value is no number here."""
    return None if isinstance(value, bool) else value


def _tokens_of(query: str) -> list[_Token]:
    """Return the tokens of a query without its comments."""
    data = query.encode()
    found = duckdb.tokenize(query)
    ends = [start for start, _ in found[1:]] + [len(data)]
    tokens = []
    for (start, kind), end in zip(found, ends, strict=True):
        text = data[start:end].decode().rstrip()
        tokens.append(_Token(text, start, start + len(text.encode()), kind.name))
    return [one for one in tokens if one.kind != "comment"]
