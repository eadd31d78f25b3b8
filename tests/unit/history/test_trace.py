"""Tracing and history: they show the recorded effects of a request, and only of that request."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import BEFORE_FIRST, Epoch, entity_key
from penstock.cli.main import execute
from penstock.deployment.loading import load_app
from penstock.engine.execute import Limits
from penstock.history import reader
from penstock.history.reader import HistoryReader
from penstock.journal.api import PartKind
from tests.history import Call, journal_of

LEDGER = str(Path(__file__).parent / "savepoint_app.py")
OPENED: list[Call] = [
    ("Account", "a", "create", {"balance": 10}),
    ("Account", "b", "create", {"balance": 0}),
]
ONE_EPOCH: list[Call] = [
    ("Account", "a", "pay", (4, "b")),
    ("Account", "a", "pay", (40, "b")),
    ("Account", "a", "try_to_pay", (40, "b")),
    ("Account", "a", "there_and_back", ("b", 3)),
    ("", None, "open_and_close", ("c",)),
    ("Account", "b", "delete", ()),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a journal of three epochs: accounts are opened, used, and used again."""
    data = tmp_path_factory.mktemp("ledger")
    journal_of(LEDGER, data, [OPENED, ONE_EPOCH, [("Account", "a", "add", (1,))]])
    return data


