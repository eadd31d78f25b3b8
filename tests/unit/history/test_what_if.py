"""What-if: epochs run again with other code or requests; differences are shown, nothing changes."""

import io
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.cli.main import execute
from penstock.deployment.loading import load_app
from penstock.engine.execute import Limits
from tests.checkout import SHOP
from tests.history import Call, journal_of

pytestmark = pytest.mark.long

KINDS = load_app(SHOP).entities
SHOPPING: list[list[Call]] = [
    [
        ("Item", "i1", "create", {"price": 3, "stock": 10}),
        ("User", "u1", "create", {"credit": 20}),
    ],
    [
        ("Order", "o1", "create", {"user_id": KINDS["User"].of_text("u1")}),
        ("Order", "o1", "addItem", (KINDS["Item"].of_text("i1"), 2)),
        ("Item", "i1", "add", (5,)),
    ],
    [("Order", "o1", "checkout", ()), ("User", "u1", "pay", (14,)), ("Item", "i1", "add", (1,))],
]
"""r0 and r1 create, r2 to r4 fill a basket of 6, r5 buys it, r6 spends all that is left, r7 restocks."""


def asked(data: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> Any:
    code = execute(["what-if", SHOP, "--data", str(data), *arguments, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return msgspec.json.decode(out)


def refused(data: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert execute(["what-if", SHOP, "--data", str(data), *arguments]) == 2
    return capsys.readouterr().err


def replies(found: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {one["request_id"]: (one.get("recorded"), one.get("what_if")) for one in found["shown"]}


def entities(found: dict[str, Any]) -> dict[tuple[str, str], tuple[Any, Any]]:
    return {
        (one["entity"], finding["attribute"]): (finding["recorded"], finding["what_if"])
        for one in found["shown"]
        for finding in one["findings"]
    }


def other_shop(folder: Path, file: str, old: str, new: str) -> str:
    """Copy the shop, with a change; its modules are called as those of the original."""
    copy = folder / "elsewhere" / "shop"
    shutil.copytree(SHOP, copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new))
    return str(copy)


def edits(folder: Path, *lines: str) -> str:
    file = folder / "edits.jsonl"
    file.write_text("\n".join(lines))
    return str(file)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    journal_of(SHOP, tmp_path / "data", SHOPPING)
    return tmp_path / "data"


def test_without_a_change_nothing_differs(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same requests and code come out as they were recorded, and nothing is written."""
    before = contents(data)
    found = asked(data, capsys=capsys)
    assert (found["first"], found["last"], found["requests"]) == (0, 2, 8)
    assert found["replies"] == {"count": 0, "truncated": False, "shown": []}
    assert all(kind["count"] == 0 for kind in found["entities"].values())
    assert contents(data) == before
    assert execute(["what-if", SHOP, "--data", str(data)]) == 0
    assert "nothing differs: 8 requests" in capsys.readouterr().out


def test_request_left_out_changes_those_after_it(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the basket's item, the checkout costs nothing, and more is left on the shelf."""
    found = asked(data, "--without", "r3", capsys=capsys)
    assert list(replies(found["left_out"])) == ["r3"]
    assert list(replies(found["replies"])) == ["r6", "r7"]
    assert replies(found["replies"])["r6"] == (
        "User: u1 credit updated to: 0",
        "User: u1 credit updated to: 6",
    )
    changed = entities(found["entities"]["changed"])
    assert changed["Item/i1", "stock"] == (14, 16)
    assert changed["User/u1", "credit"] == (0, 6)
    assert changed["Order/o1", "items"] == ([["i1", 2]], [])
    assert found["entities"]["created"]["count"] == found["entities"]["deleted"]["count"] == 0


def test_summary_says_how_much_is_the_same(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The output begins with the number of differences; the exit code is 0 in any case."""
    assert execute(["what-if", SHOP, "--data", str(data), "--without", "r3"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("2 replies, 3 entities differ; the rest, 5 requests, is the same\n")
    for text in ("requests left out", "Order/o1.addItem", "Item/i1", "stock", "14", "16"):
        assert text in out


def test_new_code_changes_a_price_rule(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another version of the application, whose modules have the same names, runs the requests."""
    new = other_shop(tmp_path, "order.py", "quantity * item.price", "quantity * item.price // 2")
    modules = {name: one for name, one in sys.modules.items() if name.startswith("shop")}
    found = asked(data, "--code", new, capsys=capsys)
    assert list(replies(found["replies"])) == ["r3", "r6"]
    changed = entities(found["entities"]["changed"])
    assert changed == {("Order/o1", "total_cost"): (6, 3), ("User/u1", "credit"): (0, 3)}
    after = {name: one for name, one in sys.modules.items() if name.startswith("shop")}
    assert after == modules


def test_new_code_begins_with_a_recorded_state(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a range, only its own epochs run with the new code; the basket was filled before."""
    new = other_shop(tmp_path, "order.py", "quantity * item.price", "quantity * item.price // 2")
    assert asked(data, "--code", new, "--from", "2", capsys=capsys)["replies"]["count"] == 0


def test_edited_arguments_are_another_call(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unnamed arguments of an edited call stay; its reply and later replies are compared."""
    file = edits(tmp_path, '{"request_id": "r4", "arguments": {"amount": 7}}')
    found = asked(data, "--edit", file, capsys=capsys)
    assert replies(found["replies"])["r4"] == (
        "Item: i1 stock updated to: 15",
        "Item: i1 stock updated to: 17",
    )
    assert entities(found["entities"]["changed"]) == {("Item/i1", "stock"): (14, 16)}


def test_failure_and_deletion_are_differences(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A request may fail now, and an entity be gone or new; a dropped one is left out."""
    file = edits(
        tmp_path,
        '{"request_id": "r1", "key": "u2"}',
        '{"request_id": "r7", "method": "delete", "arguments": []}',
        '{"request_id": "r4", "drop": true}',
    )
    found = asked(data, "--edit", file, capsys=capsys)
    recorded, now = replies(found["replies"])["r6"]
    assert recorded == "User: u1 credit updated to: 0"
    assert now["error"] == "no-such-entity"
    assert list(replies(found["left_out"])) == ["r4"]
    assert entities(found["entities"]["created"])["User/u2", ""] == (None, {"credit": 20})
    assert sorted(entities(found["entities"]["deleted"])) == [("Item/i1", ""), ("User/u1", "")]


def test_inserted_requests_run_where_they_stand(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inserted requests run after those that they name, in the file's order, in the same epoch."""
    text = """[
      {"request_id": "new-1", "after": "r1", "entity": "Item", "key": "i1", "method": "add",
       "arguments": [100]},
      {"request_id": "new-3", "after": "new-1", "entity": "Item", "key": "i1", "method": "add",
       "arguments": [1]},
      {"request_id": "new-2", "after": "r1", "entity": null, "method": "init_users",
       "arguments": [1, 9]}
    ]"""
    keep = ("--keep", str(tmp_path / "kept"))
    found = asked(data, "--edit", edits(tmp_path, text), *keep, capsys=capsys)
    inserted = replies(found["inserted"])
    assert list(inserted) == ["new-1", "new-3", "new-2"]
    assert inserted["new-3"] == (None, "Item: i1 stock updated to: 111")
    assert [one["epoch"] for one in found["inserted"]["shown"]] == [0, 0, 0]
    assert entities(found["entities"]["created"]) == {("User/0", ""): (None, {"credit": 9})}
    assert execute(["replay", SHOP, "--data", str(tmp_path / "kept")]) == 0


def test_answers_to_sql_are_compared_with_their_duplicates(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows differ as often as they are there once more on one side; equal ones are counted."""
    file = edits(
        tmp_path,
        '{"request_id": "n1", "after": "r1", "entity": "User", "key": "a", "method": "create"}',
        '{"request_id": "n2", "after": "n1", "entity": "User", "key": "b", "method": "create"}',
    )
    queries = ("--sql", "SELECT credit FROM User", "--sql", "SELECT sum(stock) AS n FROM Item")
    found = asked(data, "--edit", file, *queries, capsys=capsys)
    credit, stock = found["sql"]
    assert (credit["same"], credit["recorded"], credit["what_if"]) == (1, [], [[0], [0]])
    assert (stock["same"], stock["count"], stock["columns"]["recorded"]) == (1, 0, ["n"])
    assert execute(["what-if", SHOP, "--data", str(data), "--without", "r7", *queries]) == 0
    out = capsys.readouterr().out
    assert "1 entity, 1 row of answers differ" in out
    assert "n = 14" in out
    assert "n = 13" in out


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT * FROM Item AS OF EPOCH 1", "remove AS OF"),
        ("SELECT * FROM replies", "replies cannot be compared"),
        ("SELECT nothing FROM Item", "nothing"),
        ("DROP TABLE Item", "only SELECT"),
    ],
)
def test_queries_that_cannot_be_compared_are_refused(
    data: Path, query: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A query is about entities after the last epoch; anything else is refused before all runs."""
    assert why in refused(data, "--sql", query, capsys=capsys)


def test_unknown_requests_are_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If a request that is left out is not in the range, the command names it."""
    unknown = ("--without", "r99", "--without", "r0", "--without", "r98")
    err = refused(data, "--from", "1", *unknown, capsys=capsys)
    assert "3 edits are invalid" in err
    for one in ("r99", "r0", "r98"):
        assert f"--without: there is no request {one} in epochs 1 to 2" in err


def test_everything_wrong_with_edits_is_said_at_once(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line that cannot be applied is named with the reason, before anything runs."""
    file = edits(
        tmp_path,
        '{"request_id": "r4", "arguments": [1, 2]}',
        "nonsense",
        "",
        '{"request_id": "r5", "drop": true, "method": "checkout"}',
        '{"request_id": "r6"}',
        '{"request_id": "r6", "price": 3}',
        '{"request_id": "r7", "after": "r6", "entity": "Item", "key": "i1", "method": "exists"}',
        '{"request_id": "new", "after": "r99", "entity": "Item", "key": "i1", "method": "exists"}',
        '{"request_id": "r2", "method": "chekout"}',
        '{"request_id": "r3", "drop": true}',
        '{"request_id": "r3", "key": "o2"}',
        '{"request_id": "new-2", "after": "r6"}',
    )
    err = refused(data, "--edit", file, "--without", "r0", capsys=capsys)
    for complaint in (
        "10 edits are invalid",
        "line 1: Item.add takes 1 positional arguments",
        "line 2: ",
        "line 4: an edit with drop has no other field",
        "line 5: the edit changes nothing",
        "line 6: Object contains unknown field `price`",
        "line 7: the id r7 belongs to a recorded request",
        "line 8: there is no request r99",
        "line 9: there is no method of Order 'chekout'; did you mean checkout?",
        "line 11: line 10 edits r3 already",
        "line 12: an inserted request needs a method",
    ):
        assert complaint in err


def test_edits_come_from_standard_input(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dash stands for standard input; a file that cannot be read is the caller's error."""
    stdin = io.TextIOWrapper(io.BytesIO(b'{"request_id": "r7", "drop": true}\n'))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert asked(data, "--edit", "-", capsys=capsys)["left_out"]["count"] == 1
    assert "absent.jsonl cannot be read" in refused(data, "--edit", "absent.jsonl", capsys=capsys)
    (data.parent / "broken").write_text("[{]")
    err = refused(data, "--edit", str(data.parent / "broken"), capsys=capsys)
    assert "the array cannot be read" in err


def test_class_that_cannot_read_its_rows_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the attribute and both types; from epoch 0 the new code makes its own rows."""
    other = other_shop(
        tmp_path, "stock.py", "    stock: int = 0\n", "    stock: int = 0\n    place: str\n"
    )
    err = refused(data, "--code", other, "--from", "1", capsys=capsys)
    assert "[class-changed]" in err
    assert "Item: place is new and has no default" in err
    asked(data, "--code", other, capsys=capsys)


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("    stock: int = 0\n", "    stock: int = 0\n    place: str = ''\n", ["place"]),
        ("    price: int\n    stock: int = 0\n", "    stock: int\n    price: int\n", []),
    ],
)
def test_changed_class_reads_the_rows_before_the_span(
    data: Path,
    tmp_path: Path,
    old: str,
    new: str,
    changed: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Rows of the former class are read as the new class; equal attributes in another order do not differ."""
    other = other_shop(tmp_path, "stock.py", old, new)
    found = asked(
        data, "--code", other, "--from", "1", "--sql", "SELECT stock FROM Item", capsys=capsys
    )
    differing = entities(found["entities"]["changed"])
    assert list(differing) == [("Item/i1", attribute) for attribute in changed]
    assert found["replies"]["count"] == 0


@pytest.mark.parametrize("first", [0, 1, 2])
def test_what_is_kept_is_a_data_directory(
    data: Path, tmp_path: Path, first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands of history read the result: replay finds no difference, SQL has the new state."""
    keep = tmp_path / "kept"
    words = ("--without", "r6", "--from", str(first), "--keep", str(keep))
    found = asked(data, *words, capsys=capsys)
    assert found["keep"] == {"data": str(keep), "shift": max(0, first - 1)}
    assert execute(["replay", SHOP, "--data", str(keep), "--json"]) == 0
    replayed = msgspec.json.decode(capsys.readouterr().out)
    assert replayed["divergence"] is None
    assert replayed["requests"] == found["requests"]
    query = "SELECT credit, stock FROM User, Item"
    assert execute(["sql", query, SHOP, "--data", str(keep), "--format", "json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["rows"] == [[14, 14]]
    again = ["what-if", SHOP, "--data", str(keep)]
    assert execute(again) == 0
    assert "nothing differs" in capsys.readouterr().out
    assert "is not empty" in refused(data, "--keep", str(keep), capsys=capsys)
    assert "name another directory" in refused(data, "--keep", str(data / "kept"), capsys=capsys)


def test_changes_that_cancel_out_are_no_difference(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An entity that differed for some epochs, and is equal after the last, does not differ."""
    file = edits(
        tmp_path,
        '{"request_id": "r4", "arguments": [6]}',
        '{"request_id": "r7", "arguments": [0]}',
    )
    found = asked(data, "--edit", file, capsys=capsys)
    assert list(replies(found["replies"])) == ["r4"]
    assert found["entities"]["changed"]["count"] == 0


def test_request_that_exceeded_a_limit_runs_only_when_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A request that depended on the machine is taken as recorded, unless its call or code differs."""
    name = "i" * 50
    calls: Sequence[Call] = [
        ("Item", name, "create", {"price": 3, "stock": 10}),
        ("Item", name, "add", (5,)),
    ]
    data = tmp_path / "data"
    journal_of(SHOP, data, [calls], limits=Limits(reply_bytes=64))
    found = asked(data, capsys=capsys)
    assert (found["requests"], found["skipped"], found["replies"]["count"]) == (1, 1, 0)
    file = edits(tmp_path, '{"request_id": "r1", "arguments": [6]}')
    found = asked(data, "--edit", file, capsys=capsys)
    assert (found["requests"], found["skipped"], found["replies"]["count"]) == (2, 0, 1)
    new = other_shop(tmp_path, "order.py", "Checkout successful", "Thank you")
    assert asked(data, "--code", new, capsys=capsys)["skipped"] == 0


def test_differences_beyond_the_first_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first hundred of each kind are shown; counts are of all."""
    calls: list[Call] = [("Item", "i1", "create", {"price": 3}), ("Item", "i1", "add", (1,))]
    journal_of(SHOP, tmp_path, [[*calls, *[("Item", "i1", "add", (1,))] * 130]])
    found = asked(tmp_path, "--without", "r1", capsys=capsys)["replies"]
    assert (found["count"], found["truncated"], len(found["shown"])) == (130, True, 100)
    assert execute(["what-if", SHOP, "--data", str(tmp_path), "--without", "r1"]) == 0
    assert "the first 100 of 130" in capsys.readouterr().out
