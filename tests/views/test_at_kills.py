"""Money moves between wallets in PostgreSQL and purses in a search index, while every process is killed again and again.

Each answer of `client.at` adds up to 0. Reads of the two stores one after the other do not, so the test can fail. A few kills
run here; `scripts/nightly` runs 300.
"""

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import psycopg
import pytest

from benchmarks.cluster import Cluster
from penstock.client.synchronous import Client
from penstock.errors import PenstockError
from penstock.process.view_files import folder_of
from penstock.views.search_index import SearchIndex, SearchQuery
from tests.views.money_app import Purse, in_postgres
from tests.views.processes import driving, feeding, serving
from tests.waiting import meanwhile, wait_for

pytestmark = [pytest.mark.faults, pytest.mark.long]

SPEC = "tests.views.money_app:in_postgres"
NAMES = [f"n{number}" for number in range(10)]
KILLS = int(os.environ.get("PENSTOCK_KILLS", "3"))
SUM = 'SELECT coalesce(sum("coins"), 0)::bigint FROM money."Wallet"'
WALLETS = {"view": "books", "sql": SUM}
PURSES = {"view": "purses", "search": {"limit": 100}}
LONGEST_S = 120.0
PAUSE_S = 0.005  # so that payments leave the processor to the reads


@contextmanager
def all_processes(data: Path, address: str) -> Iterator[str]:
    """Run driver, appliers and gateway, and kill all of them at the end; yields the gateway's URL."""
    with ExitStack() as stack:
        stack.enter_context(driving(SPEC, data))
        stack.enter_context(feeding(SPEC, data, "books", address))
        stack.enter_context(feeding(SPEC, data, "purses"))
        yield stack.enter_context(serving(SPEC, data, books=address))


@contextmanager
def payments(url: str, seed: int) -> Iterator[None]:
    """Move coins until the block ends; what the kills refuse is not paid."""
    draw = random.Random(seed)

    def pay(stop: threading.Event) -> None:
        with Client(url, in_postgres, timeout_s=1) as client:
            while not stop.wait(PAUSE_S):
                wallet, purse = draw.choice(NAMES), Purse(draw.choice(NAMES))
                with suppress(PenstockError):
                    client.send(client.prepare.Wallet(wallet).pay(purse, draw.randrange(1, 100)))

    with meanwhile(pay):
        yield


def open_accounts(client: Client) -> None:
    for name in NAMES:
        for create in (client.prepare.Wallet.create, client.prepare.Purse.create):
            client.send(create(name))


def read_until(client: Client, count: int, beyond: int) -> set[int]:
    """Read both stores at one epoch, and check each answer; returns the epochs of the answers.

    Args:
        count: The number of answers, at least.
        beyond: The last answer is of a later epoch.
    """
    epochs: set[int] = set()
    deadline = time.monotonic() + LONGEST_S
    answers = 0
    while answers < count or max(epochs) <= beyond:
        assert time.monotonic() < deadline, "no answer from both stores"
        with suppress(PenstockError):  # the processes are still starting
            answer = client.at(WALLETS, PURSES)
            wallets, purses = answer.answers
            assert purses.search is not None
            assert wallets.rows[0][0] + sum(hit.row["coins"] for hit in purses.search.hits) == 0
            epochs.add(answer.epoch)
            answers += 1
    return epochs


def naive_sum(data: Path, connection: "psycopg.Connection[tuple[int]]") -> int:
    """Read both stores, one after the other; the second one shows a later epoch."""
    row = connection.execute(SUM.encode()).fetchone()
    index = SearchIndex(folder_of(data, "purses"))
    query = SearchQuery(limit=100)
    former = index.search(query).epoch
    wait_for(lambda: index.search(query).epoch > former, "the next epoch")
    hits = index.search(query).hits
    assert row is not None
    shown: int = row[0] + sum(msgspec.json.decode(hit.row)["coins"] for hit in hits)
    return shown


@pytest.mark.turns(1, "views", "sql_view", of="readers beside a writer")
def test_two_stores_add_up_under_kills(tmp_path: Path, postgres: Cluster, seed: int) -> None:
    """Every answer of both stores is of one epoch, whatever was killed before it; the epochs move on."""
    draw = random.Random(seed)
    epochs: list[set[int]] = []
    with psycopg.connect(postgres.address, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS money CASCADE")
        for kill in range(KILLS + 1):
            with ExitStack() as paying, all_processes(tmp_path, postgres.address) as url:
                client = paying.enter_context(Client(url, in_postgres, timeout_s=30))
                if not kill:
                    open_accounts(client)
                paying.enter_context(payments(url, seed + kill))  # it goes on behind the kill
                beyond = min(epochs[0]) if kill == KILLS else -1
                epochs.append(read_until(client, draw.randrange(1, 10), beyond))
                if kill == KILLS:
                    naive = partial(naive_sum, tmp_path, connection)
                    wait_for(naive, "a sum of two reads that is not 0")
    assert [min(each) for each in epochs] == sorted(min(each) for each in epochs)
