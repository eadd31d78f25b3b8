"""Exports and imports over HTTP: a file as it is read, and an order whose work is in a process of its own."""

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pyarrow.parquet as pq
import pytest

from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from tests.gateway_thread import RunningGateway
from tests.serial_driver import SerialDriver

SOURCE = """
from decimal import Decimal
from penstock import App, Entity, emit, key, stream

sold = stream("sold", int)

class Item(Entity):
    item_id: str = key()
    price: Decimal
    stock: int = 0

    def sell(self) -> None:
        self.stock -= 1
        emit(sold, self.stock)

app = App("exported", Item, sold)
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Return a client with the key of an operator, for an application with two items."""
    folder = tmp_path_factory.mktemp("exported")
    source, data = folder / "exported.py", folder / "data"
    source.write_text(SOURCE)
    data.mkdir()
    _, secret = KeyStore(data).add("ada", granted(["*"]), None, datetime.now(UTC))
    gateway = RunningGateway(str(source), data, drives=False, reads=False)
    gateway.driver = SerialDriver(str(source), gateway.config, deploys=True)
    with (
        gateway,
        httpx.Client(base_url=gateway.url, timeout=60, headers={"X-API-Key": secret}) as client,
    ):
        for name in ("a", "b"):
            answer = client.post(f"/call/Item/{name}/create", json={"price": "1.10", "stock": 5})
            assert answer.status_code == 200
        yield client


def test_a_class_is_sent_in_each_format(client: httpx.Client) -> None:
    """The epoch is a header, and the rows have all attributes."""
    lines = client.get("/export/Item", params={"format": "jsonl"})
    assert lines.text.splitlines()[0] == '{"item_id":"a","price":"1.10","stock":5}'
    assert int(lines.headers["Penstock-Epoch"]) >= 1
    table = client.get("/export/Item?format=csv&as_of=0")
    assert table.text.splitlines() == ["item_id,price,stock", "a,1.10,5"]
    content = client.get("/export/Item?format=parquet").content
    assert pq.read_table(io.BytesIO(content)).num_rows == 2


def test_a_query_is_sent_as_parquet_only_by_the_view(client: httpx.Client) -> None:
    """Without a view the gateway says so; a wrong format, epoch or class is refused before the first byte."""
    parquet = {"Accept": "application/vnd.apache.parquet"}
    assert client.post("/sql", json={"query": "SELECT 1"}, headers=parquet).status_code == 503
    for path in ("/export/Item?format=xml", "/export/Itm", "/export/Item?as_of=99"):
        answer = client.get(path)
        assert answer.status_code in (400, 404, 422), (path, answer.text)
        assert answer.json()["error"]["message"]


def test_a_stream_is_sent_with_a_row_for_each_event(client: httpx.Client) -> None:
    """A stream without atoms is an empty file."""
    answer = client.get("/export/streams/sold?format=csv")
    assert answer.text.splitlines() == ["atom,index,epoch,time,event"]


def test_an_import_is_read_on_the_host_of_the_gateway(client: httpx.Client, tmp_path: Path) -> None:
    """A trial says what the order would do, and a row that does not fit is in the answer."""
    source = tmp_path / "items.csv"
    source.write_text("item_id,price\nc,2\n")
    order = {"entity": "Item", "source": str(source), "dry_run": True}
    answer = client.post("/imports", json=order)
    assert (answer.status_code, answer.json()["created"]) == (200, 1)
    source.write_text("item_id,price\nc,cheap\n")
    report = client.post("/imports", json=order).json()
    assert (report["outcome"], report["misfits"][0]["column"]) == ("refused", "price")
    missing = client.post("/imports", json={**order, "source": "/nowhere.csv"})
    assert missing.status_code == 400
