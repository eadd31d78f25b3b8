"""`SearchIndex`: reads the search index of a view, in any process.

The index is in `FOLDER/index`: `current` names the directory of the index in force, which `search_target` writes. An
answer is of exactly one commit, and the position is read in it. So the epoch of an answer is proven.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from uuid import UUID

import msgspec
import tantivy

from penstock.base.ids import Epoch
from penstock.client.results import FacetCount, Hit, SearchAnswer
from penstock.errors import QueryError, RequestError
from penstock.model.application import unknown
from penstock.views.reading import QueryBounds, TableAnswer
from penstock.views.search_fields import (
    FORMAT,
    OWNER,
    POSITION_OWNER,
    ROW,
    TABLE,
    WORDS,
    ColumnFields,
    Contents,
    Field,
    IndexFields,
    TableFields,
    Use,
    float_of,
    term_of,
    whole_number_of,
    word_analyzer,
)
from penstock.views.target import FAILED, Kind, Position, TargetProblem

INDEX: Final = "index"
CURRENT: Final = "current"

LIMIT_MAX: Final = 1_000
"""The most hits of an answer."""
DEPTH_MAX: Final = 10_000
"""The most hits that an answer may pass over and return together."""
QUERY_CHARACTERS_MAX: Final = 2_000
_BRACKETS_MAX: Final = 50
"""The parser calls itself for each bracket, and a few thousand would end the process."""
_CONDITIONS_MAX: Final = 100
_FACET_VALUES_MAX: Final = 100
"""The most values of a facet that are counted."""
_FRAGMENT_CHARACTERS: Final = 200
_TRIES: Final = 5


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question to a search index.

    Attributes:
        query: Words, or the language of tantivy: `"a phrase"`, `column:word`, `a OR b`, `-word`,
            `price:[10 TO 20]`; a `*` behind the last word finds all words that begin so. Empty: every row.
        table: The table; None: all tables of the view except `_failed`.
        limit: The most hits.
        offset: The number of hits to pass over.
        filters: Conditions by column, all of which hold: a value, a list of values, or a dictionary from `=`, `!=`, `<`,
            `<=`, `>`, `>=` to values.
        facets: The columns whose values are counted over all hits; `*`: all columns that the view declares for this.
        highlight: Whether hits show where words were found.
        lenient: Whether the parts of the query that cannot be read are passed over.
    """

    query: str = ""
    table: str | None = None
    limit: int = 10
    offset: int = 0
    filters: dict[str, Any] = {}
    facets: tuple[str, ...] = ()
    highlight: bool = False
    lenient: bool = False


