"""The content of the SQL view's tables: every type, exactly."""

import math
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest

from penstock.base.decimals import short_decimal
from penstock.client.operation import HttpResponse
from penstock.client.results import rows_of, table_of
from penstock.errors import OperationalError
from penstock.model.request import Failure
from penstock.process.config import ViewConfig
from penstock.sql_view.query import Query, QueryResult
from penstock.sql_view.result_format import ResultFormat, encode_result, json_rows
from penstock.sql_view.view import View
from tests.memory_journal import MemoryJournal
from tests.unit.sql_view.gallery_app import Branch, Frame, Painter, Size, Written, app, state_of

SETTINGS = ViewConfig(memory_mb=256)
HUGE = 2**63
FILLED: dict[str, Any] = {
    "number": -(2**63),
    "weight": 0.1,
    "sold": True,
    "pixels": b"\x00\xff",
    "painted": datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC),
    "day": date(1, 1, 1),
    "hour": time(1, 2, 3, 4),
    "dried": timedelta(days=-3, microseconds=1),
    "price": Decimal("1.10"),
    "ident": UUID(int=7),
    "size": Size.LARGE,
    "hung": "down",
    "tags": ["a", ""],
    "colours": {3, 1, -2},
    "offers": {"Ada": 1},
    "spot": (0.5, 2),
    "route": (1, 2, 3),
    "frame": Frame("oak", Decimal("2.5"), UUID(int=8)),
    "painter": Painter(7),
    "others": [Painter(7), Painter(8)],
    "lines": [(Painter(7), 1)],
    "branch": Branch("a", [Branch("b", [])]),
    "note": 5,
    "anything": {"a": [1, None]},
    "loose": {"x": 1, "y": math.inf},
    "rooms": {None: 1, "hall": 2},
    "coats": {(1, "oil"): timedelta(hours=-5)},
}


class Shown:
    """A view and the journal that it follows."""

    def __init__(
        self, folder: Path, settings: ViewConfig = SETTINGS, journal: MemoryJournal | None = None
    ) -> None:
        self.journal = journal or MemoryJournal()
        self.written = Written(self.journal)
        self.view = View(folder, app, self.journal, settings)
        self.view.start()

    def close(self) -> None:
        self.view.close()

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        table = self.view.ask(Query(query, list(parameters))).table
        return [tuple(row.values()) for row in table.to_pylist()]

    def types(self, table: str) -> dict[str, str]:
        return {row[0]: row[1] for row in self.rows(f"DESCRIBE {table}")}


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Shown]:
    """Give a view of an empty gallery."""
    with closing(Shown(tmp_path)) as shown:
        yield shown


def test_every_type_has_its_column(shown: Shown) -> None:
    """An annotation decides the SQL type; names that differ by case are numbered."""
    assert shown.types("Painting") == {
        "title": "VARCHAR",
        "number": "BIGINT",
        "weight": "DOUBLE",
        "sold": "BOOLEAN",
        "pixels": "BLOB",
        "painted": "TIMESTAMP WITH TIME ZONE",
        "day": "DATE",
        "hour": "TIME",
        "dried": "INTERVAL",
        "price": "DECIMAL(38,12)",
        "ident": "UUID",
        "size": "VARCHAR",
        "hung": "VARCHAR",
        "tags": "VARCHAR[]",
        "colours": "BIGINT[]",
        "offers": "MAP(VARCHAR, BIGINT)",
        "spot": 'STRUCT("_1" DOUBLE, "_2" BIGINT)',
        "route": "BIGINT[]",
        "frame": "STRUCT(wood VARCHAR, width DECIMAL(38,12), ident UUID)",
        "painter": "BIGINT",
        "others": "BIGINT[]",
        "lines": 'STRUCT("_1" BIGINT, "_2" BIGINT)[]',
        "branch": 'STRUCT("name" VARCHAR, below VARCHAR[])',
        "note": "VARCHAR",
        "anything": "VARCHAR",
        "loose": "VARCHAR",
        "rooms": 'STRUCT("key" VARCHAR, "value" BIGINT)[]',
        "coats": 'STRUCT("key" STRUCT("_1" BIGINT, "_2" VARCHAR), "value" INTERVAL)[]',
    }


