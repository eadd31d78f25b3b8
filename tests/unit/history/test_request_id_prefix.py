"""The beginning of a request id names the request, if no other id begins so."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.cli.main import execute
from penstock.deployment.loading import load_app
from penstock.errors import RequestError
from penstock.history.reader import HistoryReader
from penstock.log.api import Entry
from penstock.process.config import Config
from tests.checkout import SHOP
from tests.serial_driver import SerialDriver

IDS = ("item-1", "sale", "sale-17", "sale-18", "web~sale-17", *(f"many-{n}" for n in range(9)))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a journal with requests of these ids, each in an epoch of its own."""
    data = tmp_path_factory.mktemp("shop")
    driver = SerialDriver(SHOP, Config(data))
    driver.start()
    for number, request_id in enumerate(IDS, 1):
        body, hint = driver.app.request("Item", request_id, "create", (), {"price": 3})
        driver.log.append([Entry(RequestId(request_id), body, hint, 0)])
        assert driver.wait_until(Lsn(number), 60_000)
    driver.stop()
    return data


@pytest.fixture(scope="module")
def reader(data: Path) -> Iterator[HistoryReader]:
    """Open the journal."""
    with HistoryReader(data, load_app(SHOP)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("item", "item-1"),
        ("web", "web~sale-17"),
        ("sale-17", "sale-17"),
        ("sale", "sale"),
        ("absent", "absent"),
    ],
)
def test_unique_beginning_names_a_request(reader: HistoryReader, text: str, named: str) -> None:
    """A beginning names its only request; an id names itself, and an unknown text stays unchanged."""
    assert reader.complete(text) == named


def test_ambiguous_beginning_lists_candidates(reader: HistoryReader) -> None:
    """Several ids begin with the text: the message lists five of them at most."""
    with pytest.raises(
        RequestError, match="several request ids begin with sale-: sale-17, sale-18;"
    ):
        reader.complete("sale-")
    with pytest.raises(RequestError, match=r": (many-\d, ){4}many-\d, …; write more of the id"):
        reader.complete("many")


def test_commands_take_the_beginning_of_an_id(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`trace` and `what-if` find the only request whose id begins so."""
    where = (SHOP, "--data", str(data), "--json")
    assert execute(["trace", "item", *where]) == 0
    assert json.loads(capsys.readouterr().out)["request_id"] == "item-1"
    assert execute(["what-if", "--without", "web", *where]) == 0
    left_out = json.loads(capsys.readouterr().out)["left_out"]
    assert [one["request_id"] for one in left_out["shown"]] == ["web~sale-17"]
    assert execute(["trace", "sale-", *where]) == 2
    assert "sale-17, sale-18" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_ids_are_whole_on_a_narrow_terminal(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A request id is in one piece, so that it can be copied."""
    monkeypatch.setenv("COLUMNS", "80")
    assert execute(["history", "Item", "web~sale-17", SHOP, "--data", str(data)]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert any(line.endswith(": request web~sale-17") for line in shown.splitlines())
