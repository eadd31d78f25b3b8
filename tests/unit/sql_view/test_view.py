"""The SQL view's questions: epochs, limits, parameters; and its socket."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from penstock.base.ids import Epoch
from penstock.errors import QueryError, ViewUnavailable
from penstock.process.config import ViewConfig
from penstock.sql_view.query import Query
from penstock.sql_view.server import WAITING_MAX, ViewEndpoints
from penstock.sql_view.view import View
from tests.memory_journal import MemoryJournal
from tests.unit.sql_view.gallery_app import Written, app


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    """Start a view of two painters for all tests that commit nothing."""
    journal = MemoryJournal()
    Written(journal).painters({1: "Ada", 2: "Bob"})
    settings = ViewConfig(memory_mb=128, time_ms=60_000, rows_max=1_000)
    with closing(View(tmp_path_factory.mktemp("still"), app, journal, settings)) as view:
        view.start()
        assert view.await_epoch(Epoch(0), 60)
        yield view


@pytest.fixture
def moving(tmp_path: Path, journal: MemoryJournal, settings: ViewConfig) -> Iterator[View]:
    """Start a view of a journal to which the test commits."""
    with closing(View(tmp_path, app, journal, settings)) as view:
        view.start()
        yield view


def asked(
    view: View, method: str, path: str, *, running: int = 0, **given: object
) -> httpx.Response:
    """Ask the endpoints as a gateway does, while `running` other queries of the caller run."""

    async def ask() -> httpx.Response:
        endpoints = ViewEndpoints(view)
        endpoints._inside[""] += running
        transport = httpx.ASGITransport(endpoints.application())
        async with httpx.AsyncClient(transport=transport, base_url="http://view") as client:
            try:
                return await client.request(method, path, **given)  # type: ignore[arg-type]
            finally:
                endpoints.close()

    return asyncio.run(ask())


def test_answer_has_the_newest_commit(moving: View, journal: MemoryJournal) -> None:
    """Commits before the question are in the answer."""
    written = Written(journal)
    for number in range(3, 20):
        epoch = written.painters({number: "Cyd"})
        answer = moving.ask(Query("SELECT count(*) AS n FROM Painter"))
        assert answer.epoch >= epoch
        assert answer.table.to_pylist() == [{"n": number}]


def test_values_too_large_for_its_memory_do_not_stop_the_view(
    tmp_path: Path, journal: MemoryJournal
) -> None:
    """The largest ones become NULL, their rows say why, all else is shown; also after a restart."""
    written = Written(journal)
    for number in range(10):
        names = {10 * number + at: "x" * (1_500_000 + at) for at in range(10, 16)}
        written.painters({**names, 10 * number + 19: f"small {number}"})
    query = "SELECT count(name) AS shown, count(_unshown) AS withheld FROM Painter"
    small = ViewConfig(memory_mb=64, time_ms=120_000, rows_max=1_000)
    for _ in range(2):
        with closing(View(tmp_path, app, journal, small)) as view:
            view.start()
            [row] = view.ask(Query(query, min_epoch=written.epoch)).table.to_pylist()
            assert row == {"shown": 12, "withheld": 60}
            reasons = view.ask(Query("SELECT DISTINCT _unshown FROM Painter")).table
            assert any("view.memory_mb" in str(one) for one in reasons["_unshown"].to_pylist())


def test_query_sees_one_epoch(moving: View, journal: MemoryJournal) -> None:
    """Tables of one answer never disagree, however many epochs are applied meanwhile."""
    written = Written(journal)
    ended = threading.Event()

    def commit() -> None:
        for number in range(150):
            written.painters({1: str(number), 2: str(number)})
        ended.set()

    writer = threading.Thread(target=commit)
    writer.start()
    query = "SELECT (SELECT max(epoch) FROM epochs) e, min(name) a, max(name) b FROM Painter"
    moving.ask(Query("SELECT 1", min_epoch=1))
    while not ended.is_set():
        answer = moving.ask(Query(query, min_epoch=1))
        [row] = answer.table.to_pylist()
        assert row == {"e": answer.epoch, "a": str(answer.epoch - 1), "b": str(answer.epoch - 1)}
    writer.join()


def test_epoch_that_does_not_come_is_told(view: View) -> None:
    """A caller that waits for an epoch in vain learns the view's epoch."""
    with pytest.raises(ViewUnavailable, match="has come to epoch 0, and 7 is asked for"):
        view.ask(Query("SELECT 1", min_epoch=7, timeout_ms=50))


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        ("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b", "view.time_ms"),
        ("SELECT * FROM range(1001)", "1,000 rows"),
        ("SELECT * FROM range(1000000000000)", "1,000 rows"),
        ("SELECT list(range) FROM range(1000000000)", "view.memory_mb"),
        ("SELECT repeat('x', 1000000) FROM range(900)", "view.memory_mb"),
    ],
)
def test_limit_is_kept_and_named(view: View, query: str, limit: str) -> None:
    """Time, rows and memory end a query with an error that names the limit; the next one runs."""
    with pytest.raises(QueryError, match=limit):
        view.ask(Query(query, timeout_ms=400 if limit == "view.time_ms" else 60_000))
    assert view.ask(Query("SELECT 1")).table.num_rows == 1