def test_every_value_arrives(shown: Shown) -> None:
    """Values of every type come out of SQL as they were stored."""
    shown.written.changes(
        ("Painting", "full", state_of("Painting", **FILLED)),
        ("Painting", "plain", state_of("Painting")),
    )
    row = shown.view.ask(Query("SELECT * FROM Painting WHERE title = 'full'")).table.to_pylist()[0]
    interval = row.pop("dried")
    [coat] = row.pop("coats")
    assert coat["key"] == {"_1": 1, "_2": "oil"}
    assert coat["value"].nanoseconds == -5 * 3_600 * 10**9
    assert (interval.days, interval.nanoseconds) in [(-3, 1_000), (0, -3 * 86_400 * 10**9 + 1_000)]
    assert row == {
        "title": "full",
        "number": -(2**63),
        "weight": 0.1,
        "sold": True,
        "pixels": b"\x00\xff",
        "painted": FILLED["painted"],
        "day": date(1, 1, 1),
        "hour": time(1, 2, 3, 4),
        "price": Decimal("1.10"),
        "ident": str(UUID(int=7)),
        "size": "l",
        "hung": "down",
        "tags": ["a", ""],
        "colours": [-2, 1, 3],
        "offers": [("Ada", 1)],
        "spot": {"_1": 0.5, "_2": 2},
        "route": [1, 2, 3],
        "frame": {"wood": "oak", "width": Decimal("2.5"), "ident": str(UUID(int=8))},
        "painter": 7,
        "others": [7, 8],
        "lines": [{"_1": 7, "_2": 1}],
        "branch": {"name": "a", "below": ['{"name":"b","below":[]}']},
        "note": "5",
        "anything": '{"a":[1,null]}',
        "loose": '{"x":1,"y":"Infinity"}',
        "rooms": [{"key": "hall", "value": 2}, {"key": None, "value": 1}],
    }
    nothing = "frame IS NULL AND painter IS NULL AND note IS NULL AND tags = []"
    assert shown.rows(f"SELECT title FROM Painting WHERE {nothing}") == [("plain",)]


@pytest.mark.parametrize(
    ("attribute", "value", "type_", "expected"),
    [
        ("number", 2**64 - 1, "HUGEINT", Decimal(2**64 - 1)),
        ("route", (1, HUGE), "HUGEINT[]", [Decimal(1), Decimal(HUGE)]),
        ("price", Decimal("1e-30"), "DECIMAL(38,12)", Decimal(0)),
        ("price", Decimal("Infinity"), "DECIMAL(38,12)", None),
        ("dried", timedelta.max, "INTERVAL", None),
        ("dried", timedelta(days=-106_752), "INTERVAL", None),
    ],
    ids=str,
)
def test_class_widens_for_a_value(
    shown: Shown, attribute: str, value: Any, type_: str, expected: Any
) -> None:
    """A value that the narrow type cannot hold widens its class; earlier values stay."""
    first = state_of("Painting", **FILLED)
    shown.written.changes(("Painting", "narrow", first))
    assert shown.rows("SELECT number FROM Painting") == [(-(2**63),)]
    shown.written.changes(("Painting", "wide", state_of("Painting", **{attribute: value})))
    found = shown.rows(f"SELECT {attribute} FROM Painting WHERE title = 'wide'")
    assert found[0][0] == expected
    assert shown.types("Painting")[attribute] == type_
    assert shown.types("Painter")["number"] == "BIGINT"
    shown.written.changes(("Painting", "narrow", first), ("Painting", "wide", None))
    assert shown.rows("SELECT number FROM Painting") == [(-(2**63),)]


def test_last_writer_of_a_key_wins(shown: Shown) -> None:
    """After any changes, a table holds the last change of each key."""
    shown.written.painters({1: "Ada", 2: "Bob", 3: "Cyd"})
    shown.written.painters({1: None, 2: "Ben"})
    shown.written.painters({1: "Ann", 3: None})
    expected = [(1, "Ann"), (2, "Ben")]
    assert shown.rows("SELECT number, name FROM Painter ORDER BY number") == expected


def test_requests_replies_and_epochs_are_tables(shown: Shown) -> None:
    """Requests and replies can be queried, failures with code, kind and message."""
    shown.written.requests(1)
    shown.written.requests(1, Failure("aborted", "Torn", "no"))
    assert shown.rows(
        "SELECT epoch, lsn, request_id, epoch_us(time), entity, key, method, arguments FROM requests "
        "ORDER BY lsn"
    ) == [
        (0, 0, "r0", 1_000_000, "Painter", "7", "create", '{"name":"Ada"}'),
        (1, 1, "r1", 1_000_000, "Painter", "7", "create", '{"name":"Ada"}'),
    ]
    assert shown.rows("SELECT * FROM replies ORDER BY lsn") == [
        (0, 0, "r0", None, None, None, "7"),
        (1, 1, "r1", "aborted", "Torn", "no", None),
    ]
    assert shown.rows("SELECT epoch, records FROM epochs ORDER BY epoch") == [(0, 1), (1, 1)]


