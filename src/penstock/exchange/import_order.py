"""The order to import rows into a class: one control record, whose epoch has all of them or none.

The rows are read, converted to states and compared with the declared types before the record is appended. They go into
files next to the log (`journal.staged`), and the record names the files. At its place the driver looks which entities
exist, and commits the changes as an epoch (`runtime.spark.importing`).
"""

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import ClassVar, Final, Literal

import msgspec

from penstock.base.file_formats import FileFormat
from penstock.base.ids import EntityKey
from penstock.deployment.code_in_force import code_in_force, load_deployed
from penstock.engine.imported import Existing, ImportResult, imported, refusal_of
from penstock.errors import ConfigError, RequestError
from penstock.exchange.source import Source, open_source
from penstock.exchange.states import Misfit, StatesOfRows, importable
from penstock.journal.staged import StagedRows
from penstock.model.application import App
from penstock.model.control import Import
from penstock.model.entity_type import EntityType
from penstock.orders.order import (
    Place,
    Way,
    append_control,
    carried_out_apart,
    carry_out_here,
    settled,
)
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.driver_claim import driver_runs
from penstock.state.newest import at_newest

ORDER: Final = "import"
"""The first word of the id of an import's control record."""

ROWS_MAX: Final = 5_000_000
BYTES_MAX: Final = 1 << 30
"""The most rows of an import, and the most bytes of their states. An import is one epoch, which its readers take as a whole."""

_PIECE_ROWS: Final = 40_000
_PIECE_BYTES: Final = 16 << 20
_WORK_S: Final = 3_600.0
"""How long a gateway lets a source be read."""

_ID_MAX: Final = 200


class ImportReport(msgspec.Struct, frozen=True):
    """The result of an order to import rows.

    Attributes:
        outcome: `imported`; `waits` for a driver, which will execute it; `refused`, because rows do not fit, and nothing
            was written; or `fits`, for a trial.
        id: The id of the order, by which it takes effect once.
        rows: How many rows were read.
        unfit: How many of them do not fit.
        misfits: The first of these.
        created: How many entities are new.
        replaced: How many entities got another state.
        unchanged: How many rows changed nothing: their entities were kept, or had this state already.
        epoch: The epoch that has them.
    """

    outcome: Literal["imported", "waits", "refused", "fits"]
    id: str
    rows: int
    unfit: int = 0
    misfits: list[Misfit] = []
    created: int = 0
    replaced: int = 0
    unchanged: int = 0
    epoch: int | None = None


class ImportOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Import rows into a class.

    All rows become entities in one epoch, or none does. The source is a file of Parquet, CSV or JSON lines on the host
    of the gateway, or a table of PostgreSQL.

    Attributes:
        entity: The class.
        source: The path of the file, or the URL of the database, without a password.
        format: The format of the file; null: as its suffix says.
        table: The table of the database.
        existing: The treatment of a row whose entity exists: all rows are refused, or the entity gets the state of the row,
            or only its attributes that the row has change, or it is kept.
        id: The order takes effect once for each id; empty: a new id.
        dry_run: Whether nothing is written.
    """

    entity: str
    source: str
    format: FileFormat | None = None
    table: str = ""
    existing: Existing = "refuse"
    id: str = ""
    dry_run: bool = False

    way: ClassVar[Way] = Way(
        noun="an import",
        path="/imports",
        name="imports.order",
        result=ImportReport,
        text="The rows are imported, or a report of the rows that do not fit.",
        example='{"entity": "Item", "source": "/srv/items.parquet"}',
        work_s=_WORK_S + 60.0,
        waits=lambda report: report.outcome == "waits",
    )

    def carry_out(self, place: Place, timeout_s: float) -> ImportReport:
        """Read the rows, append the control record, and wait until it has taken effect, if a driver runs."""
        if len(self.id) > _ID_MAX or not self.id.isprintable() or "~" in self.id:
            raise RequestError(f"an id has at most {_ID_MAX} printable characters, and no ~")
        if place.told is None:  # code of the application may run, and takes as long as it takes
            return carried_out_apart(self, place, timeout_s, "the import", _WORK_S)
        directory, name = place.directory()
        code = code_in_force(place.settings.data)
        if code is None:
            raise ConfigError("no application is deployed there; start it first: penstock run")
        app = load_deployed(place.settings.data, code[0])
        return _Import(self, place, directory, app, name).run(timeout_s)


class _Import:
    """One import, from its source to the reply of the driver."""

    def __init__(
        self, order: ImportOrder, place: Place, directory: DataDirectory, app: App, name: str
    ) -> None:
        self._order = order
        self._place = place
        self._settings: Config = place.settings
        self._directory = directory
        self._app = app
        self._name = name
        self._id = order.id or uuid.uuid4().hex
        self._type: EntityType = importable(app, order.entity)
        limits = self._settings.limits
        name = f"{ORDER}~~{self._id}"
        self._rows = StatesOfRows(app, self._type, limits, name, updates=order.existing == "update")
        self._pieces: list[str] = []

    def run(self, timeout_s: float) -> ImportReport:
        """Do the work; raises as `ImportOrder.carry_out`."""
        order = self._order
        source = open_source(order.source, self._rows.names, order.format, order.table)
        self._rows.check_columns(source)
        if order.dry_run:
            return self._tried(source)
        staged = StagedRows(self._settings.data)
        for texts, states in self._gathered(source):
            if not self._rows.unfit:  # else nothing will be imported
                self._pieces.append(staged.stage(texts, states, self._id))
        self._note_twins(staged)
        if self._rows.unfit:
            return self._refused()
        return self._ordered(timeout_s)

    def _gathered(self, source: Source) -> Iterator[tuple[list[str], list[bytes]]]:
        """Yield the states of some batches together; told of the progress."""
        texts: list[str] = []
        states: list[bytes] = []
        size = whole = 0
        for made in self._rows.states(source):
            texts += made.texts
            states += made.states
            size += sum(map(len, made.states))
            if self._place.told is not None:
                self._place.told(*source.done())
            self._check_bounds(whole + size)
            if len(texts) >= _PIECE_ROWS or size >= _PIECE_BYTES:
                yield texts, states
                whole += size
                texts, states, size = [], [], 0
        if texts:
            yield texts, states

    def _check_bounds(self, size: int) -> None:
        if self._rows.rows > ROWS_MAX or size > BYTES_MAX:
            raise RequestError(
                f"an import has at most {ROWS_MAX:,} rows and {BYTES_MAX >> 20} MB of states, because it is one epoch; divide the "
                "source, and import each part"
            )

    def _note_twins(self, staged: StagedRows) -> None:
        """Note the keys that stand in the source twice."""
        twins = self._rows.twins()
        if not len(twins) or self._rows.unfit:  # with misfits, places are no numbers of rows
            return
        first, last = 0, -1
        for piece in self._pieces:
            texts = staged.rows(piece)["key"]
            first, last = last + 1, last + len(texts)
            for twin in twins[(twins >= first) & (twins <= last)].tolist():
                key = texts[twin - first].as_py()
                why = "an earlier row has this key, too"
                self._rows.note(Misfit(twin + 1, self._type.key_name, repr(key), why))

    def _refused(self) -> ImportReport:
        rows = self._rows
        return ImportReport("refused", self._id, rows.rows, rows.unfit, rows.misfits)

    def _ordered(self, timeout_s: float) -> ImportReport:
        order, rows = self._order, self._rows.rows
        if not rows:
            raise RequestError("the source has no rows")
        control = Import(
            self._type.stored_name,
            self._type.shape.tag,
            tuple(self._pieces),
            rows,
            order.existing,
            self._place.by,
        )
        with closing(self._directory.open_log(self._settings)) as log:
            lsn = append_control(log, ORDER, self._id, control)
        if not driver_runs(self._settings.data):
            return ImportReport("waits", self._id, rows)
        what = f"the import of {rows} rows into {order.entity}"
        made: ImportResult = settled(self._settings, lsn, timeout_s, what).value(ImportResult)
        counts = made.created, made.replaced, made.unchanged
        return ImportReport("imported", self._id, rows, 0, [], *counts, made.epoch)

    def _tried(self, source: Source) -> ImportReport:
        """Convert all rows, and look which entities exist now; write nothing."""
        order, limit = self._order, self._settings.limits.state_bytes
        created = replaced = unchanged = refused = 0
        named: list[str] = []
        with (
            closing(self._directory.open_journal_of(self._name)) as journal,
            closing(self._directory.open_stores(journal)) as stores,
        ):
            for texts, states in self._gathered(source):
                piece = texts, states
                made = at_newest(
                    journal,
                    stores,
                    lambda reader: imported(self._type, piece, reader.get, order.existing, limit),  # noqa: B023
                ) or imported(self._type, piece, _nothing, order.existing, limit)
                created += made.created
                replaced += made.replaced
                unchanged += made.unchanged
                refused += made.refused
                named += made.named
        if len(twins := self._rows.twins()):
            for twin in twins.tolist():
                why = "an earlier row has this key, too"
                self._rows.note(Misfit(twin + 1, self._type.key_name, "", why))
        if self._rows.unfit:
            return self._refused()
        if refused:
            raise RequestError(refusal_of(order.entity, refused, named, order.existing))
        rows = self._rows.rows
        return ImportReport("fits", self._id, rows, 0, [], created, replaced, unchanged)


def _nothing(_key: EntityKey) -> None:
    """Read an empty state."""


if __name__ == "__main__":
    carry_out_here(ImportOrder)