def test_query_ends_however_short_its_time_is(view: View) -> None:
    """Time that is up between two statements of DuckDB ends the query, too."""
    query = "SELECT count(*) FROM range(100000000000) WHERE range % 7 = hash(range) % 5"
    for timeout_ms in [1, 2, 3, 4] * 10:
        with pytest.raises((QueryError, ViewUnavailable)):
            view.ask(Query(query, timeout_ms=timeout_ms))


def test_limits_can_be_lowered_only(view: View) -> None:
    """A question may ask for less than the view's limits, not for more."""
    query = "SELECT * FROM range(1000)"
    assert view.ask(Query(query, rows_max=10**9)).table.num_rows == 1_000
    with pytest.raises(QueryError, match="more than 5 rows"):
        view.ask(Query(query, rows_max=5))


@pytest.mark.parametrize(
    ("query", "parameters"),
    [
        ("SELECT name FROM Painter WHERE number = ?", [1]),
        ("SELECT name FROM Painter WHERE number = $1", [1]),
        ("SELECT name FROM Painter WHERE number = $n", {"n": 1}),
        ("SELECT name FROM Painter WHERE number = $n", {"$n": 1}),
        ("SELECT name FROM Painter WHERE list_contains(?, number)", [[1]]),
    ],
)
def test_parameters_are_bound(view: View, query: str, parameters: object) -> None:
    """Parameters come by position or by name."""
    found = view.ask(Query(query, parameters))  # type: ignore[arg-type]
    assert found.table.to_pylist() == [{"name": "Ada"}]


@pytest.mark.parametrize("parameters", [[], [1, 2], {"x": 1}])
def test_wrong_parameters_are_refused(view: View, parameters: object) -> None:
    """Too few, too many, or others than the query has are the caller's mistake."""
    query = "SELECT name FROM Painter WHERE number = ?"
    with pytest.raises(QueryError):
        view.ask(Query(query, parameters))  # type: ignore[arg-type]


def test_socket_answers_in_three_formats(view: View) -> None:
    """`Accept` chooses the format, headers name the epoch."""
    body = {"query": "SELECT number, name FROM Painter WHERE number = 1"}
    answer = asked(view, "POST", "/sql", json=body)
    assert answer.headers["penstock-epoch"] == "0"
    assert answer.json() == {
        "epoch": 0,
        "columns": [{"name": "number", "type": "BIGINT"}, {"name": "name", "type": "VARCHAR"}],
        "rows": [[1, "Ada"]],
    }
    answer = asked(view, "POST", "/sql", json=body, headers={"Accept": "text/csv;q=1, */*"})
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.text == '"number","name"\n1,"Ada"\n'


def test_large_answer_comes_in_pieces(view: View) -> None:
    """An answer that does not lie in memory arrives whole, and says its size first."""
    body = {"query": "SELECT repeat('x', 3000) AS x FROM range(900)"}
    answer = asked(view, "POST", "/sql", json=body, headers={"Accept": "text/csv"})
    assert answer.text.splitlines() == ['"x"', *[f'"{"x" * 3_000}"'] * 900]
    assert answer.headers["content-length"] == str(len(answer.content))


@pytest.mark.parametrize(
    "value", ["'infinity'::DATE", "'-infinity'::TIMESTAMP", "['290000-01-01'::TIMESTAMP]"]
)
@pytest.mark.parametrize("media", ["application/json", "text/csv"])
def test_time_that_json_cannot_show_is_named(view: View, value: str, media: str) -> None:
    """An infinite or far date is not an error of the view: the column is named, and Arrow has it."""
    body = {"query": f"SELECT {value} AS far"}
    answer = asked(view, "POST", "/sql", json=body, headers={"Accept": media})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "query")
    assert answer.json()["error"]["message"].startswith("the column far has a time")
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    assert asked(view, "POST", "/sql", json=body, headers=arrow).status_code == 200


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"query": 1}', b'{"query": "SELECT 1", "x": 1}', b"\xff"]
)
def test_body_that_is_no_question_is_refused(view: View, body: bytes) -> None:
    """A body that cannot be read is 400 with the code of a query's error."""
    answer = asked(view, "POST", "/sql", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "query")


