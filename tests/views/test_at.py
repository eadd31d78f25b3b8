"""`POST /at` and `client.at`: several stores, read at one epoch."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from unittest.mock import ANY

import httpx
import msgspec
import pytest

from penstock.client.asynchronous import AsyncClient
from penstock.client.results import PointAnswer
from penstock.client.synchronous import Client, PointSession
from penstock.errors import Gone, Overloaded, QueryError, RequestError, TimedOut, ViewUnavailable
from penstock.gateway import point_sessions
from penstock.gateway.point_sessions import SESSIONS_MAX
from penstock.process.view_files import ViewState, change_orders, folder_of, read_report
from penstock.views.search_index import SearchIndex, SearchQuery
from tests.gateway_thread import RunningGateway
from tests.views.appliers import appliers
from tests.views.money_app import app
from tests.waiting import meanwhile, wait_for

pytestmark = pytest.mark.long

NAMES = [f"n{number}" for number in range(10)]
SUM = 'SELECT coalesce(sum("coins"), 0) FROM "Wallet"'
WALLETS = {"view": "books", "sql": SUM}
PURSES = {"view": "purses", "search": {"limit": 100}}
LONG_S = 60.0
PAUSE_S = 0.01  # so that payments leave the processor to the reads


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    with (
        RunningGateway("tests.views.money_app:app", tmp_path, reads=False) as running,
        appliers(app, tmp_path),
    ):
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway for tests that change nothing."""
    data = tmp_path_factory.mktemp("shared")
    with (
        RunningGateway("tests.views.money_app:app", data, reads=False) as running,
        appliers(app, data),
    ):
        with Client(running.url, app) as client:
            open_accounts(client)
        yield running


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway for tests that move money between the ten accounts."""
    data = tmp_path_factory.mktemp("moving")
    with (
        RunningGateway("tests.views.money_app:app", data, reads=False) as running,
        appliers(app, data),
    ):
        with Client(running.url, app) as client:
            open_accounts(client)
        yield running


@contextmanager
def payments(url: str) -> Iterator[None]:
    """Move coins without end."""
    draw = Random(7)

    def pay(stop: threading.Event) -> None:
        with Client(url, app) as client:
            while not stop.wait(PAUSE_S):
                client.bulk(
                    [
                        client.prepare.Wallet(draw.choice(NAMES)).pay(
                            app.entities["Purse"].cls(draw.choice(NAMES)), draw.randrange(1, 100)
                        )
                        for _ in range(5)
                    ]
                )

    with meanwhile(pay):
        yield


def open_accounts(client: Client) -> None:
    client.bulk([client.prepare.Wallet.create(name) for name in NAMES])
    client.bulk([client.prepare.Purse.create(name) for name in NAMES])


def total(answer: PointAnswer) -> int:
    wallets, purses = answer.answers
    assert purses.search is not None
    assert purses.search.epoch == answer.epoch
    coins: int = wallets.rows[0][0] + sum(hit.row["coins"] for hit in purses.search.hits)
    return coins


def test_two_stores_are_read_at_one_epoch(moving: RunningGateway) -> None:
    """Each answer adds up to 0 while money moves; two reads without `at` do not, so the test can fail."""
    with Client(moving.url, app) as client, payments(moving.url):
        epochs: list[int] = []
        while len(epochs) < 15 or len(set(epochs)) <= 5:
            answer = client.at(WALLETS, PURSES, timeout_s=LONG_S)
            assert total(answer) == 0
            epochs.append(answer.epoch)
        assert epochs == sorted(epochs)
        wait_for(lambda: naive_total(moving.config.data), "a sum of two reads that is not 0")


def naive_total(data: Path) -> int:
    """Read both stores, one after the other; the second one shows a later epoch."""
    with closing(sqlite3.connect(folder_of(data, "books") / "view.sqlite")) as connection:
        (coins,) = connection.execute(SUM).fetchone()
    index = SearchIndex(folder_of(data, "purses"))
    query = SearchQuery(limit=100)
    former = index.search(query).epoch
    wait_for(lambda: index.search(query).epoch > former, "the next epoch")
    hits = index.search(query).hits
    shown: int = coins + sum(msgspec.json.decode(hit.row)["coins"] for hit in hits)
    return shown


def test_the_answer_has_the_writes_of_the_client(moving: RunningGateway) -> None:
    """A question behind a reply sees its effect in every store."""
    with Client(moving.url, app) as client:
        ((coins,),) = client.at(WALLETS, PURSES, timeout_s=LONG_S).answers[0].rows
        for turn in range(1, 10):
            client.Wallet("n1").pay(app.entities["Purse"].cls("n2"), 1)
            answer = client.at(WALLETS, PURSES, timeout_s=LONG_S)
            assert answer.epoch >= client.epoch
            assert answer.answers[0].rows == [(coins - turn,)]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"view": "book", "sql": "SELECT 1"}, "did you mean books"),
        ({"view": "books"}, "name sql or search, and not both"),
        ({"view": "books", "sql": "SELEC 1"}, "syntax error"),
        ({"view": "books", "sql": 'DELETE FROM "Wallet"'}, "read with SELECT"),
        ({"view": "books", "sql": "ATTACH 'other' AS other"}, "read with SELECT"),
        ({"view": "books", "sql": "PRAGMA journal_mode = DELETE"}, "read with SELECT"),
        ({"view": "books", "sql": "SELECT randomblob(1000000000)"}, "too big"),
        ({"view": "books", "search": {}}, "ask it with sql"),
        ({"view": "purses", "sql": "SELECT 1"}, "ask it with search"),
        ({"search": {"query": "tea"}}, "a search names its view"),
        ({"view": "purses", "search": {"limmit": 3}}, "unknown field `limmit`"),
        ({"view": "purses", "search": {"limit": "many"}}, "Expected `int`"),
    ],
)
def test_wrong_question_is_refused(
    shared: RunningGateway, question: dict[str, object], said: str
) -> None:
    """The message says what is wrong; nothing is written."""
    with (
        Client(shared.url, app) as client,
        pytest.raises((RequestError, QueryError), match=said),
    ):
        client.at(question)


def test_endless_query_ends_in_time(shared: RunningGateway) -> None:
    """A query that never ends costs its own caller its time, and nobody else."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    with Client(shared.url, app) as client:
        with pytest.raises((QueryError, TimedOut), match=r"too long|not answered|in common"):
            client.at({"view": "books", "sql": endless}, timeout_s=0.5)
        assert total(client.at(WALLETS, PURSES, timeout_s=LONG_S)) == 0