def test_reply_that_json_cannot_hold_says_so(shown: Shown) -> None:
    """A request that is nested too deeply, or has keys that JSON lacks, stops no other request."""
    shown.written.requests(1, reply=b"\x91" * 200_000 + b"\xc0")
    shown.written.requests(1, reply=msgspec.msgpack.encode({(1, 2): 3, None: 4}))
    shown.written.requests(1, body=b"\x95\xa1x\xc0\xa1y\x91" + b"\x91" * 200_000 + b"\xc0\x80")
    assert [row[0] for row in shown.rows("SELECT value FROM replies ORDER BY lsn")] == [
        '{"_unshown":"it is nested too deeply"}',
        "[[[1,2],3],[null,4]]",
        "7",
    ]
    assert shown.rows("SELECT method FROM requests ORDER BY lsn")[2] == ("",)


def test_only_the_newest_requests_are_kept(tmp_path: Path) -> None:
    """Requests, replies and epochs are bounded, also after a restart; the oldest go first."""
    settings = ViewConfig(memory_mb=256, requests_max=3)
    with closing(Shown(tmp_path, settings)) as shown:
        shown.written.requests(2)
        shown.written.requests(2)
        shown.written.requests(5)
        shown.written.requests(1)
        for table in ("requests", "replies"):
            assert shown.rows(f"SELECT lsn FROM {table} ORDER BY lsn") == [(7,), (8,), (9,)]
        assert shown.rows("SELECT epoch FROM epochs ORDER BY epoch") == [(1,), (2,), (3,)]
        journal = shown.journal
    with closing(Shown(tmp_path, settings, journal)) as shown:
        shown.written.requests(1)
        assert shown.rows("SELECT epoch FROM epochs ORDER BY epoch") == [(2,), (3,), (4,)]


def test_json_spoils_nothing(shown: Shown) -> None:
    """Values that JavaScript cannot hold are text in JSON; the others are JSON values."""
    answer = shown.view.ask(
        Query(
            "SELECT 1 a, 9007199254740993 b, 'NaN'::DOUBLE c, '-inf'::DOUBLE d, 1.50 e, "
            "'a'::BLOB f, MAP {'k': 1.5} g, MAP {1: 2} h, {x: 9007199254740993} i, "
            "INTERVAL 36 HOUR j, DATE '2026-01-02' k, NULL l, ['nan'::FLOAT] m, sum(1) n, "
            "TIMESTAMPTZ '2026-01-02 03:04:05+00' o"
        )
    )
    assert encode_result(answer, ResultFormat.JSON).decode().partition('"rows":')[2] == (
        '[[1,"9007199254740993","NaN","-Infinity","1.50","YQ==",{"k":"1.5"},[[1,2]],'
        '{"x":"9007199254740993"},"PT36H","2026-01-02",null,["NaN"],1,'
        '"2026-01-02T03:04:05Z"]]}'
    )


def client_rows(answer: QueryResult) -> list[tuple[Any, ...]]:
    body = encode_result(answer, ResultFormat.JSON)
    return rows_of(HttpResponse(200, {}, body)).rows


def client_table(answer: QueryResult) -> pa.Table:
    body = encode_result(answer, ResultFormat.ARROW)
    return table_of(HttpResponse(200, {}, body), answer.epoch)


def test_client_has_the_values_that_were_stored(shown: Shown) -> None:
    """Rows have Python values, and a decimal has no zeros that nobody wrote."""
    filled = {**FILLED, "price": Decimal("1.125")}
    shown.written.changes(("Painting", "full", state_of("Painting", **filled)))
    query = (
        "SELECT number, pixels, painted, day, hour, dried, price, ident, colours, offers, spot, "
        "lines, coats, frame, sum(price), price * price, price::DECIMAL(9,4), "
        "MAP {day: price}, [NULL, dried], INTERVAL 2 MONTH FROM Painting GROUP BY ALL"
    )
    [row] = client_rows(shown.view.ask(Query(query)))
    names = ["number", "pixels", "painted", "day", "hour", "dried", "price", "ident"]
    assert row[:8] == tuple(filled[name] for name in names)
    assert row[8:13] == (
        [-2, 1, 3],
        {"Ada": 1},
        (0.5, 2),
        [(7, 1)],
        [{"key": (1, "oil"), "value": timedelta(hours=-5)}],
    )
    assert row[13] == {"wood": "oak", "width": Decimal("2.5"), "ident": UUID(int=8)}
    assert [str(one) for one in row[14:17]] == ["1.125", "1.265625", "1.1250"]
    assert row[17:] == (
        {date(1, 1, 1): Decimal("1.125")},
        [None, FILLED["dried"]],
        "P2M",
    )


