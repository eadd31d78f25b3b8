"""The SQL view for appliers of a test, without a process of its own; and epochs of entities."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa
import pytest

from penstock.base.ids import Epoch, LogPartition, Lsn
from penstock.journal.api import CHANGES, Commit, Journal, PartKind
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.process.config import ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.view_files import ViewReport, ViewState, folder_of, read_report
from penstock.sql_view.table_answers import TablesBody
from penstock.sql_view.view import View
from penstock.views import query_tables
from penstock.views.applier import Applier
from penstock.views.targets import open_target
from tests.waiting import meanwhile, wait_for

SETTINGS = ViewConfig(memory_mb=256, tables_percent=100)


class Answering:
    """What answers the queries of tables.

    Attributes:
        view: The SQL view; None: none runs.
        asked: How often it was asked.
    """

    def __init__(self) -> None:
        self.view: View | None = None
        self.asked = 0

    def socket(self, _data: Path) -> str | None:
        return None if self.view is None else "here"

    def tables(
        self, _socket: str, body: bytes, caller: str, target: IO[bytes], _timeout_s: float
    ) -> Epoch:
        """Write the answers as the process of the SQL view sends them."""
        assert self.view is not None
        self.asked += 1
        answers = self.view.answers(msgspec.json.decode(body, type=TablesBody), caller)
        with answers.body as file:
            target.write(file.read(answers.size))
        return answers.epoch


@contextmanager
def sql_view(data: Path, app: App, patch: pytest.MonkeyPatch) -> Iterator[Answering]:
    """Run the SQL view in this process, and let the appliers of this process ask it."""
    answering = Answering()
    with (
        closing(DataDirectory(data).open_journal(app)) as journal,
        closing(View(data, app, journal, SETTINGS)) as view,
    ):
        view.start()
        answering.view = view
        patch.setattr(query_tables, "socket_of", answering.socket)
        patch.setattr(query_tables, "tables", answering.tables)
        yield answering


def commit(
    journal: Journal, app: App, entities: Mapping[tuple[str, Any], Mapping[str, Any] | None]
) -> Epoch:
    """Commit an epoch with entities, by class and key; None is a deleted entity.

    Args:
        entities: Their attributes, where those are not the defaults.
    """
    last = journal.last()
    epoch = Epoch(0 if last is None else last.epoch + 1)
    rows = [
        {
            "epoch": epoch,
            "entity": name,
            "key": str(key),
            "state": None if values is None else _state(app.entities[name], key, values),
        }
        for (name, key), values in entities.items()
    ]
    part = journal.write(PartKind.CHANGES, pa.Table.from_pylist(rows, CHANGES), "changes-0")
    journal.commit(Commit(epoch, {LogPartition(0): Lsn(epoch + 1)}, (part,), epoch + 1))
    return epoch


def _state(entity_type: EntityType, key: Any, values: Mapping[str, Any]) -> bytes:
    return entity_type.encode({**entity_type.defaults, entity_type.key_name: key, **values})


@contextmanager
def applier(data: Path, app: App, name: str, url: str = "") -> Iterator[None]:
    """Run an applier in a thread, as its process does."""
    folder = folder_of(data, name)
    folder.mkdir(parents=True, exist_ok=True)
    opener = partial(open_target, url=url, folder=folder)
    with closing(DataDirectory(data).open_journal(app)) as own:
        feeding = Applier(app, data, name, own, opener, settings=SETTINGS)
        with meanwhile(feeding.run):
            yield


def await_state(data: Path, name: str, state: ViewState, epoch: int = -1) -> ViewReport:
    """Wait until an applier tells a state, and an epoch, and return its report."""

    def reached() -> ViewReport | None:
        report = read_report(data, name)
        return report if report and report.state is state and report.epoch >= epoch else None

    report: ViewReport = wait_for(reached, f"the state {state}")
    return report