def test_view_that_is_not_fed_is_named(gateway: RunningGateway, tmp_path: Path) -> None:
    """Without the applier of one view, the error names it, and says why."""
    with Client(gateway.url, app) as client:
        open_accounts(client)
        assert total(client.at(WALLETS, PURSES, timeout_s=LONG_S)) == 0
        change_orders(
            tmp_path,
            "purses",
            lambda orders: msgspec.structs.replace(orders, paused=True, reason="lunch"),
        )

        def is_paused() -> bool:
            report = read_report(tmp_path, "purses")
            return report is not None and report.state is ViewState.PAUSED

        wait_for(is_paused, "the pause")
        client.Wallet("n1").pay(app.entities["Purse"].cls("n2"), 1)
        with pytest.raises(ViewUnavailable, match=r"view purses has not reached .* paused: lunch"):
            client.at(WALLETS, PURSES)


def test_epoch_that_never_comes_stops_nobody_else(shared: RunningGateway) -> None:
    """Callers who ask for a distant epoch wait for themselves, more of them than the gateway has threads."""
    distant = {"questions": [WALLETS], "timeout_ms": 10_000}
    headers = {"Penstock-Min-Epoch": "1000000000"}
    with Client(shared.url, app) as client, ThreadPoolExecutor(8) as threads:
        asked = [
            threads.submit(
                httpx.post, f"{shared.url}/at", json=distant, headers=headers, timeout=60
            )
            for _ in range(8)
        ]
        for _ in range(3):
            assert total(client.at(WALLETS, PURSES, timeout_s=LONG_S)) == 0
            assert not any(each.done() for each in asked)
        assert [each.result().status_code for each in asked] == [504] * 8


def test_store_of_another_journal_is_no_answer(gateway: RunningGateway, tmp_path: Path) -> None:
    """A store whose tables another journal has filled is refused, although its epoch has the same number."""
    with Client(gateway.url, app) as client:
        open_accounts(client)
        change_orders(
            tmp_path, "books", lambda orders: msgspec.structs.replace(orders, paused=True)
        )

        def is_paused() -> bool:
            report = read_report(tmp_path, "books")
            return report is not None and report.state is ViewState.PAUSED

        wait_for(is_paused, "the pause")
        path = folder_of(tmp_path, "books") / "view.sqlite"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE _penstock_view SET journal = 'another'")
        with pytest.raises(ViewUnavailable, match="filled from another journal"):
            client.at(WALLETS)


def paying(client: Client, coins: int) -> None:
    client.Wallet("n1").pay(app.entities["Purse"].cls("n2"), coins)


@pytest.mark.turns(1, "views", "sql_view", "gateway", "client", of="readers beside a writer")
def test_session_sees_one_epoch_while_money_moves(moving: RunningGateway) -> None:
    """Twenty questions, one after the other, are of one epoch in both stores; a new session sees a newer one."""
    with Client(moving.url, app) as client:
        seen = -1
        with payments(moving.url):
            for _ in range(2):
                with client.at("books", "purses", timeout_s=LONG_S) as both:
                    assert both.epoch > seen
                    first = both.sql("books", 'SELECT "name", "coins" FROM "Wallet" ORDER BY 1')
                    for _ in range(10):
                        assert both.sql("books", SUM).rows[0][0] + purses_in(both) == 0
                    assert (
                        both.sql("books", 'SELECT "name", "coins" FROM "Wallet" ORDER BY 1')
                        == first
                    )
                    seen = both.epoch
                paying(client, 1)