class _Opened:
    """An index that is open in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.index = tantivy.Index.open(str(directory))
        self.index.config_reader("manual")
        self.index.register_tokenizer(WORDS, word_analyzer())
        self._known: tuple[Contents, IndexFields] | None = None
        self._stamp: object = None

    def searcher(self) -> tantivy.Searcher:
        """Return a searcher of the newest commit."""
        stamp = _stamp_of(self.directory / "meta.json")
        if stamp != self._stamp:
            self.index.reload()
            self._stamp = stamp
        return self.index.searcher()

    def contents(self, searcher: tantivy.Searcher) -> tuple[Contents, IndexFields]:
        """Return the contents of the commit of a searcher, and its fields."""
        query = tantivy.Query.term_query(self.index.schema, OWNER, POSITION_OWNER)
        hits = searcher.search(query, limit=1, count=False).hits
        if not hits:
            raise ValueError("it has no position")
        data = searcher.doc(hits[0][1]).get_first(ROW)
        contents = msgspec.json.decode(bytes(data or b""), type=Contents)
        if contents.format != FORMAT:
            raise ValueError(f"its layout is {contents.format}, and not {FORMAT}")
        known = self._known
        if known is None or _facts(known[0]) != _facts(contents):
            fields = IndexFields(contents.shapes, contents.text, contents.facets)
        else:
            fields = known[1]
        self._known = contents, fields
        return contents, fields


class SearchIndex:
    """The search index of a view, for reading; any thread may use it.

    Args:
        folder: The folder of the view.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / INDEX
        self._name = folder.name
        self._opened: _Opened | None = None
        self._changing = threading.Lock()

    def contents(self) -> Contents | None:
        """Return the contents of the index; None if it has never been filled.

        Raises:
            TargetProblem: It is damaged, or has another format.
        """
        reading = self._reading()
        return None if reading is None else reading[2]

    def epoch(self) -> Epoch | None:
        """Return the epoch of the index; raises as `contents`."""
        contents = self.contents()
        return None if contents is None else contents.position.epoch

    def failed(self) -> int:
        """Return the number of rows in the table of failed rows; raises as `contents`."""
        reading = self._reading()
        if reading is None:
            return 0
        opened, searcher, _, _ = reading
        query = tantivy.Query.term_query(opened.index.schema, TABLE, FAILED)
        return _count(searcher.search(query, limit=1))

    def writable(self) -> tuple[tantivy.Index, Contents, IndexFields]:
        """Return the index in force for a writer, with its contents; raises as `contents`."""
        reading = self._reading()
        if reading is None:
            raise _unfilled()
        opened, _, contents, fields = reading
        return opened.index, contents, fields

    def search(self, question: SearchQuery) -> SearchAnswer:
        """Answer a question.

        Raises:
            RequestError: The question is wrong.
            TargetProblem: The index has never been filled, or is damaged.
        """
        return self.reading().answer(question)

    def reading(self) -> "SearchReading":
        """Return a reading of the newest commit; raises `TargetProblem` as `search`."""
        reading = self._reading()
        if reading is None:
            raise _unfilled()
        opened, searcher, contents, fields = reading
        return SearchReading(self._name, opened.index, searcher, contents, fields)

    def _reading(self) -> tuple[_Opened, tantivy.Searcher, Contents, IndexFields] | None:
        with self._changing:
            for left in reversed(range(_TRIES)):
                directory = current_directory(self._folder)
                if directory is None:
                    return None
                try:
                    with Panics(self._name):
                        if self._opened is None or self._opened.directory != directory:
                            self._opened = _Opened(directory)
                        searcher = self._opened.searcher()
                        return self._opened, searcher, *self._opened.contents(searcher)
                except (
                    TargetProblem,
                    OSError,
                    ValueError,
                ) as error:  # a MsgspecError is a ValueError
                    self._opened = None
                    # Another directory may have come into force, and this one may be gone.
                    if left and current_directory(self._folder) != directory:
                        continue
                    if isinstance(error, TargetProblem):
                        raise
                    raise _damaged(self._name, str(error)) from error
        raise AssertionError("the last try returns or raises")


class SearchReading:
    """A searcher of one commit, which stays as it is although another process writes."""

    def __init__(
        self,
        name: str,
        index: tantivy.Index,
        searcher: tantivy.Searcher,
        contents: Contents,
        fields: IndexFields,
    ) -> None:
        self.position: Position | None = contents.position
        self._name = name
        self._commit = index, searcher, contents, fields

    def answer(self, question: SearchQuery) -> SearchAnswer:
        """Answer a question; raises as `SearchIndex.search`."""
        _check_bounds(question)
        try:
            with Panics(self._name):
                return _Search(*self._commit, question).answer()
        except ValueError as error:
            raise RequestError(f"query: {error}") from error
        except OSError as error:
            raise _damaged(self._name, str(error)) from error

    def search(self, question: dict[str, Any]) -> SearchAnswer:
        """Answer a question with the fields of a `SearchQuery`; raises as `answer`."""
        try:
            asked = msgspec.convert(question, SearchQuery)
        except msgspec.ValidationError as error:
            raise RequestError(f"the search: {error}") from error
        return self.answer(asked)

    def sql(self, query: str, parameters: list[Any], bounds: QueryBounds) -> TableAnswer:
        """Refuse: the view is a search index."""
        raise QueryError("this view is a search index; ask it with search")

    def close(self) -> None:
        """Let the commit go."""


class Panics:
    """A block in which a panic of tantivy becomes a `TargetProblem`: it means that an index is damaged."""

    def __init__(self, name: str) -> None:
        """Begin; `name` is that of the view."""
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, error_type: object, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The class is no Exception, and cannot be imported.
        if type(error).__name__ == "PanicException":
            raise _damaged(self._name, str(error)) from error


def _unfilled() -> TargetProblem:
    return TargetProblem("the search index has not been filled yet")


def _damaged(name: str, reason: str) -> TargetProblem:
    return TargetProblem(
        f"the search index is damaged, or of another version: {reason}",
        f"penstock view rebuild {name}",
    )


def current_directory(index: Path) -> Path | None:
    """Return the directory of the index in force, in the folder of indexes; None before the first."""
    try:
        return index / (index / CURRENT).read_text()
    except FileNotFoundError:
        return None


