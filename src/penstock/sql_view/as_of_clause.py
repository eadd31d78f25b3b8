"""The parser of `AS OF` clauses and of calls of `changes(…)` in queries.

```sql
SELECT sum(stock) FROM Item AS OF EPOCH 120
SELECT count(*) FROM "Order" WHERE paid AS OF TIMESTAMP '2026-11-21 08:30:00+01:00'
SELECT * FROM Item AS OF EPOCH 10 AS before JOIN Item AS now USING (item_id)
SELECT * FROM changes('Item', 10, 20) WHERE after.stock < 0
```

A clause at the end of a statement applies to all of its tables; a clause behind a table's name applies
to this table alone. DuckDB knows neither, so both are cut out of the text here. A table with its own
clause and a call of `changes` get a schema of their own (`past 0`, `past 1` …), in which `as_of_query`
creates the table.

The text is read with DuckDB's tokens, so that strings, quoted identifiers and comments contain no
clause. `query_guard` checks on the parsed statement that each clause stood behind a table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb

from penstock.errors import QueryError
from penstock.journal.as_of import PointInTime, parse_timestamp
from penstock.snapshots.column import quoted
from penstock.sql_view.error_place import Cut, GivenText

FEED: Final = "changes"
"""The function that returns the changes of a class, and the name of its table."""

_SCHEMA: Final = "past {}"
_WORDS: Final = ("epoch", "timestamp", FEED)
_SYNTAX: Final = "AS OF is followed by EPOCH and a number, or by TIMESTAMP and a time in quotes"
_CALL: Final = "changes takes the name of a class and two epochs, as in changes('Item', 10, 20)"


@dataclass(frozen=True, slots=True)
class TableAsOf:
    """A table with its own clause.

    Attributes:
        given_schema: The schema in the query; empty if it names none.
    """

    schema: str
    given_schema: str
    name: str
    moment: PointInTime


@dataclass(frozen=True, slots=True)
class ChangesCall:
    """A call of `changes` for the epochs from `first` to `last`, and the schema of its table."""

    schema: str
    entity: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class AsOfStatement:
    """A query whose clauses are cut out.

    Attributes:
        parameters: The parameters that the query still has.
        moment: The point in time of tables without their own clause; None is the newest epoch.
        references: The tables with their own clause.
        feeds: The calls of `changes`.
        given: The query with its clauses; None if it had none.
    """

    query: str
    parameters: list[Any] | dict[str, Any]
    moment: PointInTime | None
    references: Sequence[TableAsOf] = ()
    feeds: Sequence[ChangesCall] = ()
    given: GivenText | None = field(default=None, compare=False)

    @property
    def schemas(self) -> Mapping[str, str]:
        """The schemas in the query, with the single table of each."""
        tables = {reference.schema: reference.name for reference in self.references}
        return tables | {feed.schema: FEED for feed in self.feeds}


def parse_statement(query: str, parameters: list[Any] | dict[str, Any]) -> AsOfStatement | None:
    """Parse a query; return None if it reads the newest epoch alone."""
    folded = query.casefold()
    if not any(word in folded for word in _WORDS):
        return None
    statement = _Parser(query, parameters).parse()
    has_clause = statement.moment is not None or statement.references or statement.feeds
    return statement if has_clause else None


@dataclass(frozen=True, slots=True)
class _Token:
    """A token: its text, its range in the query's bytes, and the name of its type."""

    text: str
    start: int
    end: int
    type_name: str

    @property
    def word(self) -> str:
        """The text in lower case, for comparison with keywords."""
        return self.text.casefold()

    @property
    def is_name(self) -> bool:
        return self.type_name in ("identifier", "keyword")

    @property
    def name(self) -> str:
        """The name that the token stands for."""
        return self.text[1:-1].replace('""', '"') if self.text[:1] == '"' else self.text


_END: Final = _Token("", 0, 0, "end")


