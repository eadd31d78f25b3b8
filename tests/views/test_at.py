"""`POST /at` and `client.at`: several stores, read at one epoch."""

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import httpx
import msgspec
import pytest

from penstock.client.results import PointAnswer
from penstock.client.synchronous import Client
from penstock.errors import QueryError, RequestError, TimedOut, ViewUnavailable
from penstock.process.view_files import ViewState, change_orders, folder_of, read_report
from penstock.views.search_index import SearchIndex, SearchQuery
from tests.gateway_thread import RunningGateway
from tests.views.appliers import appliers
from tests.views.money_app import app
from tests.waiting import wait_for

pytestmark = pytest.mark.long

NAMES = [f"n{number}" for number in range(10)]
SUM = 'SELECT coalesce(sum("coins"), 0) FROM "Wallet"'
WALLETS = {"view": "books", "sql": SUM}
PURSES = {"view": "purses", "search": {"limit": 100}}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    with RunningGateway("tests.views.money_app:app", tmp_path) as running, appliers(app, tmp_path):
        yield running


@contextmanager
def payments(url: str) -> Iterator[None]:
    """Move coins without end."""
    stop = threading.Event()
    draw = Random(7)

    def pay() -> None:
        with Client(url, app) as client:
            while not stop.is_set():
                client.bulk(
                    [
                        client.prepare.Wallet(draw.choice(NAMES)).pay(
                            app.entities["Purse"].cls(draw.choice(NAMES)), draw.randrange(1, 100)
                        )
                        for _ in range(5)
                    ]
                )

    thread = threading.Thread(target=pay)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def open_accounts(client: Client) -> None:
    client.bulk([client.prepare.Wallet.create(name) for name in NAMES])
    client.bulk([client.prepare.Purse.create(name) for name in NAMES])


def total(answer: PointAnswer) -> int:
    wallets, purses = answer.answers
    assert purses.search is not None
    assert purses.search.epoch == answer.epoch
    coins: int = wallets.rows[0][0] + sum(hit.row["coins"] for hit in purses.search.hits)
    return coins


def test_two_stores_are_read_at_one_epoch(gateway: RunningGateway, tmp_path: Path) -> None:
    """Each answer adds up to 0 while money moves; two reads without `at` do not, so the test can fail."""
    with Client(gateway.url, app) as client:
        open_accounts(client)
        with payments(gateway.url):
            epochs = []
            for _ in range(60):
                answer = client.at(WALLETS, PURSES)
                assert total(answer) == 0
                epochs.append(answer.epoch)
            assert len(set(epochs)) > 10
            assert epochs == sorted(epochs)
            assert any(naive_total(tmp_path) for _ in range(1_000))


def naive_total(data: Path) -> int:
    """Read both stores, one after the other."""
    with closing(sqlite3.connect(folder_of(data, "books") / "view.sqlite")) as connection:
        (coins,) = connection.execute(SUM).fetchone()
    hits = SearchIndex(folder_of(data, "purses")).search(SearchQuery(limit=100)).hits
    shown: int = coins + sum(msgspec.json.decode(hit.row)["coins"] for hit in hits)
    return shown


def test_the_answer_has_the_writes_of_the_client(gateway: RunningGateway) -> None:
    """A question behind a reply sees its effect in every store."""
    with Client(gateway.url, app) as client:
        open_accounts(client)
        for turn in range(1, 20):
            client.Wallet("n1").pay(app.entities["Purse"].cls("n2"), 1)
            answer = client.at(WALLETS, PURSES)
            assert answer.epoch >= client.epoch
            assert answer.answers[0].rows == [(-turn,)]


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
    gateway: RunningGateway, question: dict[str, object], said: str
) -> None:
    """The message says what is wrong; nothing is written."""
    with Client(gateway.url, app) as client:
        open_accounts(client)
        with pytest.raises((RequestError, QueryError), match=said):
            client.at(question)


def test_endless_query_ends_in_time(gateway: RunningGateway) -> None:
    """A query that never ends costs its own caller its time, and nobody else."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    with Client(gateway.url, app) as client:
        open_accounts(client)
        with pytest.raises((QueryError, TimedOut), match=r"too long|not answered"):
            client.at({"view": "books", "sql": endless}, timeout_s=0.5)
        assert total(client.at(WALLETS, PURSES)) == 0


def test_view_that_is_not_fed_is_named(gateway: RunningGateway, tmp_path: Path) -> None:
    """Without the applier of one view, the error names it, and says why."""
    with Client(gateway.url, app) as client:
        open_accounts(client)
        assert total(client.at(WALLETS, PURSES)) == 0
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


def test_epoch_that_never_comes_stops_nobody_else(gateway: RunningGateway) -> None:
    """Callers who ask for a distant epoch wait for themselves, more of them than the gateway has threads."""
    distant = {"questions": [WALLETS], "timeout_ms": 20_000}
    headers = {"Penstock-Min-Epoch": "1000000000"}
    with Client(gateway.url, app) as client, ThreadPoolExecutor(8) as threads:
        open_accounts(client)
        asked = [
            threads.submit(
                httpx.post, f"{gateway.url}/at", json=distant, headers=headers, timeout=60
            )
            for _ in range(8)
        ]
        for _ in range(3):
            assert total(client.at(WALLETS, PURSES)) == 0
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