SQL_VALUES: list[tuple[str, Any]] = [
    ("170141183460469231731687303715884105727::HUGEINT", 2**127 - 1),
    ("'-inf'::DOUBLE", -math.inf),
    ("TIMESTAMP '2026-01-02 03:04:05'", datetime(2026, 1, 2, 3, 4, 5)),  # noqa: DTZ001
    ("INTERVAL '-1 day 90 minutes'", timedelta(days=-1, minutes=90)),
    ("-INTERVAL '1.5 seconds'", timedelta(seconds=-1.5)),
    ("INTERVAL 0 DAY", timedelta()),
    ("'a'::ENUM('a', 'b)]')", "a"),
    ("{'a \"(': 1.50, b: [UUID '00000000-0000-0000-0000-000000000007']}",
     {'a "(': Decimal("1.50"), "b": [UUID(int=7)]}),
    ("MAP {'x': MAP {1: [0.5::DECIMAL(38,12)]}}", {"x": {1: [Decimal("0.5")]}}),
    ("MAP {[1]: DATE '2026-01-02'}", [([1], date(2026, 1, 2))]),
    ("[[1, 2]]::INTEGER[2][]", [[1, 2]]),
    ("union_value(x := 1)", 1),
    ("{}::JSON", "{}"),
    ("row(1, 2.0, DATE '2026-01-02')", (1, Decimal("2.0"), date(2026, 1, 2))),
    ("NULL", None),
    ("100::DECIMAL(38,12)", Decimal(100)),
]  # fmt: skip


def test_every_sql_type_is_a_python_value(shown: Shown) -> None:
    """A column's type decides the type of the Python value, at any depth."""
    selects = ", ".join(f"{select} AS x{index}" for index, (select, _) in enumerate(SQL_VALUES))
    [row] = client_rows(shown.view.ask(Query(f"SELECT {selects}")))
    for (select, value), found in zip(SQL_VALUES, row, strict=True):
        assert (repr(found), type(found)) == (repr(value), type(value)), select


def test_arrow_table_shows_values_as_written(shown: Shown) -> None:
    """Decimals have the places that the column needs, and intervals are durations."""
    shown.written.changes(
        *(
            ("Painting", str(price), state_of("Painting", **{**FILLED, "price": Decimal(price)}))
            for price in ("12.5", "0.25", "3")
        )
    )
    query = "SELECT price, dried, frame, {'k': [price]} AS deep FROM Painting ORDER BY price DESC"
    table = client_table(shown.view.ask(Query(query)))
    assert [str(one) for one in table["price"].to_pylist()] == ["12.50", "3.00", "0.25"]
    assert table["dried"].to_pylist() == [FILLED["dried"]] * 3
    assert str(table["frame"][0].as_py()["width"]) == "2.5"
    assert str(table["deep"][2].as_py()["k"][0]) == "0.25"
    months = client_table(shown.view.ask(Query("SELECT INTERVAL 1 MONTH AS m")))
    assert months["m"][0].as_py().months == 1
    empty = client_table(shown.view.ask(Query("SELECT price, dried FROM Painting WHERE false")))
    assert empty.num_rows == 0


def test_wrong_value_of_a_gateway_is_an_error() -> None:
    """A value that does not have the type of its column is an error that names the result."""
    for kind, value in [
        ("DECIMAL(9,2)", '"x"'),
        ("DATE", "7"),
        ("STRUCT(a DATE", "{}"),
        ("BLOB[]", "1"),
    ]:
        body = b'{"epoch":1,"columns":[{"name":"a","type":"%b"}],"rows":[[%b]]}'
        response = HttpResponse(200, {}, body % (kind.encode(), value.encode()))
        with pytest.raises(OperationalError, match="the result of the query cannot be read"):
            rows_of(response)


def test_decimals_have_no_zeros_that_nobody_wrote(shown: Shown) -> None:
    """The rule of a column holds inside of lists, records and maps, and for zero; a CAST keeps its places."""
    price = "24.5::DECIMAL(38,12)"
    inside = f"{price} a, [{price}] b, {{x: {price}}} c, MAP {{{price}: [3::DECIMAL(38,12)]}} d"
    answer = shown.view.ask(Query(f"SELECT {inside}, (-0.0)::DECIMAL(38,12) e, 2::DECIMAL(9,2) f"))
    assert json_rows(answer.table) == [
        ("24.5", ["24.5"], {"x": "24.5"}, [("24.5", ["3"])], "0", "2.00")
    ]
    assert short_decimal(Decimal("-0.00")) == "0"


def test_csv_tells_null_from_nothing(shown: Shown) -> None:
    """NULL is empty and empty text is quoted; nested values are JSON."""
    answer = shown.view.ask(
        Query(
            "SELECT NULL a, '' b, [1, 2] c, {x: 'y'} d, 0.5::DOUBLE e, true f, "
            "12.5::DECIMAL(38,12) g, TIMESTAMPTZ '2026-01-02 03:04:05Z' h, INTERVAL 90 MINUTE i"
        )
    )
    header, row = encode_result(answer, ResultFormat.CSV).decode().splitlines()
    assert header == '"a","b","c","d","e","f","g","h","i"'
    assert row == ',"","[1,2]","{""x"":""y""}","0.5",true,"12.5","2026-01-02T03:04:05Z","PT1H30M"'
