"""The view takes a deployment at its place: changed classes get their columns, others keep their tables."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from penstock.base.ids import Epoch
from penstock.deployment.code_in_force import CodeInForce
from penstock.deployment.loading import load_app
from penstock.files.key_file import KeyFile
from penstock.files.layout import SUBJECT_KEYS
from penstock.journal.deployments import Deployments
from penstock.process.config import ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from tests.deployments import kept_imports, stored_code, write_version
from tests.history import Call, journal_of
from tests.readable_files import readable_in
from tests.waiting import wait_for

__all__ = ["kept_imports"]

FIRST = """
    from penstock import App, Entity, key, stream

    class Jar(Entity):
        name: str = key()
        beans: int = 0

    class Shelf(Entity):
        name: str = key()

    opened = stream("opened", int)
    app = App("jars", Jar, Shelf, opened)
"""
SECOND = """
    from penstock import App, Entity, key, stream

    class Jar(Entity):
        name: str = key()
        beans: int | None = 0
        lid: str = "blue"

    class Shelf(Entity):
        name: str = key()

    class Table(Entity):
        name: str = key()

    opened = stream("opened", {event})
    closed = stream("closed", int)
    app = App("jars", Jar, Shelf, Table, opened, closed)
"""
PERSONAL = (
    FIRST.replace("key, stream", "entity, key, stream")
    .replace(
        "    opened =",
        """    @entity(personal=True)
    class User:
        user_id: str = key()
        name: str

        def tell(self) -> str:
            return f"{self.name} {self.user_id}"

    opened =""",
    )
    .replace("Shelf, opened", "Shelf, User, opened")
)
MADE: list[Call] = [("Jar", "tin", "create", {"beans": 3}), ("Shelf", "top", "create", {})]
LATER: list[Call] = [("Jar", "pot", "create", {"beans": 2}), ("Table", "long", "create", {})]


@pytest.mark.usefixtures("kept_imports")
@pytest.mark.parametrize("event", ["int", "str"])
def test_tables_change_at_the_epoch_of_the_deployment(
    tmp_path: Path, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Queries see the columns of the deployment; past epochs have theirs; a changed stream rebuilds the file."""
    data = tmp_path / "data"
    first = write_version(tmp_path / "1", "jars", FIRST)
    second = write_version(tmp_path / "2", "jars", SECOND.replace("{event}", event))
    journal_of(first, data, [MADE])
    app = load_app(first)
    versions = CodeInForce(data, first)
    with (
        closing(DataDirectory(data).open_journal(app)) as journal,
        closing(View(data, app, journal, ViewConfig(), versions)) as view,
    ):
        view.start()
        assert view.ask(Query("SELECT * FROM Jar")).table.to_pylist() == [
            {"name": "tin", "beans": 3}
        ]
        code = stored_code(data, second)
        deployments = Deployments(data / "journal")
        recorded = deployments.record(Epoch(1), time.time_ns() // 1_000, code, {})
        wait_for(lambda: versions.served == recorded, "the change of the tables")
        journal_of(f"{data}/run/code/{code.archive}//jars:app", data, [LATER])
        rows = view.ask(Query("SELECT * FROM Jar ORDER BY name", min_epoch=1)).table.to_pylist()
        assert rows == [
            {"name": "pot", "beans": 2, "lid": "blue"},
            {"name": "tin", "beans": 3, "lid": "blue"},
        ]
        counts = "SELECT (SELECT count(*) FROM Shelf), (SELECT count(*) FROM 'Table'), "
        counts += "(SELECT count(*) FROM streams.closed), (SELECT count(*) FROM requests)"
        [row] = view.ask(Query(counts.replace("'", '"'))).table.to_pylist()
        assert list(row.values()) == [1, 1, 0, 4]
        past = view.ask(Query("SELECT * FROM Jar AS OF EPOCH 0")).table.to_pylist()
        assert past == [{"name": "tin", "beans": 3}]
    assert ("the SQL view is built again" in caplog.text) == (event == "str")


@pytest.mark.usefixtures("kept_imports")
def test_first_personal_class_of_a_deployment(tmp_path: Path) -> None:
    """The open journal encrypts and decrypts replies about persons, and the view forgets the erased."""
    data = tmp_path / "data"
    first = write_version(tmp_path / "1", "jars", FIRST)
    second = write_version(tmp_path / "2", "jars", PERSONAL)
    journal_of(first, data, [MADE])
    versions = CodeInForce(data, first)
    app = load_app(first)
    with (
        closing(DataDirectory(data).open_journal(app)) as journal,
        closing(View(data, app, journal, ViewConfig(), versions)) as view,
    ):
        view.start()
        assert view.ask(Query("SELECT beans FROM Jar")).table["beans"].to_pylist() == [3]
        code = stored_code(data, second)
        deployments = Deployments(data / "journal")
        recorded = deployments.record(Epoch(1), time.time_ns() // 1_000, code, {})
        wait_for(lambda: versions.served == recorded, "the change of the tables")
        calls: list[Call] = [
            ("User", name, method, given)
            for method, given in (("create", {"name": "Lovelace"}), ("tell", {}))
            for name in ("ada", "bob")
        ]
        journal_of(f"{data}/run/code/{code.archive}//jars:app", data, [calls])
        names = "SELECT user_id FROM User ORDER BY ALL"
        replies = "SELECT value FROM replies"
        assert view.ask(Query(names, min_epoch=1)).table["user_id"].to_pylist() == ["ada", "bob"]
        assert "Lovelace ada" in str(view.ask(Query(replies)).table.to_pylist())
        assert readable_in(data, "Lovelace ada") == []
        KeyFile(data / SUBJECT_KEYS).destroy("User/ada", 0)
        assert view.ask(Query(names)).table["user_id"].to_pylist() == ["bob"]
        told = str(view.ask(Query(replies)).table.to_pylist())
        assert "Lovelace ada" not in told
        assert "Lovelace bob" in told
