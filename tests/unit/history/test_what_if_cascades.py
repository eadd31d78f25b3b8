"""What-if of cascades: events, sent requests and later records that differ, and the consequences of later records."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.base.ids import RequestId
from penstock.cli.main import execute
from penstock.deployment.loading import load_app
from penstock.log.api import Entry
from tests.differential.inline import Inline

PROGRAM = '''
"""Each sale is counted at once, and its tax is paid later, through a workflow."""

from dataclasses import dataclass

from penstock import App, Entity, call, emit, flow, key, send, stream


@dataclass
class Sale:
    item: str
    cents: int


class Item(Entity):
    name: str = key()
    sold: int = 0
    tax: int = 0

    def sell(self, cents: int) -> None:
        emit(sales, Sale(self.name, cents))
        if cents > 1:
            send(Item.count, self, 1)

    def count(self, number: int) -> int:
        self.sold += number
        return self.sold

    def pay(self, cents: int) -> int:
        self.tax += cents
        return self.tax


def taxed(sale: Sale) -> Sale:
    return Sale(sale.item, sale.cents // 10)


sales = stream("sales", Sale)
taxes = flow("taxing", sales).map(taxed).filter(lambda sale: sale.cents > 0).sink("taxes")
app = App("taxed", Item, call(taxes, Item.pay, lambda sale: (Item(sale.item), sale.cents)))
'''
CALLS: list[tuple[str, tuple[int, ...]]] = [("create", ()), ("sell", (100,)), ("sell", (50,))]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a journal that the program has written; the later record of a sale comes behind all sales."""
    parent = tmp_path_factory.mktemp("taxed")
    now = PROGRAM.replace("// 10", "// 20").replace("self.sold += number", "self.sold -= number")
    (parent / "taxes_then.py").write_text(PROGRAM)
    (parent / "taxes_now.py").write_text(now)
    (parent / "taxes_never.py").write_text(PROGRAM.replace("sale.cents // 10", "0"))
    spec, folder = str(parent / "taxes_then.py"), parent / "data"
    folder.mkdir()
    app = load_app(spec)
    runtime = Inline(folder, 1, spec, "taxed")
    entries = [
        Entry(RequestId(f"r{number}"), *app.request("Item", "tea", method, given, {}), 1_000)
        for number, (method, given) in enumerate(CALLS)
    ]
    runtime.log.append(entries)
    reached = None
    while reached != (reached := int(runtime.log.end())):
        runtime.advance(reached)
    runtime.close()
    return folder


def what_if(data: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert execute(["what-if", str(data.parent / "taxes_then.py"), "--data", str(data), "--json", *arguments]) == 0  # fmt: skip
    return msgspec.json.decode(capsys.readouterr().out)


def code(data: Path, name: str) -> tuple[str, str]:
    return "--code", str(data.parent / f"{name}.py")


def test_events_and_requests_that_differ(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each difference names the atom and the field, the sent request with its reply, and the later record with its call."""
    differing = what_if(data, capsys, *code(data, "taxes_now"))
    assert differing["atoms"] == {"taxes": 2}
    first, _ = differing["events"]["shown"]
    assert (first["epoch"], first["request_id"]) == (0, "r1")
    assert (first["place"], first["part"]) == ("atom 0 of stream taxes", "event 0")
    assert first["differences"] == [
        {"path": "event 0.cents", "kind": "changed", "recorded": 10, "what_if": 5}
    ]
    sent, _ = differing["sent"]["shown"]
    assert (sent["place"], sent["what_if"]["reply"]) == ("sent request r1~~1", -1)
    later = [record["what_if"]["call"] for record in differing["later"]["shown"]]
    assert later == ["Item/tea.pay(5)", "Item/tea.pay(2)"]
    [tea] = differing["entities"]["changed"]["shown"]
    changed = {each["attribute"]: (each["recorded"], each["what_if"]) for each in tea["findings"]}
    assert changed == {"sold": (2, -2), "tax": (15, 7)}, (
        "the later records ran with their new calls"
    )


def test_later_records_leave_with_their_cause(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The later record of an omitted request does not run, and none that other code would not append."""
    without = what_if(data, capsys, "--without", "r1")
    left_out = [row["call"] for row in without["left_out"]["shown"]]
    assert left_out == ["Item/tea.sell(100)", "Item/tea.pay(10)"]
    [tea] = without["entities"]["changed"]["shown"]
    assert [each["what_if"] for each in tea["findings"]] == [1, 5]
    assert (without["events"]["count"], without["sent"]["count"]) == (2, 2)
    never = what_if(data, capsys, *code(data, "taxes_never"))
    assert never["left_out"]["count"] == never["later"]["count"] == 2
    assert never["entities"]["changed"]["shown"][0]["findings"][0]["what_if"] == 0


def test_report_for_people(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first line counts each sort, and tables show the fields."""
    given = ["what-if", str(data.parent / "taxes_then.py"), "--data", str(data)]
    assert execute([*given, *code(data, "taxes_now")]) == 0
    out = capsys.readouterr().out
    counts = "1 entity, 2 atoms, 2 sent requests, 2 later records differ"
    assert counts in " ".join(out.split("\n")[0].split()), out
    assert "stream taxes: 2 atoms differ" in out
    assert "events that differ" in out
