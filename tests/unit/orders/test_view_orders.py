"""Orders about views: they are durable, refuse what does not fit, and a copy of a directory is held until it is resumed."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from penstock.base.ids import Epoch
from penstock.cli.main import execute
from penstock.cli.running.status import status_of, view_text
from penstock.errors import RequestError
from penstock.history.backup import Backups
from penstock.history.restore import fork, restore
from penstock.journal.delta import identity_of
from penstock.journal.deployments import Deployments
from penstock.model.control import DeployedCode
from penstock.orders.order import Place
from penstock.orders.view_orders import EndOfHold, Kind, ViewOrder, ViewsState, views_state
from penstock.process import presence
from penstock.process.config import Config, TargetSettings
from penstock.process.view_files import (
    ROLE,
    ViewReport,
    ViewState,
    folder_of,
    held,
    read_orders,
    write_report,
)
from penstock.views.sqlite_target import SqliteTarget
from penstock.views.tables import FAILED_SHAPE
from penstock.views.target import Position
from tests.checkout import SHOP
from tests.gateway_thread import RunningGateway
from tests.history import Call, journal_of
from tests.unit.history.copied_shop import made

EPOCHS: list[list[Call]] = [[("Item", "i1", "create", {"price": 3})], [("Item", "i1", "add", (5,))]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A shop whose deployment declares two views."""
    data = tmp_path / "data"
    journal_of(SHOP, data, EPOCHS)
    declare(data, ["reporting", "names"])
    return data


def declare(data: Path, views: list[str], archive: str = "a") -> None:
    code = DeployedCode(archive * 64, "shop", "app", "3", {})
    assert Deployments(data / "journal").record(Epoch(0), 1, code, {}, views=views) is not None


def give(
    data: Path, kind: Kind, view: str, reason: str = "", url: str = "", *, keep_tables: bool = False
) -> ViewsState:
    settings = Config(data, views={view: TargetSettings(url)} if url else {})
    place = Place(settings, by="ada")
    return ViewOrder(kind, view, reason, keep_tables).carry_out(place)


def state_of(state: ViewsState, name: str) -> tuple[str, str, str]:
    view = next(each for each in state.views if each.name == name)
    return view.state, view.reason, view.remedy


def test_order_is_durable_and_shown_at_once(data: Path) -> None:
    """A pause has its principal and its reason; a resume ends it, and goes on with nothing else."""
    paused = give(data, "pause", "reporting", "the database moves")
    assert state_of(paused, "reporting") == (
        "paused",
        "by ada: the database moves",
        "penstock view resume reporting",
    )
    assert state_of(paused, "names")[0] == "stopped"
    give(data, "rebuild", "reporting")
    orders = read_orders(data, "reporting")
    assert (orders.paused, orders.by, orders.reason, orders.rebuild) == (
        True,
        "ada",
        "the database moves",
        1,
    )
    resumed = give(data, "resume", "reporting")
    assert (read_orders(data, "reporting").paused, read_orders(data, "reporting").rebuild) == (
        False,
        1,
    )
    assert [view.rebuilding for view in resumed.views] == [True, False]


@pytest.mark.parametrize(
    ("kind", "view", "refusal"),
    [
        ("pause", "reports", "there is no view 'reports'; did you mean reporting"),
        ("resume", "names", "view names is not paused"),
        ("remove", "names", "the newest deployment declares view names; deploy code without it"),
    ],
)
def test_order_that_does_not_fit_is_refused(
    data: Path, kind: Kind, view: str, refusal: str
) -> None:
    """The message says what is there, and what to do first."""
    with pytest.raises(RequestError, match=refusal):
        give(data, kind, view)


