"""The view takes a deployment at its place: changed classes get their columns, others keep their tables."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from penstock.base.ids import Epoch
from penstock.journal.deployments import Deployments
from penstock.process.config import ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.loading import load_app
from penstock.process.version_loader import VersionLoader
from penstock.sql.query import Query
from penstock.sql.view import View
from tests.deployments import kept_imports, stored_code, write_version
from tests.history import Call, journal_of
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
        beans: float = 0
        lid: str = "blue"

    class Shelf(Entity):
        name: str = key()

    class Table(Entity):
        name: str = key()

    opened = stream("opened", {event})
    closed = stream("closed", int)
    app = App("jars", Jar, Shelf, Table, opened, closed)
"""
MADE: list[Call] = [("Jar", "tin", "create", {"beans": 3}), ("Shelf", "top", "create", {})]
LATER: list[Call] = [("Jar", "pot", "create", {"beans": 1.5}), ("Table", "long", "create", {})]


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
    versions = VersionLoader(data, first)
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
            {"name": "pot", "beans": 1.5, "lid": "blue"},
            {"name": "tin", "beans": 3.0, "lid": "blue"},
        ]
        counts = "SELECT (SELECT count(*) FROM Shelf), (SELECT count(*) FROM 'Table'), "
        counts += "(SELECT count(*) FROM streams.closed), (SELECT count(*) FROM requests)"
        [row] = view.ask(Query(counts.replace("'", '"'))).table.to_pylist()
        assert list(row.values()) == [1, 1, 0, 4]
        past = view.ask(Query("SELECT * FROM Jar AS OF EPOCH 0")).table.to_pylist()
        assert past == [{"name": "tin", "beans": 3}]
    assert ("the SQL view is built again" in caplog.text) == (event == "str")