def _stamp_of(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def _facts(contents: Contents) -> object:
    return contents.shapes, contents.text, contents.facets


def _count(result: tantivy.SearchResult) -> int:
    count: int = result.count  # type: ignore[attr-defined] # its stubs lack it
    return count


def _check_bounds(question: SearchQuery) -> None:
    if len(question.query) > QUERY_CHARACTERS_MAX:
        raise RequestError(f"a query has at most {QUERY_CHARACTERS_MAX:,} characters")
    if question.query.count("(") > _BRACKETS_MAX:
        raise RequestError(f"a query has at most {_BRACKETS_MAX} brackets")
    if not 0 <= question.limit <= LIMIT_MAX:
        raise RequestError(f"limit={question.limit} must be from 0 to {LIMIT_MAX:,}")
    if question.offset < 0 or question.offset + question.limit > DEPTH_MAX:
        raise RequestError(
            f"offset={question.offset} with limit={question.limit} goes beyond hit {DEPTH_MAX:,}; narrow the query"
        )


class _Search:
    """One question to one commit of an index."""

    def __init__(
        self,
        index: tantivy.Index,
        searcher: tantivy.Searcher,
        contents: Contents,
        fields: IndexFields,
        question: SearchQuery,
    ) -> None:
        self._index = index
        self._schema = index.schema
        self._searcher = searcher
        self._contents = contents
        self._question = question
        shown = {name: table for name, table in fields.tables.items() if name != FAILED}
        if question.table is not None:
            if question.table not in fields.tables:
                raise RequestError(unknown("table", question.table, sorted(fields.tables)))
            shown = {question.table: fields.tables[question.table]}
        self._tables: Mapping[str, TableFields] = shown
        self._generators: dict[str, tantivy.SnippetGenerator] = {}

    def answer(self) -> SearchAnswer:
        question = self._question
        words = self._words()
        parts = [(tantivy.Occur.Must, words)]
        parts += [
            (tantivy.Occur.Must, tantivy.Query.const_score_query(each, 0.0))
            for each in self._conditions()
        ]
        tables = tantivy.Query.term_set_query(self._schema, TABLE, list(self._tables))
        parts.append((tantivy.Occur.Must, tantivy.Query.const_score_query(tables, 0.0)))
        query = tantivy.Query.boolean_query(parts)
        # Tantivy panics at a limit of 0.
        result = self._searcher.search(query, limit=question.limit or 1, offset=question.offset)
        hits = [
            self._hit(score, address, words)
            for score, address in (result.hits if question.limit else ())
        ]
        epoch = self._contents.position.epoch
        return SearchAnswer(epoch, _count(result), hits, self._facets(query))

    def _words(self) -> tantivy.Query:
        """Return the query of words."""
        text = self._question.query.strip()
        if text in ("", "*"):
            return tantivy.Query.all_query()
        names = self._word_fields()
        begun = _BEGUN.search(text)
        prefix = tantivy.Query.all_query()
        if begun is not None:
            text = text[: begun.start()].strip()
            prefix = self._beginning(begun[1], names)
            if not text:
                return prefix
        elif (star := _STAR.search(text)) is not None:
            raise RequestError(
                f"query: character {star.end()}: a * finds beginnings only behind the last word"
            )
        parsed = self._parsed(text, names)
        return parsed if begun is None else parsed.and_must_match(prefix)

    def _word_fields(self) -> list[str]:
        names = [
            each.named.name
            for table in self._tables.values()
            for each in table.columns.values()
            if each.named is not None and each.named.use == Use.WORDS
        ]
        return list(dict.fromkeys(names))

    def _beginning(self, word: str, names: Sequence[str]) -> tantivy.Query:
        """Return the query of words that begin with some letters."""
        analyzed = word_analyzer().analyze(word)
        if len(analyzed) != 1:
            return tantivy.Query.empty_query()
        queries = [
            (
                tantivy.Occur.Should,
                tantivy.Query.fuzzy_term_query(
                    self._schema, name, analyzed[0], distance=0, prefix=True
                ),
            )
            for name in names
        ]
        return tantivy.Query.boolean_query(queries)

    def _parsed(self, text: str, names: list[str]) -> tantivy.Query:
        if self._question.lenient:
            query, _ = self._index.parse_query_lenient(text, names, conjunction_by_default=True)
            return query
        try:
            return self._index.parse_query(text, names, conjunction_by_default=True)
        except ValueError as error:
            raise RequestError(f"query: {self._place_of(text, str(error))}") from error

    def _place_of(self, text: str, message: str) -> str:
        """Return the mistake in a query, with its place."""
        _, problems = tantivy.parse_query_lenient(text)
        if problems:
            first = problems[0]
            return f"character {first['pos'] + 1}: {first['message']}"
        if message.startswith(_NO_WORDS):
            return "no column here has words that are found; name a column, as in column:word"
        missing = _MISSING.fullmatch(message)
        if missing is None:
            return message.partition(": '")[0].removeprefix("Invalid query: ")
        known = {
            each.named.name
            for table in self._tables.values()
            for each in table.columns.values()
            if each.named is not None
        }
        at = text.find(missing[1] + ":") + 1
        return f"character {at}: {unknown('column', missing[1], sorted(known))}"

    def _conditions(self) -> Iterator[tantivy.Query]:
        count = 0
        for name, wanted in self._question.filters.items():
            field, column_kind = self._exact(name)
            given = wanted if isinstance(wanted, dict) else {"=": wanted}
            for operator, value in given.items():
                values = value if isinstance(value, list) else [value]
                count += len(values)
                if count > _CONDITIONS_MAX:
                    raise RequestError(f"filter: at most {_CONDITIONS_MAX} values")
                yield self._condition(
                    name, field, operator, [_typed(name, column_kind, each) for each in values]
                )

    def _condition(
        self, name: str, field: Field, operator: str, values: Sequence[Any]
    ) -> tantivy.Query:
        if operator in ("=", "!="):
            equal = [(tantivy.Occur.Should, self._equal(field, each)) for each in values]
            query = tantivy.Query.boolean_query(equal)
            if operator == "=":
                return query
            return tantivy.Query.all_query().and_must_not_match(query)
        if operator not in _BOUNDS:
            known = ["=", "!=", *_BOUNDS]
            raise RequestError(f"filter: {name}: {unknown('operator', operator, known)}")
        if field.use in (Use.TERM, Use.BOOLEAN) or len(values) != 1:
            raise RequestError(f"filter: {name}: {operator} compares one number or time")
        return self._range(field, operator, values[0])

    def _equal(self, field: Field, value: Any) -> tantivy.Query:
        if field.use in (Use.TERM, Use.BOOLEAN):
            return tantivy.Query.term_query(self._schema, field.name, value)
        return tantivy.Query.range_query(self._schema, field.name, field.use.value, value, value)

    def _range(self, field: Field, operator: str, value: Any) -> tantivy.Query:
        is_lower, has_equal = operator[0] == ">", operator.endswith("=")
        return tantivy.Query.range_query(
            self._schema,
            field.name,
            field.use.value,
            value if is_lower else None,
            None if is_lower else value,
            include_lower=has_equal or not is_lower,
            include_upper=has_equal or is_lower,
        )

    def _column(self, name: str) -> list[ColumnFields]:
        columns = [table.columns[name] for table in self._tables.values() if name in table.columns]
        if not columns:
            known = {each for table in self._tables.values() for each in table.columns}
            raise RequestError(unknown("column", name, sorted(known)))
        return columns

    def _exact(self, name: str) -> tuple[Field, Kind]:
        """Return the field by which a column is compared, and the kind of the column."""
        columns = self._column(name)
        fields = {each.exact for each in columns}
        if len(fields) > 1:
            raise RequestError(
                f"column {name} has different kinds in the tables of this view; name the table"
            )
        field = fields.pop()
        if field is None:
            raise RequestError(f"column {name} holds bytes, which are not compared")
        return field, columns[0].column.kind

    def _facets(self, query: tantivy.Query) -> dict[str, list[FacetCount]]:
        names = self._counted_names()
        if not names:
            return {}
        asked: dict[str, Any] = {}
        for name in names:
            field, _ = self._exact(name)
            if not field.is_counted:
                raise RequestError(
                    f"the values of column {name} are not counted: declare it in search(facets=[…])"
                )
            asked[name] = {"terms": {"field": field.name, "size": _FACET_VALUES_MAX}}
        counted = self._searcher.aggregate(query, asked)
        return {
            name: [_facet(self._exact(name)[1], each) for each in counted[name]["buckets"]]
            for name in names
        }

    def _counted_names(self) -> list[str]:
        """Return the columns whose values are counted."""
        if _EVERY not in self._question.facets:
            return list(dict.fromkeys(self._question.facets))
        names = [
            each.column.name
            for table in self._tables.values()
            for each in table.columns.values()
            if each.exact is not None and each.exact.is_counted
        ]
        return list(dict.fromkeys(names))

    def _hit(self, score: float, address: tantivy.DocAddress, words: tantivy.Query) -> Hit:
        data = bytes(self._searcher.doc(address).get_first(ROW) or b"")
        table, row = _STORED.decode(data)
        highlights = (
            self._highlights(self._tables[table], row, words) if self._question.highlight else {}
        )
        return Hit(score, table, row, highlights)

    def _highlights(
        self, table: TableFields, row: msgspec.Raw, words: tantivy.Query
    ) -> dict[str, list[str]]:
        highlights = {}
        values = msgspec.json.decode(row)
        for name, each in table.columns.items():
            field, text = each.named, values[name]
            if field is None or field.use != Use.WORDS or not isinstance(text, str):
                continue
            document = tantivy.Document(**{field.name: [text]})
            snippet = self._generator(field.name, words).snippet_from_doc(document)
            parts = _parts(snippet, text)
            if len(parts) > 1:
                highlights[name] = parts
        return highlights

    def _generator(self, field: str, words: tantivy.Query) -> tantivy.SnippetGenerator:
        if field not in self._generators:
            generator = tantivy.SnippetGenerator.create(self._searcher, words, self._schema, field)
            generator.set_max_num_chars(_FRAGMENT_CHARACTERS)
            self._generators[field] = generator
        return self._generators[field]


def _parts(snippet: tantivy.Snippet, text: str) -> list[str]:
    """Return the fragment of a snippet in parts, of which each second one was found; a short text is shown as a whole."""
    data, parts, at = snippet.fragment().encode(), [], 0
    for each in snippet.highlighted():
        if each.start < at:  # two words of the query in one place
            continue
        parts += [data[at : each.start].decode(), data[each.start : each.end].decode()]
        at = each.end
    parts.append(data[at:].decode())
    if len(text) <= _FRAGMENT_CHARACTERS:  # a fragment ends with its last word
        whole, place = text.encode(), snippet.fragment_range()
        parts[0] = whole[: place.start].decode() + parts[0]
        parts[-1] += whole[place.end :].decode()
    return parts


_BEGUN: Final = re.compile(r"(?:^|(?<=\s))(\w+)\*$")
_STAR: Final = re.compile(r"\w\*(?=\s|\)|$)")
_MISSING: Final = re.compile(r"Field does not exist: '(.*)'", re.DOTALL)
_EVERY: Final = "*"
_NO_WORDS: Final = "No default field"
_BOUNDS: Final = ("<", "<=", ">", ">=")
_STORED: Final = msgspec.json.Decoder(tuple[str, msgspec.Raw])


def _whole(value_type: type) -> Callable[[Any], Any]:
    return lambda value: _in_64_bits(whole_number_of(msgspec.convert(value, value_type)))


def _in_64_bits(number: int) -> int:
    if not -1 << 63 <= number < 1 << 63:
        raise ValueError("it needs more than 64 bits")
    return number


def _moment(value: Any) -> int:
    when = msgspec.convert(value, datetime)
    return whole_number_of(when if when.tzinfo else when.replace(tzinfo=UTC))


def _number(value: Any) -> float:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    return float_of(msgspec.convert(value, float, strict=False))


def _text(value: Any) -> str:
    return term_of(msgspec.convert(value, str))


def _part(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return term_of(str(msgspec.convert(value, str | int | float)))


_TYPED: Final[Mapping[Kind, Callable[[Any], Any]]] = {
    Kind.TEXT: _text,
    Kind.UUID: lambda value: str(msgspec.convert(value, UUID)),
    Kind.JSON: _part,
    Kind.INTEGER: _whole(int),
    Kind.FLOAT: _number,
    Kind.DECIMAL: _number,
    Kind.BOOLEAN: lambda value: msgspec.convert(value, bool),
    Kind.DATE: _whole(date),
    Kind.TIME: _whole(time),
    Kind.DURATION: _whole(timedelta),
    Kind.TIMESTAMP: _moment,
}


def _typed(name: str, column_kind: Kind, value: Any) -> Any:
    """Return the value of a condition as its field has it."""
    try:
        return _TYPED[column_kind](value)
    except ValueError as error:
        raise RequestError(
            f"filter: {name}: {value!r} is no value of this column: {error}"
        ) from error


def _facet(column_kind: Kind, bucket: Mapping[str, Any]) -> FacetCount:
    value: Any = bucket["key"]
    match column_kind:
        case Kind.BOOLEAN:
            value = bool(value)
        case Kind.INTEGER:
            value = int(value)
        case Kind.DATE:
            value = date.fromordinal(int(value))
        case Kind.TIMESTAMP | Kind.DURATION:
            value = timedelta(microseconds=int(value))
            if column_kind == Kind.TIMESTAMP:
                value += datetime(1970, 1, 1, tzinfo=UTC)
        case _:
            pass
    return FacetCount(value, bucket["doc_count"])