def test_view_that_is_gone_can_be_removed(data: Path) -> None:
    """Its files stay until then, and it is listed; tables in a database are left to the operator."""
    for name in ("reporting", "names"):
        write_report(data, ViewReport(name, "postgres", ViewState.FOLLOWING, Epoch(1), pid=1))
    declare(data, ["names"], "b")
    state, _, remedy = state_of(views_state(Place(Config(data))), "reporting")
    assert (state, remedy) == ("undeclared", "penstock view remove reporting")
    with pytest.raises(RequestError, match="view reporting is not declared any more"):
        give(data, "rebuild", "reporting")
    with (
        presence.present(data, ROLE, "shop", view="reporting"),
        pytest.raises(RequestError, match="still runs"),
    ):
        give(data, "remove", "reporting")
    with pytest.raises(
        RequestError, match=r"set views.reporting.url; --keep-tables .* removes the"
    ):
        give(data, "remove", "reporting")
    removed = give(data, "remove", "reporting", keep_tables=True)
    assert [view.name for view in removed.views] == ["names"]
    assert (
        removed.left
        == "its tables in postgres stay; drop them there when they are not read any more"
    )
    assert not folder_of(data, "reporting").exists()


def test_files_in_the_folder_of_a_view_go_with_it(data: Path) -> None:
    """A file in the data directory needs no address, and nothing is left to do."""
    declare(data, [], "b")
    write_report(data, ViewReport("names", "sqlite", ViewState.FOLLOWING, Epoch(1)))
    assert give(data, "remove", "names").left == ""
    assert not folder_of(data, "names").exists()


def filled(path: Path, journal: str) -> None:
    """Make the table of a view, with the position of a journal."""
    target = SqliteTarget(path, "names")
    target.load(None, Position("", journal, Epoch(1), "", ""), [FAILED_SHAPE], [])
    target.close()


def test_tables_outside_go_with_the_view(data: Path, tmp_path: Path) -> None:
    """They are removed from the file that the setting names, and tables of users stay; others' tables are refused."""
    declare(data, [], "b")
    path = tmp_path / "names.sqlite"
    url = f"sqlite://{path}"
    with closing(sqlite3.connect(path)) as user:
        user.execute("CREATE TABLE prices (price INTEGER)")
        filled(path, "of the original")
        folder_of(data, "names").mkdir(parents=True)
        with pytest.raises(RequestError, match="no applier has told of view names here"):
            give(data, "remove", "names", url=url)
        write_report(data, ViewReport("names", "sqlite", ViewState.FOLLOWING, Epoch(1)))
        with pytest.raises(RequestError, match="filled from another data directory; --keep-tables"):
            give(data, "remove", "names", url=url)
        path.unlink()
    with closing(sqlite3.connect(path)) as user:
        user.execute("CREATE TABLE prices (price INTEGER)")
        with pytest.raises(RequestError, match="leads to a place without its tables"):
            give(data, "remove", "names", url=url)
        filled(path, identity_of(data / "journal"))
        assert give(data, "remove", "names", url=url).left == ""
        assert user.execute("SELECT name FROM sqlite_master").fetchall() == [("prices",)]
    assert not folder_of(data, "names").exists()


def test_state_is_that_of_a_running_applier(data: Path) -> None:
    """Lag, failed rows and the remedy of the applier are shown; without a process the view is stopped."""
    report = ViewReport(
        "names", "sqlite", ViewState.WAITING, Epoch(0), 2, "no answer", "start the server", 1, 5
    )
    write_report(data, report)
    with presence.present(data, ROLE, "shop", view="names"):
        waiting = views_state(Place(Config(data))).views[1]
        assert (waiting.state, waiting.lag, waiting.incomplete) == ("waiting", 1, True)
        assert waiting.reason == (
            "no answer; incomplete: 2 rows are absent because the row function failed, or the key of a query is not "
            "unique"
        )
        assert waiting.remedy == "start the server"
        text = view_text(status_of(data).views[1])
        assert text.startswith(
            "view names (sqlite): waiting, epoch 0, lag 1; no answer; incomplete"
        )
    stopped = views_state(Place(Config(data))).views[1]
    assert (stopped.state, stopped.epoch) == ("stopped", 0)


def test_damaged_orders_are_shown(data: Path) -> None:
    """One damaged file does not hide the other views."""
    give(data, "pause", "names")
    (folder_of(data, "names") / "orders.json").write_text("{}")
    state, reason, _ = state_of(views_state(Place(Config(data))), "names")
    assert state == "refused"
    assert "orders.json" in reason


