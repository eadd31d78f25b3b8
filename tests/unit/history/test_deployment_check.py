"""`penstock deploy --check`: what a deployment of the present code would change, in three levels."""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import RequestId
from penstock.cli.main import execute
from penstock.deployment.loading import load_app
from penstock.errors import ConfigError
from penstock.history.code_report import report_on
from penstock.log.api import Entry
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from tests.differential.inline import Inline
from tests.history import journal_of
from tests.unit.history.two_versions import Kiosk, fresh

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("forked_children")]


@pytest.fixture
def kiosk(tmp_path: Path) -> Kiosk:
    """Return an application with two deployments; the present code is that of the second."""
    return fresh(tmp_path)


def check(kiosk: Kiosk, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, Any]:
    capsys.readouterr()
    words = ["deploy", kiosk.spec, "--check", "--data", str(kiosk.data), "--json", *more]
    code = execute(words)
    report = json.loads(capsys.readouterr().out)
    return code, (report["verdict"], report["findings"])


def test_the_deployed_code_is_safe(kiosk: Kiosk, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a change there is nothing to report."""
    assert check(kiosk, capsys) == (0, ("safe", []))


def test_a_deployment_without_an_epoch_is_compared(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last deployment counts, also if the application has been idle since; there is no epoch to run again."""
    count, number = "def order(self, count: int)", "def order(self, number: int)"
    kiosk.change(count, number)
    journal_of(kiosk.spec, kiosk.data, [], deploys=True)
    assert check(kiosk, capsys) == (0, ("safe", []))
    kiosk.change(number, count)
    code, (verdict, findings) = check(kiosk, capsys)
    assert (code, verdict) == (1, "needs-a-word")
    assert [finding["kind"] for finding in findings] == ["interface"]


def test_a_journal_without_deployments_needs_a_word(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """An earlier Penstock recorded no code, so only the stored form can be compared."""
    (kiosk.data / "journal" / "_deployments.json").unlink()
    code, (verdict, findings) = check(kiosk, capsys)
    assert (code, verdict) == (1, "needs-a-word")
    assert [finding["what"].partition(",")[0] for finding in findings] == [
        "no deployment is recorded"
    ]


def test_a_compatible_change_is_safe(kiosk: Kiosk, capsys: pytest.CaptureFixture[str]) -> None:
    """A new attribute with a default and a new method are safe, and the newest epochs come out the same."""
    kiosk.change(
        "    total: int = 0\n",
        "    total: int = 0\n    note: str = ''\n\n    def rename(self, note: str) -> None:\n        self.note = note\n",
    )
    code, (verdict, findings) = check(kiosk, capsys)
    assert (code, verdict) == (0, "safe")
    assert [finding["kind"] for finding in findings] == ["schema", "interface", "dry-run"]
    assert findings[1]["what"] == "method Item.rename is added"
    assert "nothing of 2 requests of epochs 2 to 3" in findings[2]["what"]


def test_a_class_without_entities_may_change_in_any_way(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing stored can hinder it, and the report shows the attributes nevertheless."""
    coupon = "class Coupon(Entity):\n    code: str = key()\n    worth: {type}\n\n\napp = App("
    kiosk.change("app = App(", coupon.format(type="int"))
    kiosk.change('App("kiosk", ', 'App("kiosk", Coupon, ')
    journal_of(kiosk.spec, kiosk.data, [], deploys=True)
    kiosk.change("    worth: int\n", "    worth: str\n    until: int = 0\n")
    code, (verdict, findings) = check(kiosk, capsys)
    texts = [finding["what"] for finding in findings if finding["kind"] == "schema"]
    place = "Coupon, without stored entities:"
    added = f"{place} worth: str is added", f"{place} until: int is added"
    assert (code, verdict, texts) == (0, "safe", [f"{place} worth: int is removed", *added])


def test_other_outcomes_and_waiting_requests_need_a_word(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed signature names the requests of the backlog that no longer fit, and the dry run the epochs."""
    body, hint = load_app(kiosk.spec).request("Item", "tea", "order", (), {"count": 5})
    with closing(DataDirectory(kiosk.data).open_log()) as log:
        log.append([Entry(RequestId("waits"), body, hint, 1)])
    kiosk.change("def order(self, count: int)", "def order(self, number: str)")
    code, (verdict, findings) = check(kiosk, capsys)
    assert (code, verdict) == (1, "needs-a-word")
    told = {finding["kind"]: finding["what"] for finding in findings}
    assert told["interface"] == (
        "method Item.order was (count: int) -> int, and is (number: str) -> int"
    )
    assert told["backlog"].startswith(
        "request waits, Item/tea.order(count=5), waits and would fail"
    )
    assert "would have come out otherwise" in told["dry-run"]


def test_changed_constraints_need_a_word(kiosk: Kiosk, capsys: pytest.CaptureFixture[str]) -> None:
    """Constraints of parameters, attributes and fields of records are no part of a shape, but of the interface."""
    record = "@dataclass\nclass Line:\n    pieces: {type} = 0\n\nclass Item"
    kiosk.change(
        "from penstock",
        "from dataclasses import dataclass\nfrom typing import Annotated\nfrom msgspec import Meta\nfrom penstock",
    )
    kiosk.change("class Item", record.format(type="int"))
    kiosk.change(
        "    def order", "    def add(self, lines: list[Line]) -> None: ...\n\n    def order"
    )
    journal_of(kiosk.spec, kiosk.data, [], deploys=True)
    assert check(kiosk, capsys) == (0, ("safe", []))
    app = load_app(kiosk.spec)
    line = sys.modules[Path(kiosk.spec).stem].Line
    bodies = [
        app.request("Item", "tea", "order", (5,))[0],
        app.request("Item", "tea", "order", (15,))[0],
        app.request("Item", "tea", "add", ([line(1), line(2)],))[0],
    ]
    with closing(DataDirectory(kiosk.data).open_log()) as log:
        entries = enumerate(bodies)
        log.append([Entry(RequestId(f"waits{at}"), body, b"", 1) for at, body in entries])
    kiosk.change("pieces: int", "pieces: Annotated[int, Meta(ge=2)]")
    kiosk.change("    total: int = 0", "    total: Annotated[int, Meta(le=9)] = 0")
    kiosk.change("count: int", "count: Annotated[int, Meta(le=9)]")
    code, (verdict, findings) = check(kiosk, capsys)
    assert (code, verdict) == (1, "needs-a-word")
    texts = [each["what"] for each in findings if each["kind"] != "dry-run"]
    assert texts == [
        "attribute Item.total was without a constraint, and is le=9",
        "method Item.add was (lines: list[Line]) -> None, and is (lines: list[Line] with [].pieces: ge=2) -> None",
        "method Item.order was (count: int) -> int, and is (count: int with le=9) -> int",
        "request waits1, Item/tea.order(15), waits and would fail: Item.order: count: Expected `int` <= 9",
        "request waits2, Item/tea.add([{'pieces': 1}, {'pieces': 2}]), waits and would fail: "
        "Item.add: lines[0].pieces: Expected `int` >= 2",
    ]


def test_a_class_that_cannot_read_its_rows_is_refused(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason and the remedy are those of the driver."""
    kiosk.change("    price: int = 0\n", "    price: dict[str, int] = {}\n")
    code, (verdict, findings) = check(kiosk, capsys)
    assert (code, verdict) == (1, "refused")
    assert [finding["kind"] for finding in findings] == ["schema"]
    assert "price" in findings[0]["what"]


def test_a_migration_that_fails_for_a_stored_entity_is_refused(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """It runs on stored entities; check and start name the first one that it does not accept."""
    kiosk.change("import App, Entity, key", "import App, Entity, key, migrate")
    kiosk.change("    price: int = 0\n", "    price: dict[str, int] = {}\n")
    kiosk.change(
        "app =", "@migrate(Item, since=2)\ndef made(old):\n    return old['none']\n\napp ="
    )
    kiosk.change("Item)\n", "Item, made)\n")
    code, (verdict, findings) = check(kiosk, capsys)
    assert (code, verdict) == (1, "refused")
    assert "Item/tea: Item: @migrate(…, since=2) raised KeyError" in findings[0]["what"]
    assert execute(["run", kiosk.spec, "--data", str(kiosk.data)]) == 2
    assert "Item/tea: Item: @migrate(…, since=2) raised KeyError" in capsys.readouterr().err


def test_entities_with_the_value_of_another_one_are_named(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new `unique()` is refused if two stored entities have the same value, and the check says which."""
    journal_of(kiosk.spec, kiosk.data, [[("Item", "oolong", "create", {"price": 3})]])
    kiosk.change("import App, Entity, key", "import App, Entity, key, unique")
    kiosk.change("    price: int = 0\n", "    price: int = unique(default=0)\n")
    code, (verdict, findings) = check(kiosk, capsys)
    assert (code, verdict) == (1, "refused")
    assert [finding["what"] for finding in findings if finding["level"] == "refused"] == [
        "Item 'oolong' and Item 'tea' have the same price, and price is unique"
    ]


def test_nothing_is_written(kiosk: Kiosk, capsys: pytest.CaptureFixture[str]) -> None:
    """A check with a compatible change leaves journal, deployments and archives as they are."""
    kiosk.change("    total: int = 0\n", "    total: int = 0\n    note: str = ''\n")
    before = {path: path.read_bytes() for path in kiosk.data.rglob("*.json")}
    assert check(kiosk, capsys)[0] == 0
    assert {path: path.read_bytes() for path in kiosk.data.rglob("*.json")} == before


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("import os; os._exit(0)", "ended its process with exit code 0"),
        ("raise SystemExit(0)", "cannot be imported"),
    ],
)
@pytest.mark.parametrize("names_data", [True, False])
def test_code_that_ends_its_process_is_never_safe(
    kiosk: Kiosk,
    capsys: pytest.CaptureFixture[str],
    line: str,
    reason: str,
    names_data: bool,  # noqa: FBT001 -- a case
) -> None:
    """A module that ends the process that imports it is an error, with and without a data directory."""
    kiosk.change("app = App(", f"{line}\napp = App(")
    data = ["--data", str(kiosk.data)] if names_data else []
    assert execute(["deploy", kiosk.spec, "--check", *data]) == 2
    assert reason in capsys.readouterr().err


def test_a_handler_that_ends_the_process_of_the_check_is_never_safe(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """A check that has not come to its end has no verdict."""
    kiosk.change("        self.total =", "        import os; os._exit(0)\n        self.total =")
    assert execute(["deploy", kiosk.spec, "--check", "--data", str(kiosk.data)]) == 2
    assert "with --epochs 0, no handler runs" in capsys.readouterr().err


def test_the_check_of_an_endless_import_ends(kiosk: Kiosk) -> None:
    """An import that never returns, also one that never lets another thread run, has a limit of time."""
    kiosk.change("app = App(", "import re; re.match('(a*)*b', 'a' * 40)\napp = App(")
    with pytest.raises(ConfigError, match="has taken more than 2 s"):
        report_on(Config(kiosk.data, kiosk.spec), 0, import_s=2.0)


WAITING = '''
"""A handler asks an entity, whose reply is a later record."""

from penstock import App, Emit, Entity, ask, flow, key, stream

words = stream("words", str)


class Shelf(Entity):
    name: str = key()
    pieces: int = 0

    def add(self, more: int) -> int:
        self.pieces += more
        return self.pieces


class Asking:
    asked: int = 0

    async def on_event(self, word: str, out: Emit[int]) -> None:
        self.asked += 1
        out(await ask(Shelf.add, Shelf("a"), 1))


app = App("waits", Shelf, flow("asking", words).key(str).task(Asking).sink("asked"))
'''


@pytest.mark.parametrize(
    ("before", "after", "finding"),
    [
        ('Shelf("a"), 1', 'Shelf("a"), 20', "sent other requests when it ran again"),
        ("out(await", "out(1 + await", None),
        ("task(Asking)", 'task(Asking, name="Other")', "its task is gone, so it is dropped"),
    ],
)
def test_handlers_that_wait_are_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, finding: str | None
) -> None:
    """Those that cannot go on with the present code are listed with task and key; a change behind the wait is none."""
    source = tmp_path / f"waits_{abs(hash(after))}.py"
    source.write_text(WAITING)
    (tmp_path / "data").mkdir()
    runtime = Inline(tmp_path / "data", 1, str(source), "waits")
    body = load_app(str(source)).append("words", ["tea"])
    runtime.log.append([Entry(RequestId("r1"), body, b"", 1_000)])
    runtime.advance(1)
    runtime.close()
    changed = WAITING.replace(before, after)
    # Python compiles a module again when its size or the second of its change is another.
    assert len(changed) != len(WAITING)
    source.write_text(changed)
    for name in [name for name in sys.modules if name.startswith("waits_")]:
        del sys.modules[name]
    words = ["deploy", str(source), "--check", "--data", str(tmp_path / "data"), "--json"]
    words += ["--drop", "asking.Asking"] if "Other" in after else []
    capsys.readouterr()
    execute(words)
    report = json.loads(capsys.readouterr().out)
    waiting = [each["what"] for each in report["findings"] if "waits for a reply" in each["what"]]
    if finding is None:
        assert waiting == []
    else:
        [what] = waiting
        assert what.startswith(
            "a handler of asking.Asking with key tea waits for a reply, and cannot go on: "
        )
        assert finding in what


def test_a_query_that_cannot_be_a_table_is_refused(
    kiosk: Kiosk, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check asks the queries of views of empty tables; the finding names the view, the table and the place."""
    table = "sql('SELECT name, nw() FROM Item', key='name')"
    kiosk.change("from penstock import App,", "from penstock import sql, sqlite, view, App,")
    kiosk.change('App("kiosk", Item)', f'App("kiosk", Item, view("shown", sqlite(), {table}))')
    code, (verdict, findings) = check(kiosk, capsys)
    assert (code, verdict) == (1, "refused")
    (what,) = [finding["what"] for finding in findings if finding["kind"] == "view"]
    assert what.startswith("view shown, table shown: Scalar Function with name nw does not exist")