def purses_in(both: PointSession) -> int:
    found = both.search("purses", limit=100)
    assert found.epoch == both.epoch
    coins: int = sum(hit.row["coins"] for hit in found.hits)
    return coins


def test_async_session(shared: RunningGateway) -> None:
    """The client of an event loop has the same session."""

    async def ask() -> None:
        async with (
            AsyncClient(shared.url, app) as client,
            client.at("books", timeout_s=LONG_S) as books,
        ):
            assert (await books.sql("books", SUM)).rows == [(0,)]
            with pytest.raises(RequestError, match="view of this session"):
                await books.search("purses")

    asyncio.run(ask())


def test_session_ends_when_it_is_idle(
    shared: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session without questions ends by itself; the error says what to do, and its places are free again."""
    monkeypatch.setattr(point_sessions, "IDLE_S", 0.2)
    with Client(shared.url, app) as client:
        for _ in range(3):
            with client.at("books", timeout_s=LONG_S) as books:
                wait_for(lambda: not sessions_of(shared), "the end of the session")
                with pytest.raises(Gone, match="begin another one with POST /at"):
                    books.sql("books", SUM)


def test_session_ends_at_its_time(shared: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that is asked all the time ends, too."""
    monkeypatch.setattr(point_sessions, "TIME_S", 1.0)
    with Client(shared.url, app) as client:

        def ask_without_end() -> None:
            with client.at("books", timeout_s=LONG_S) as books:
                while True:
                    books.sql("books", SUM)

        with pytest.raises((Gone, QueryError)):
            ask_without_end()
        wait_for(lambda: not sessions_of(shared), "the end of the session")


def sessions_of(gateway: RunningGateway) -> int:
    text = httpx.get(f"{gateway.url}/metrics", timeout=LONG_S).text
    (line,) = [each for each in text.splitlines() if each.startswith("penstock_point_sessions ")]
    return int(float(line.split()[1]))


def test_one_caller_has_a_part_of_the_sessions(shared: RunningGateway) -> None:
    """Too many sessions are refused, and those that end make room."""
    with Client(shared.url, app, retries=0) as client, ExitStack() as stack:
        for _ in range(SESSIONS_MAX // 2):
            stack.enter_context(client.at("books", timeout_s=LONG_S))
        with pytest.raises(Overloaded, match="are open at this gateway"), client.at("books"):
            pass
        assert sessions_of(shared) == SESSIONS_MAX // 2
        stack.close()
        assert not sessions_of(shared)
        with client.at("books", timeout_s=LONG_S) as books:
            assert books.sql("books", SUM).rows == [(0,)]


def test_session_is_reached_through_every_gateway(shared: RunningGateway) -> None:
    """A question may reach another gateway than the one that has begun the session; when that one ends, it is gone."""
    gateway, data = shared, shared.config.data
    sockets = sorted((data / "run").glob("at-*"))
    with RunningGateway("tests.views.money_app:app", data, drives=False, reads=False) as other:
        begun = httpx.post(f"{other.url}/at", json={"views": ["books"]}, timeout=LONG_S).json()
        for each in (gateway, other):
            asked = httpx.post(
                f"{each.url}/at/{begun['session']}", json={"questions": [WALLETS]}, timeout=LONG_S
            )
            assert asked.json() == {
                **begun,
                "answers": [{"columns": [ANY], "rows": [[0]], "search": None}],
            }
            assert asked.headers["Penstock-Epoch"] == str(begun["epoch"])
        wrong = httpx.post(
            f"{gateway.url}/at/{begun['session']}", json={"questions": [PURSES]}, timeout=LONG_S
        )
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "request")
        assert (
            httpx.delete(f"{gateway.url}/at/{begun['session']}", timeout=LONG_S).status_code == 204
        )
        assert (
            refusal(gateway, begun["session"]) == refusal(other, begun["session"]) == (410, "gone")
        )
        begun = httpx.post(f"{other.url}/at", json={"views": ["books"]}, timeout=LONG_S).json()
    assert refusal(gateway, begun["session"]) == (410, "gone")
    assert sorted((data / "run").glob("at-*")) == sockets


def refusal(gateway: RunningGateway, session: str) -> tuple[int, str]:
    asked = httpx.post(f"{gateway.url}/at/{session}", json={"questions": [WALLETS]}, timeout=LONG_S)
    return asked.status_code, asked.json()["error"]["code"]


@pytest.mark.turns(1, "views", "sql_view", "gateway", "client", of="readers beside a writer")
def test_callers_at_the_same_time_share_stops(moving: RunningGateway) -> None:
    """Many callers at once all get right answers of epochs that are new enough for each."""
    with (
        Client(moving.url, app) as client,
        payments(moving.url),
        ThreadPoolExecutor(30) as threads,
    ):

        def ask(_: int) -> None:
            before = client.epoch
            answer = client.at(WALLETS, PURSES, timeout_s=LONG_S)
            assert total(answer) == 0
            assert answer.epoch >= before

        list(threads.map(ask, range(60)))