def test_copies_are_held(data: Path, tmp_path: Path) -> None:
    """A fork and a restored backup write nothing into targets until they are resumed; the original goes on."""
    write_report(data, ViewReport("names", "sqlite", ViewState.FOLLOWING, Epoch(1)))
    copy, back = tmp_path / "copy", tmp_path / "back"
    assert fork(data, "shop", copy, None).held == ("reporting", "names")
    Backups(tmp_path / "backups").make(data, "shop")
    assert restore(tmp_path / "backups", back, None).held == ("reporting", "names")
    assert held(data) is None
    for folder, reason in (
        (copy, f"forked from {data}"),
        (back, f"restored from {tmp_path}/backups"),
    ):
        assert not (folder / "views").exists()
        state = views_state(Place(Config(folder)))
        assert state_of(state, "names") == ("held", reason, "penstock resume")
        assert fork(folder, "shop", tmp_path / f"{folder.name}2", None).held == (
            "reporting",
            "names",
        )
        resumed = EndOfHold().carry_out(Place(Config(folder)))
        assert resumed.held is None
        assert state_of(resumed, "names")[0] == "stopped"


def test_copy_without_views_is_not_held(tmp_path: Path) -> None:
    """There is nothing to resume."""
    data = made(tmp_path / "data")
    assert fork(data, "shop", tmp_path / "copy", None).held == ()
    assert held(tmp_path / "copy") is None


def test_commands_give_orders(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A person reads what was done, and a program the state of all views."""
    where = ["--data", str(data)]
    assert execute(["view", "pause", "reporting", "--reason", "moving", *where]) == 0
    assert "Paused view reporting." in capsys.readouterr().out
    assert execute(["view", "list", *where]) == 0
    told = capsys.readouterr().out
    assert "reporting" in told
    assert "paused" in told
    assert execute(["view", "rebuild", "reporting", *where]) == 0
    assert execute(["view", "resume", "reporting", *where, "--json"]) == 0
    out = capsys.readouterr().out
    views = json.loads(out[out.index("{") :])["views"]
    assert [(view["name"], view["state"], view["rebuilding"]) for view in views] == [
        ("reporting", "stopped", True),
        ("names", "stopped", False),
    ]
    assert execute(["view", "pause", *where]) == 2
    assert "write the name of a view" in capsys.readouterr().err
    assert execute(["fork", f"{data}-copy", *where, SHOP]) == 0
    assert "its views write nothing until penstock resume" in capsys.readouterr().out
    assert execute(["resume", "--data", f"{data}-copy"]) == 0


def test_gateway_takes_orders_and_shows_views(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same orders over HTTP, the states as metrics, and no address of a target anywhere."""
    with RunningGateway(SHOP, tmp_path) as gateway:
        assert (
            httpx.post(f"{gateway.url}/call/Item/i1/create", json={"price": 3}).status_code == 200
        )
        declare(tmp_path, ["names"])
        write_report(tmp_path, ViewReport("names", "sqlite", ViewState.FOLLOWING, Epoch(-1), 3))
        remote = ["--url", gateway.url]
        assert execute(["view", "pause", "names", "--reason", "moving", *remote]) == 0
        [view] = httpx.get(f"{gateway.url}/views").json()["views"]
        assert (view["state"], view["failed"], view["incomplete"]) == ("paused", 3, True)
        metrics = httpx.get(f"{gateway.url}/metrics").text.splitlines()
        assert 'penstock_views_state{state="paused",view="names"} 1.0' in metrics
        assert 'penstock_views_failed_rows{view="names"} 3.0' in metrics
        assert 'penstock_views_epoch{view="names"} -1.0' in metrics
        assert any(line.startswith('penstock_views_lag_epochs{view="names"} ') for line in metrics)
        wrong = httpx.post(f"{gateway.url}/views", json={"kind": "stop", "view": "names"})
        assert wrong.status_code == 400
        absent = httpx.post(f"{gateway.url}/views", json={"kind": "pause", "view": "nope"})
        assert "there is no view 'nope'" in absent.json()["error"]["message"]
        assert execute(["view", "resume", "names", *remote]) == 0
        assert execute(["view", "list", *remote]) == 0
        assert execute(["resume", *remote]) == 0
    assert "names" in capsys.readouterr().out
