"""The past in SQL and feeds of changes as a person, a program and a client use them."""

import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from penstock import AsyncClient, Client, RequestError
from penstock.errors import QueryError
from penstock.journal.delta import DeltaJournal
from penstock.process.config import GatewayConfig
from tests import forked
from tests.checkout import SHOP, TOP
from tests.gateway_thread import RunningGateway
from tests.history import Call, journal_of
from tests.view_process import view_process

pytestmark = pytest.mark.long

PAGE = TOP / "docs" / "HISTORY.md"
DEADLINE_S = 60.0
EPOCHS: list[list[Call]] = [
    [("Item", "i1", "create", {"price": 3, "stock": 5}), ("Item", "i2", "create", {"price": 4})],
    [("Item", "i1", "add", [2])],
    [("Item", "i2", "delete", [])],
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the data directory of a shop after three epochs, where nothing runs."""
    folder = tmp_path_factory.mktemp("history")
    journal_of(SHOP, folder, EPOCHS)
    return folder


@pytest.fixture(scope="module")
def gateway(data: Path) -> Iterator[RunningGateway]:
    """Run a view and a gateway."""
    with (
        view_process(SHOP, data),
        RunningGateway(SHOP, data, GatewayConfig(), drives=False) as running,
    ):
        yield running


def test_commands_of_the_page_run(data: Path, tmp_path: Path) -> None:
    """The page's section on time travel works as written, and its queries have answers."""
    (tmp_path / ".penstock").mkdir()
    (tmp_path / ".penstock" / "shop").symlink_to(data)
    section = PAGE.read_text().partition("## Time travel\n")[2].partition("\n## ")[0]
    commands = re.findall(r"^    (penstock .*)$", section, re.MULTILINE)
    assert len(commands) == 7
    now = datetime.now(UTC).isoformat()  # the page's own time is before this journal's first epoch
    for command in [one.replace("2026-11-21 08:30:00+01:00", now) for one in commands]:
        words = [SHOP if word == "APP" else word for word in shlex.split(command)]
        done = forked.command(*words[1:], folder=tmp_path)
        assert done.returncode == 0, done.stderr


def test_past_is_asked_where_nothing_runs(data: Path) -> None:
    """Without a view a question of the past is answered from the journal; nothing is written."""
    before = sorted(data.rglob("*"))
    at = ("--data", str(data), "--format", "csv")
    found = forked.command("sql", "SELECT item_id, stock FROM Item", SHOP, *at, "--as-of", "0")
    assert found.stdout == b'"item_id","stock"\n"i1",5\n"i2",0\n', found.stderr
    assert found.stderr == b"epoch 0\n"
    later = forked.command("sql", "SELECT stock FROM Item AS OF EPOCH 1 ORDER BY ALL", SHOP, *at)
    assert later.stdout == b'"stock"\n0\n7\n'
    refused = forked.command("sql", "FROM Item", SHOP, *at, "--as-of", "tomorrow")
    assert refused.returncode == 2
    assert "is not a time" in refused.stderr.decode()
    assert sorted(data.rglob("*")) == before


def test_changes_are_shown(data: Path) -> None:
    """A person sees the differences; a program gets each change as a line, with before and after."""
    shown = forked.command("changes", "Item", SHOP, "--data", str(data)).stdout.decode()
    assert "stock 5 → 7" in shown
    assert "4 changes" in shown
    at = ("--data", str(data), "--from", "1", "--to", "2", "--format")
    lines = forked.command("changes", "Item", SHOP, *at, "lines").stdout.splitlines()
    told = [json.loads(line) for line in lines]
    assert [(one["epoch"], one["key"], one["kind"]) for one in told] == [
        (1, "i1", "update"),
        (2, "i2", "delete"),
    ]
    assert told[0]["before"] == {"item_id": "i1", "price": 3, "stock": 5}
    assert told[1]["after"] is None
    arrow = forked.command("changes", "Item", SHOP, *at, "arrow").stdout
    assert pa.ipc.open_stream(BytesIO(arrow)).read_all().num_rows == 2
    wrong = forked.command("changes", "Itm", SHOP, "--data", str(data))
    assert wrong.returncode == 2
    assert "did you mean Item" in wrong.stderr.decode()
    nowhere = forked.command("changes", "Item", SHOP, "--data", str(data / "none"))
    assert "there is no journal" in nowhere.stderr.decode()


def test_client_asks_the_past(gateway: RunningGateway, data: Path) -> None:
    """A client names an epoch or an instant; the answer names the epoch."""
    journal = DeltaJournal(data / "journal", "shop")
    times = [datetime.fromtimestamp(one.time_us / 1e6, UTC) for one in journal.commits(-1)]  # type: ignore[arg-type]
    journal.close()
    query = "SELECT item_id, stock FROM Item ORDER BY item_id"
    with Client(gateway.url) as client:
        assert client.rows(query).rows == [("i1", 7)]
        then = client.rows(query, as_of=0)
        assert (then.epoch, then.rows) == (0, [("i1", 5), ("i2", 0)])
        soon = times[1] + timedelta(milliseconds=1)
        assert client.rows(query, as_of=soon).epoch in (1, 2)
        table = client.sql(f"{query} AS OF EPOCH ?", [1])
        assert table.schema.metadata[b"penstock.epoch"] == b"1"
        assert table.to_pylist()[0] == {"item_id": "i1", "stock": 7}
        with pytest.raises(QueryError, match="holds epochs 0 to 2"):
            client.rows(query, as_of=99)


def test_client_reads_the_feed(gateway: RunningGateway) -> None:
    """Both clients give the changes in order; a class that is not there is named."""

    async def asynchronously() -> None:
        async with AsyncClient(gateway.url) as client:
            assert await client.changes("Item", 0) == found
            assert (await client.rows("SELECT count(*) FROM Item", as_of=0)).rows == [(2,)]

    with Client(gateway.url) as client:
        found = client.changes("Item", 0)
        assert [(one.kind, one.key) for one in found] == [
            ("create", "i1"),
            ("create", "i2"),
            ("update", "i1"),
            ("delete", "i2"),
        ]
        assert found[2].before == {"item_id": "i1", "price": 3, "stock": 5}
        assert client.changes("Item", 2, 2) == found[3:]
        with pytest.raises(RequestError, match="Item"):
            client.changes("Itm", 0)
        with pytest.raises(QueryError, match="backwards"):
            client.changes("Item", 2, 1)
    asyncio.run(asynchronously())


def test_feed_over_http(gateway: RunningGateway) -> None:
    """The path answers lines, or Arrow; without `from` it is an entity of that key."""
    path = f"{gateway.url}/entities/Item/changes"
    lines = httpx.get(path, params={"from": 1, "to": 1}, timeout=60)
    assert lines.headers["content-type"].startswith("application/x-ndjson")
    assert lines.headers["penstock-epoch"] == "1"
    assert [json.loads(one)["kind"] for one in lines.text.splitlines()] == ["update"]
    accept = {"Accept": "application/vnd.apache.arrow.stream"}
    arrow = httpx.get(path, params={"from": 0}, headers=accept, timeout=60)
    assert pa.ipc.open_stream(arrow.content).read_all().num_rows == 4
    assert httpx.get(path, timeout=60).status_code == 404
    assert httpx.get(path, params={"from": "x"}, timeout=60).status_code == 400
    assert httpx.get(path, params={"from": 0, "to": 77}, timeout=60).status_code == 400