@dataclass(slots=True)
class _Values:
    """The parameters of a query, and which of them its clauses have used."""

    values: list[Any] | dict[str, Any]
    used: set[str] = field(default_factory=set)  # "1" for the first `?` or `$1`, else the name

    def take(self, name: str) -> Any:
        values = _by_name(self.values)
        if name not in values:
            raise QueryError(f"the query has no value for parameter {name}")
        self.used.add(name)
        return values[name]

    def left(self, still_named: set[str], *, positional: bool) -> list[Any] | dict[str, Any]:
        """Return the parameters for the rest of the query."""
        if not self.used:
            return self.values
        kept = {
            name: value
            for name, value in _by_name(self.values).items()
            if name not in self.used or name in still_named
        }
        return list(kept.values()) if positional else kept


def _by_name(parameters: list[Any] | dict[str, Any]) -> dict[str, Any]:
    if isinstance(parameters, dict):
        return {name.removeprefix("$"): value for name, value in parameters.items()}
    return {str(place): value for place, value in enumerate(parameters, 1)}


class _Parser:
    """Goes through the tokens of a query once."""

    def __init__(self, query: str, parameters: list[Any] | dict[str, Any]) -> None:
        self._data = query.encode()
        self._tokens = _tokens_of(query)
        self._values = _Values(parameters)
        self._questions = 0
        self._named: set[str] = set()
        self._kept: list[bytes] = []
        self._cuts: list[Cut] = []
        self._copied = 0
        self._moment: PointInTime | None = None
        self._references: list[TableAsOf] = []
        self._feeds: list[ChangesCall] = []

    def parse(self) -> AsOfStatement:
        place = 0
        while place < len(self._tokens):
            place = self._step(place)
        query = b"".join([*self._kept, self._data[self._copied :]]).decode()
        left = self._values.left(self._named, positional=self._questions > 0)
        given = GivenText(self._data.decode(), self._cuts)
        return AsOfStatement(query, left, self._moment, self._references, self._feeds, given)

    def _step(self, place: int) -> int:
        """Parse from one token on, and return the index of the next."""
        match [self._at(place + ahead).word for ahead in range(3)]:
            case ["as", "of", "epoch" | "timestamp"]:
                return self._clause(place)
            case ["as", "of", _] if self._at(place + 2).type_name in (
                "numeric_const",
                "string_const",
            ):
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
        if all(token.text == ";" for token in self._tokens[after:]):
            self._cut(self._at(place).start, self._at(after - 1).end, b"")
            self._moment = moment
        else:
            self._refer(place, after, moment)
        return after

    def _refer(self, place: int, after: int, moment: PointInTime) -> None:
        """Replace the table before a clause by a table in a schema of its own."""
        table = self._at(place - 1)
        if not table.is_name:
            raise QueryError("AS OF must follow the name of a table, or end the query")
        start, given_schema = table.start, ""
        if self._at(place - 2).text == "." and self._at(place - 3).is_name:
            start, given_schema = self._at(place - 3).start, self._at(place - 3).name
        schema = self._new_schema()
        self._references.append(TableAsOf(schema, given_schema, table.name, moment))
        named = f"{quoted(schema)}.{quoted(table.name)}"
        self._cut(start, self._at(after - 1).end, named.encode())

    def _feed(self, place: int) -> int:
        """Replace a call of `changes` by a table."""
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
        """Return the value of a constant or parameter, and the index of the next token."""
        token = self._at(place)
        match token.type_name, token.text:
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
        self._kept += [self._data[self._copied : start], instead]
        self._cuts.append(Cut(start, end, len(instead)))
        self._copied = end

    def _at(self, place: int) -> _Token:
        return self._tokens[place] if 0 <= place < len(self._tokens) else _END


def _plain(value: Any) -> Any:
    """Return a parameter's value; a Boolean is not an epoch."""
    return None if isinstance(value, bool) else value


def _tokens_of(query: str) -> list[_Token]:
    """Return the tokens of a query without its comments."""
    data = query.encode()
    starts = duckdb.tokenize(query)
    ends = [start for start, _ in starts[1:]] + [len(data)]
    tokens = []
    for (start, token_type), end in zip(starts, ends, strict=True):
        text = data[start:end].decode().rstrip()
        tokens.append(_Token(text, start, start + len(text.encode()), token_type.name))
    return [token for token in tokens if token.type_name != "comment"]