def told(data: Path, *words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    command, *rest = words
    assert execute([command, *rest, LEDGER, "--data", str(data), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def tree(call: dict[str, Any]) -> list[Any]:
    return [call["call"], call["undone"], *map(tree, call["calls"])]


def entity(found: Any, key: str) -> Any:
    return next(one for one in found["entities"] if one["key"] == key)


def test_calls_are_a_tree_with_what_they_returned(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nested calls show their arguments, their place in the code and their results."""
    found = told(data, "trace", "r2", capsys=capsys)
    assert (found["epoch"], found["position"], found["requests_in_epoch"]) == (1, 0, 6)
    assert found["reply"] == {"value": 6}
    assert found["as_recorded"]
    assert tree(found["root"]) == [
        "Account/a.pay(4, Account/b)",
        False,
        ["Account/b.add(4)", False],
        ["Account/a.add(-4)", False],
    ]
    assert found["root"]["calls"][1]["value"] == "6"
    assert "savepoint_app.py:" in found["root"]["where"]
    assert found["root"]["took_us"] >= found["root"]["calls"][0]["took_us"]
    a = entity(found, "a")
    assert (a["before"], a["after"], a["written"]) == ({"balance": 10}, {"balance": 6}, True)
    assert a["differences"] == [{"path": "balance", "kind": "changed", "before": 10, "after": 6}]


def test_aborted_request_shows_what_it_undid(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All calls of an aborted request are undone, and the changes of entities are marked so."""
    found = told(data, "trace", "r3", capsys=capsys)
    assert found["reply"]["error"]["kind"] == "Refused"
    assert found["root"]["undone"]
    assert found["root"]["calls"][1]["error"] == "Refused: a has 6"
    b = entity(found, "b")
    assert (b["written"], b["undone"]) == (False, True)
    assert (b["before"], b["after"]) == ({"balance": 4}, {"balance": 44})


def test_savepoint_undoes_its_block_alone(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The calls of a block that raised are undone; the method that caught the error is not."""
    found = told(data, "trace", "r4", capsys=capsys)
    assert found["reply"] == {"value": False}
    assert tree(found["root"]) == [
        "Account/a.try_to_pay(40, Account/b)",
        False,
        ["Account/b.add(40)", True],
        ["Account/a.add(-40)", True],
    ]
    assert entity(found, "b")["undone"]
    assert entity(found, "b")["after"] == {"balance": 44}


def test_calls_in_circles_are_shown(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A calls B calls A: each call is a node of its own."""
    root = told(data, "trace", "r5", capsys=capsys)["root"]
    names = []
    while root is not None:
        names.append(root["call"])
        root = root["calls"][0] if root["calls"] else None
    assert names == [
        "Account/a.there_and_back(Account/b, 3)",
        "Account/b.there_and_back(Account/a, 2)",
        "Account/a.there_and_back(Account/b, 1)",
        "Account/b.there_and_back(Account/a, 0)",
        "Account/b.add(1)",
    ]


def test_creation_and_deletion_are_calls(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Creating, deleting and looking for entities appear where they happened."""
    found = told(data, "trace", "r6", capsys=capsys)
    assert tree(found["root"]) == [
        "open_and_close('c')",
        False,
        ["Account/c.create(balance=5)", False],
        ["Account/c.delete()", False],
        ["Account/c.exists()", False],
    ]
    made = told(data, "trace", "r0", capsys=capsys)
    assert entity(made, "a")["before"] is None
    gone = told(data, "trace", "r7", capsys=capsys)
    assert entity(gone, "b")["after"] is None


def test_next_writer_is_found_in_this_epoch_and_in_later_ones(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each entity names the request that changed it next; the last one names none."""
    first = told(data, "trace", "r2", capsys=capsys)
    assert entity(first, "b")["next"]["request_id"] == "r5"
    assert entity(first, "a")["next"] == {
        "request_id": "r8", "call": "Account/a.add(1)", "epoch": 2,
    }  # fmt: skip
    last = told(data, "trace", "r8", capsys=capsys)
    assert entity(last, "a")["next"] is None


def test_history_names_the_request_behind_each_change(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several changes in one epoch are told apart; undone changes are not listed."""
    found = told(data, "history", "Account", "b", capsys=capsys)
    changes = [(one["request_id"], one["kind"], one["attributes"]) for one in found["changes"]]
    assert changes == [
        ("r1", "create", [{"name": "balance", "before": None, "after": 0}]),
        ("r2", "update", [{"name": "balance", "before": 0, "after": 4}]),
        ("r5", "update", [{"name": "balance", "before": 4, "after": 5}]),
        ("r7", "delete", [{"name": "balance", "before": 5, "after": None}]),
    ]
    parts = [(one["differences"], one["differences_left_out"]) for one in found["changes"]]
    assert parts == [
        ([{"path": "balance", "kind": "added", "after": 0}], 0),
        ([{"path": "balance", "kind": "changed", "before": 0, "after": 4}], 0),
        ([{"path": "balance", "kind": "changed", "before": 4, "after": 5}], 0),
        ([{"path": "balance", "kind": "removed", "before": 5}], 0),
    ]
    assert not found["more"]
    newest = told(data, "history", "Account", "b", "--last", "1", capsys=capsys)
    assert [one["request_id"] for one in newest["changes"]] == ["r7"]
    assert newest["more"]


def test_history_is_searched_from_the_newest_epoch_back(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No epoch is read twice, and none that is older than as many changes as are asked for."""
    monkeypatch.setattr(reader, "_LOOKED_EPOCHS", 1)
    with HistoryReader(data, load_app(LEDGER)) as history:
        looked: list[tuple[int, int]] = []
        rows = history._journal.rows

        def noted(kind: PartKind, after: Epoch, upto: Epoch, *more: Any) -> Any:
            looked.append((after, upto))
            return rows(kind, after, upto, *more)

        monkeypatch.setattr(history._journal, "rows", noted)
        key = entity_key("Account", "a")
        assert history.changes_of(key, BEFORE_FIRST, Epoch(2)) == [0, 1, 2]
        assert looked == [(1, 2), (0, 1), (-1, 0)]
        looked.clear()
        assert history.changes_of(key, BEFORE_FIRST, Epoch(2), 2) == [1, 2]
        assert looked == [(1, 2), (0, 1)]
        looked.clear()
        monkeypatch.setattr(reader, "_FIRST_LOOK_EPOCHS", 1)
        monkeypatch.setattr(reader, "_LOOKED_EPOCHS", 2)
        assert history.changes_of(key, BEFORE_FIRST, Epoch(2), 3) == [0, 1, 2]
        assert looked == [(1, 2), (-1, 1)]


def test_people_see_a_tree_and_tables(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json the same is drawn."""
    assert execute(["trace", "r3", LEDGER, "--data", str(data)]) == 0
    out = capsys.readouterr().out
    assert "undone: Refused: a has 6" in out
    assert "Account/b.add(40)" in out
    assert "round(s)" not in out
    assert execute(["history", "Account", "a", LEDGER, "--data", str(data)]) == 0
    assert "request r8\n  Account/a.add(1)\n" in capsys.readouterr().out


def test_request_that_exceeded_a_limit_is_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A request that depended on the machine is shown as recorded, without calls."""
    name = "x" * 80
    calls: list[Call] = [("Account", name, "create", {"balance": 1})]
    journal_of(LEDGER, tmp_path, [calls], limits=Limits(reply_bytes=64))
    found = told(tmp_path, "trace", "r0", capsys=capsys)
    assert found["taken_as_recorded"]
    assert found["root"] is None


def test_changed_result_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A trace says prominently if the request ends differently from the record."""
    epochs: list[list[Call]] = [OPENED, [("Account", "a", "add", (1,))]]
    journal_of(LEDGER, tmp_path, epochs, damage={"Account/a": {"balance": 7}})
    assert not told(tmp_path, "trace", "r2", capsys=capsys)["as_recorded"]
    assert execute(["trace", "r2", LEDGER, "--data", str(tmp_path)]) == 0
    assert "differs from the recorded one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("trace", "r99"), "no request r99"),
        (("history", "Account", "nobody"), "Account/nobody was not changed"),
        (("history", "Nothing", "a"), "no entity class 'Nothing'"),
    ],
)
def test_what_is_unknown_is_refused(
    data: Path, words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown request, entity or class is the caller's error, and named."""
    assert execute([*words, LEDGER, "--data", str(data)]) == 2
    assert text in capsys.readouterr().err


names = st.sampled_from("ab")
calls = st.one_of(
    st.tuples(st.just("Account"), names, st.just("add"), st.tuples(st.integers(-9, 9))),
    st.tuples(
        st.just("Account"), names, st.sampled_from(["pay", "try_to_pay"]),
        st.tuples(st.integers(-9, 9), names),
    ),
    st.tuples(st.just("Account"), names, st.sampled_from(["delete", "create"]), st.just(())),
)  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(epochs=st.lists(st.lists(calls, min_size=1, max_size=6), min_size=1, max_size=3))
def test_traces_of_an_epoch_together_are_its_changes(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[list[Call]]
) -> None:
    """For random programs, the writes of traced requests lead from each state to the next."""
    from penstock.history.code_versions import CodeVersions  # noqa: PLC0415
    from penstock.history.trace import trace  # noqa: PLC0415

    data = tmp_path_factory.mktemp("ledger")
    journal_of(LEDGER, data, [OPENED, *epochs])
    app = load_app(LEDGER)
    number = len(OPENED)
    with HistoryReader(data, app) as past:
        for epoch, requests in enumerate(epochs, 1):
            seen: dict[str, Any] = {}
            for _ in requests:
                found = trace(past, CodeVersions(past, app, LEDGER), f"r{number}", Limits())
                number += 1
                assert found.as_recorded
                for one in found.entities:
                    key = f"{one.entity}/{one.key}"
                    if key in seen:
                        assert one.before == seen[key]
                    if one.written:
                        seen[key] = one.after
            for key, data_after in past.epoch(epoch).changes.items():  # type: ignore[arg-type]
                assert (data_after is None) == (seen[key] is None)
                if data_after is not None:
                    assert list(seen[key].values()) == msgspec.msgpack.decode(data_after)[1:]


HALL = """
from datetime import datetime
from penstock import App, Entity, key


class Hall(Entity):
    name: str = key()
    seats: dict[tuple[str, int], datetime | None] = {}

    def book(self, row: str, until: datetime) -> dict[tuple[str, int], datetime | None]:
        self.seats[row, 1] = until
        return self.seats


app = App("hall", Hall)
"""


def test_keys_that_are_tuples_and_times_are_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dictionary with tuples as keys is shown in each document, and a time as people write it."""
    code = tmp_path / "hall.py"
    code.write_text(HALL)
    until = datetime(2026, 1, 1, 12, tzinfo=UTC)
    calls: list[Call] = [("Hall", "a", "create", {}), ("Hall", "a", "book", ("A", until))]
    journal_of(str(code), tmp_path / "data", [calls])
    for words in (("history", "Hall", "a"), ("trace", "r1")):
        for rest in (["--json"], []):
            asked = [*words, str(code), "--data", str(tmp_path / "data"), *rest]
            assert execute(asked) == 0
            shown = capsys.readouterr().out
            assert "book('A', '2026-01-01T12:00:00Z')" in shown
            assert '["A",1]' in shown.replace("\\", "")


SCALE = """
from penstock import App, Entity, key

class Scale(Entity):
    name: str = key()
    weight: float = 1.0
    seen: list[float] = [float("nan")]

    def weigh(self, weight: float) -> None:
        self.weight = weight

app = App("scales", Scale)
"""


def test_nan_is_shown_and_is_no_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A history shows a weight that is NaN, and not the list that holds NaN before and after the change."""
    source, data = tmp_path / "scales.py", tmp_path / "data"
    source.write_text(SCALE)
    calls: list[Call] = [("Scale", "a", "create", {}), ("Scale", "a", "weigh", ("NaN",))]
    journal_of(str(source), data, [calls[:1], calls[1:]])
    asked = ["history", "Scale", "a", str(source), "--data", str(data), "--last", "1"]
    assert execute([*asked, "--json"]) == 0
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert change["attributes"] == [{"name": "weight", "before": 1.0, "after": "NaN"}]
    assert execute(asked) == 0
    assert "weight 1.0 NaN" in " ".join(capsys.readouterr().out.split())


WORTH = """
from penstock import App, Entity, key

class Box(Entity):
    name: str = key()
    price: int = 3

    @property
    def worth(self) -> int:
        return 2 * self.price

    def told(self, other: "Box") -> int:
        return other.worth + self.worth

app = App("boxes", Box)
"""


def test_a_property_is_read_and_not_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace shows a property with its value as it stands in the source, without parentheses."""
    source, data = tmp_path / "boxes.py", tmp_path / "data"
    source.write_text(WORTH)
    journal_of(
        str(source),
        data,
        [[("Box", "a", "create", ()), ("Box", "b", "create", ()), ("Box", "a", "told", ("b",))]],
    )
    assert execute(["trace", "r2", str(source), "--data", str(data), "--json"]) == 0
    calls = json.loads(capsys.readouterr().out)["root"]["calls"]
    assert [(one["call"], one["value"]) for one in calls] == [
        ("Box/b.worth", "6"),
        ("Box/a.worth", "6"),
    ]


CLOCK = """
from dataclasses import field
from datetime import datetime, timezone
from penstock import App, Entity, key

COUNT = 0


class Visit(Entity):
    name: str = key()
    made: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    note: str = ""
    seen: int = 0

    def look(self) -> None:
        self.seen += 1

    def mark(self) -> None:
        global COUNT
        COUNT += 1
        if COUNT == 1:
            self.note = "first"


app = App("visits", Visit)
"""


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give an application whose handlers read a clock and a counter, and its journal."""
    folder = tmp_path_factory.mktemp("visits")
    code = folder / "visits.py"
    code.write_text(CLOCK)
    created: Call = ("Visit", "a", "create", {})
    looks: list[Call] = [("Visit", "a", "look", ()), ("Visit", "a", "look", ())]
    journal_of(str(code), folder / "data", [[created], looks, [("Visit", "a", "mark", ())]])
    journal_of(
        str(code), folder / "data", [[("Visit", "b", "create", {}), ("Visit", "b", "look", ())]]
    )
    return code


def seen_at(code: Path, *words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    asked = [*words, str(code), "--data", str(code.parent / "data")]
    assert execute([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert execute(asked) == 0
    return found, " ".join(capsys.readouterr().out.split())


def stored_of(code: Path, name: str) -> list[Any]:
    app = load_app(str(code))
    with HistoryReader(code.parent / "data", app) as past:
        state = past.state_before(past.last + 1)  # type: ignore[arg-type]
        found: list[Any] = msgspec.msgpack.decode(state[f"Visit/{name}"])[1:]  # type: ignore[index]
        return found


def test_a_history_shows_stored_values_and_names_what_deviates(
    visits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A handler with a clock gives another time at each run; the stored one is shown."""
    made = stored_of(visits, "a")[0]
    found, text = seen_at(visits, "history", "Visit", "a", capsys=capsys)
    created = found["changes"][0]
    shown = {one["name"]: one["after"] for one in created["attributes"]}
    assert datetime.fromisoformat(shown["made"]) == datetime.fromisoformat(str(made))
    (deviation,) = created["deviations"]
    assert deviation["path"] == "made"
    assert datetime.fromisoformat(deviation["before"]) == datetime.fromisoformat(str(made))
    assert deviation["after"] != deviation["before"]
    assert "running it again does not give the stored state: made is" in text
    assert [change["deviations"] for change in found["changes"][1:3]] == [[], []]


def test_a_change_that_no_request_makes_again_is_shown(
    visits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its request is unknown; the change is there."""
    seen_at(visits, "history", "Visit", "a", capsys=capsys)  # counts beyond the first value
    found, text = seen_at(visits, "history", "Visit", "a", capsys=capsys)
    change = found["changes"][-1]
    assert change["attributes"] == [{"name": "note", "before": "", "after": "first"}]
    assert change["request_id"] is None
    assert "by a request that does not do it again" in text


def test_a_trace_shows_stored_values_and_names_what_deviates(
    visits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The state that the request stored is its effect; that of this run is a deviation, also between two requests."""
    found, text = seen_at(visits, "trace", "r0", capsys=capsys)
    made = stored_of(visits, "a")[0]
    a = entity(found, "a")
    assert datetime.fromisoformat(a["after"]["made"]) == datetime.fromisoformat(str(made))
    assert [one["path"] for one in a["deviations"]] == ["made"]
    assert not found["as_recorded"]
    assert "Visit/a: running it again does not give the stored state: made is" in text
    for request, last in (("r4", False), ("r5", True)):
        found, _ = seen_at(visits, "trace", request, capsys=capsys)
        b = entity(found, "b")
        assert [one["path"] for one in b["deviations"]] == ["made"]
        is_stored = str(b["after"]["made"]) == str(b["deviations"][0]["before"])
        assert is_stored is last