def test_what_comes_later_is_503(view: View) -> None:
    """An epoch that is not there yet asks the client to come again."""
    body = {"query": "SELECT 1", "timeout_ms": 20}
    answer = asked(view, "POST", "/sql", json=body, headers={"Penstock-Min-Epoch": "9"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "view-unavailable")
    assert answer.headers["retry-after"] == "1"


def test_too_many_queries_are_429(view: View) -> None:
    """A caller with half of all places is refused, with the status that a gateway gives an overload."""
    body = {"query": "SELECT 1"}
    answer = asked(view, "POST", "/sql", json=body, running=WAITING_MAX // 2)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "overloaded")
    assert answer.headers["retry-after"] == "1"
    assert asked(view, "POST", "/sql", json=body, running=WAITING_MAX // 2 - 1).is_success


def test_status_tells_how_it_stands(view: View) -> None:
    """Epoch, lag, rows and size."""
    assert view.await_epoch(Epoch(0), 5)
    told = asked(view, "GET", "/status").json()
    assert told.pop("size_bytes") > 0
    assert told == {"epoch": 0, "journal_epoch": 0, "lag": 0, "rebuilding": False, "rows": 2}


def test_epoch_may_only_delete(moving: View, journal: MemoryJournal) -> None:
    """An epoch in which a class loses entities and gains none is applied as any other."""
    Written(journal).painters({1: None})
    assert moving.ask(Query("SELECT name FROM Painter")).table.to_pylist() == [{"name": "Bob"}]


def test_past_is_answered_beside_the_present(view: View) -> None:
    """Over the socket a question of the past names its epoch, and lines are JSON of each row."""
    body = {"query": "SELECT number, name FROM Painter", "as_of": {"epoch": 0}}
    answer = asked(view, "POST", "/sql", json=body, headers={"Accept": "application/x-ndjson"})
    assert answer.headers["penstock-epoch"] == "0"
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert answer.text == '{"number":1,"name":"Ada"}\n{"number":2,"name":"Bob"}\n'
    wrong = asked(view, "POST", "/sql", json={**body, "as_of": {"epoch": 7}})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "query")
    assert "holds epoch 0" in wrong.json()["error"]["message"]


HUGE = 2**127
WRONG_NUMBERS = {
    "min_epoch": [-1, 10**18, 10**23, -(10**23)],
    "timeout_ms": [-1, 0, 10**23],
    "rows_max": [-1, 10**23],
}


@pytest.mark.parametrize("value", [2**63, 2**64, -(2**63) - 1, HUGE - 1, -HUGE])
def test_integers_beyond_64_bits_are_exact(view: View, value: int) -> None:
    """An integer of up to 128 bits goes into a query and comes back as it is."""
    answer = asked(view, "POST", "/sql", json={"query": "SELECT ? AS a", "parameters": [value]})
    assert (answer.status_code, answer.json()["rows"]) == (200, [[str(value)]])


@pytest.mark.parametrize(
    "query",
    [
        {"query": "SELECT ? AS a", "parameters": [HUGE]},
        {"query": "SELECT ? AS a", "parameters": [10**60]},
        {"query": "SELECT $x AS a", "parameters": {"x": [[10**60]]}},
        {"query": f"SELECT {HUGE} AS a"},
        {"query": f"SELECT {10**60} AS a"},
        {"query": f"SELECT [{{'x': {10**60}}}] AS a"},
    ],
)
def test_integers_that_no_answer_can_hold_are_refused(view: View, query: dict[str, object]) -> None:
    """A larger integer is an error that names it or its column; its bits never become another number."""
    answer = asked(view, "POST", "/sql", json=query)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "query")
    assert str(10**60) in error["message"] or "the column a" in error["message"]


@pytest.mark.parametrize(
    ("field", "value"), [(name, value) for name, each in WRONG_NUMBERS.items() for value in each]
)
def test_numbers_of_a_query_have_bounds(view: View, field: str, value: int) -> None:
    """A number that no query can obey is refused with its name; zero rows are zero rows."""
    answer = asked(view, "POST", "/sql", json={"query": "SELECT 1", field: value})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "query")
    assert f"$.{field}" in answer.json()["error"]["message"]


@pytest.mark.parametrize("text", ["9" * 30, "-1", "soon", "1_0", "1, 2", ""])
def test_header_of_an_epoch_is_checked(view: View, text: str) -> None:
    """The header takes what the field takes."""
    headers = {"Penstock-Min-Epoch": text}
    answer = asked(view, "POST", "/sql", json={"query": "SELECT 1"}, headers=headers)
    assert answer.status_code == 400
    assert "Penstock-Min-Epoch" in answer.json()["error"]["message"]


def test_no_rows_are_allowed_where_none_come(view: View) -> None:
    """`rows_max` of 0 is obeyed."""
    empty = {"query": "SELECT 1 WHERE false", "rows_max": 0}
    assert asked(view, "POST", "/sql", json=empty).status_code == 200
    full = asked(view, "POST", "/sql", json={"query": "SELECT 1", "rows_max": 0})
    assert "more than 0 rows" in full.json()["error"]["message"]


def test_deep_json_is_an_error_of_its_sender(view: View) -> None:
    """A body that no decoder can follow gets 400, as all other bodies that are no query."""
    body = b'{"query": "SELECT 1", "parameters": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    assert asked(view, "POST", "/sql", content=body).status_code == 400
