"""The rows of a source as states of entities, with a report of the rows that do not fit.

A row becomes the same state as a request that creates the entity with these attributes. Of a class without an
`__init__` the columns are the key and the attributes, and whole columns are converted at once. A class with an
`__init__` has its arguments as columns, and each row runs it in a transaction of its own, of which only the state of
the new entity is taken. A row that updates becomes its attributes alone, and the state of a new entity if it makes one, as
a request with `update_or_create`. Nothing is written here.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from penstock.base.ids import EntityKey, RequestId, split_entity_key
from penstock.engine.execute import Executor, Limits
from penstock.engine.failure import Escape
from penstock.engine.imported import RowUpdate, encode_update
from penstock.errors import RequestError, UserError
from penstock.exchange.cells import Cells, Misread, reason_of_misfit, shown
from penstock.exchange.source import Batch, Column, Source
from penstock.model.application import App, unknown
from penstock.model.attribute import new_value
from penstock.model.call import Call, encoded
from penstock.model.entity import lacking_of
from penstock.model.entity_type import EntityType
from penstock.model.index import name_in
from penstock.model.index_rows import INDEX
from penstock.model.request import decode_failure
from penstock.process.guard import Guard

MISFITS_MAX: Final = 100
"""The most rows in a report; the others are counted."""

_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Misfit(msgspec.Struct, frozen=True):
    """A cell that does not fit, or a whole row.

    Attributes:
        row: The number of the row, from 1; the header of CSV has none.
        column: The name of the column; empty for a whole row.
        value: The cell as text, shortened.
        reason: Why it does not fit.
    """

    row: int
    column: str
    value: str
    reason: str


class States(NamedTuple):
    """The states of a batch, in the order of its rows; of rows that update the encoded `RowUpdate`s."""

    texts: list[str]
    states: list[bytes]


def importable(app: App, entity: str) -> EntityType:
    """Return the class that an import names.

    Raises:
        RequestError: The class does not exist, or only requests can create its entities.
    """
    if entity not in app.entities and entity in app.topology.streams:
        raise RequestError(
            f"{entity} is a stream, and an import makes entities of a class; the events of a file are appended by a generator: "
            f'generator("{entity}-file", {entity}, from_file("events.jsonl"), atom_size=1000), or by penstock append'
        )
    if entity not in app.entities:
        raise RequestError(unknown("class", entity, app.entities))
    entity_type: EntityType = app.entities[entity]
    if entity_type.personal:
        raise RequestError(
            f"{entity} is a personal class, whose entities get a key of their own each: create them by requests"
        )
    if entity_type.must_exist:
        names = ", ".join(entity_type.must_exist)
        raise RequestError(
            f"{entity}.{names}: reference(exists=True) holds at the end of each transaction, which an import cannot check: "
            "create the entities by requests, or import them before the declaration is deployed"
        )
    return entity_type


class StatesOfRows:
    """Makes states of the rows of one source.

    Attributes:
        misfits: The first rows that do not fit.
        unfit: How many do not fit.
        rows: How many rows were read.
    """

    def __init__(
        self,
        app: App,
        entity_type: EntityType,
        limits: Limits,
        name: str,
        *,
        updates: bool = False,
    ) -> None:
        """Prepare the columns of a class.

        Args:
            limits: The limits of a handler, for a class with an `__init__`.
            name: A name of this import, from which `random` and `uuid` of an `__init__` derive.
            updates: Whether the rows change only their own attributes.
        """
        self._app = app
        self._type = entity_type
        self._limits = limits
        self._name = name
        self._updates_rows = updates
        self.misfits: list[Misfit] = []
        self.unfit = self.rows = 0
        self._digests: list[npt.NDArray[np.bytes_]] = []
        self._cells: dict[str, Cells] = {}
        if self._has_attributes:
            self._types = {
                entity_type.key_name: entity_type.constrained_key,
                **entity_type.constrained,
            }
            self._optional = set(entity_type.constrained if updates else entity_type.defaults)
        else:
            creation = entity_type.creation
            assert creation is not None, "the application is built"
            if any(each.kind in _VARIADIC for each in creation.parameters.values()):
                raise RequestError(
                    f"{entity_type.name}.__init__ takes any arguments, so its columns have no names: create the "
                    "entities by requests"
                )
            self._types = dict(creation.constrained)
            self._optional = {
                name for name, each in creation.parameters.items() if each.default is not each.empty
            }

    @property
    def _has_attributes(self) -> bool:
        """Whether columns are the key and attributes, and not the arguments of an `__init__`."""
        return self._updates_rows or self._type.initializer is None

    @property
    def names(self) -> list[str]:
        """The names of the columns that a source may have."""
        return list(self._types)

    def check_columns(self, source: Source) -> None:
        """Refuse a source whose columns do not belong to the class.

        Raises:
            RequestError: A column is unknown, or a column is missing that has no default.
        """
        self._cells = {
            name: Cells(name, annotation, is_csv=source.is_csv)
            for name, annotation in self._types.items()
        }
        if source.names is None:
            return
        what = (
            f"attribute of {self._type.name}"
            if self._has_attributes
            else (f"parameter of {self._type.name}.__init__")
        )
        for name in source.names:
            if source.is_csv and len(source.names) == 1 and re.search(r"\w[;|\t]\w", name):
                raise RequestError(
                    f"the first line {name!r} is a single column; save the file as CSV with commas between its columns"
                )
            if name not in self._types:
                raise RequestError(unknown(what, name, self._types))
        missing = [
            name for name in self._types if name not in source.names and name not in self._optional
        ]
        if missing == [self._type.key_name]:
            raise RequestError(f"the source has no column {missing[0]!r}, which is the key")
        if missing:
            raise RequestError(
                f"the source has no column {missing[0]!r}, and the attribute has no default"
            )

    def states(self, source: Source) -> Iterator[States]:
        """Yield the states of all rows; a batch has fewer states than rows if some do not fit.

        Raises:
            RequestError: The source cannot be read in its format.
        """
        run = self._encoded if self._type.initializer is None else self._created
        run = self._updates if self._updates_rows else run
        for batch in source.batches():
            rows, values = self._values(batch, has_json=source.has_json)
            made = run(batch, rows, values)
            self.rows += batch.rows
            self._note_keys(made.texts)
            yield made

    def twins(self) -> npt.NDArray[np.int64]:
        """Return the places of keys that came before, among all states: int64."""
        if not self._digests:
            return np.empty(0, np.int64)
        every = np.concatenate(self._digests)
        order = np.argsort(every, kind="stable")
        again = np.flatnonzero(every[order][1:] == every[order][:-1]) + 1
        return np.sort(order[again])

    def note(self, misfit: Misfit) -> None:
        """Add a row to the report."""
        self.unfit += 1
        if len(self.misfits) < MISFITS_MAX:
            self.misfits.append(misfit)

    def _note_keys(self, texts: Sequence[str]) -> None:
        digests = b"".join(xxhash.xxh3_128_digest(text.encode()) for text in texts)
        self._digests.append(np.frombuffer(digests, "S16"))

    def _values(self, batch: Batch, *, has_json: bool) -> tuple[list[int], dict[str, list[Any]]]:
        """Return the places of the rows that fit so far, and the values of each column at them."""
        unknown_names = [name for name in batch.columns if name not in self._cells]
        if not unknown_names and not batch.broken:
            values = self._whole(batch, has_json=has_json)
            if values is not None:
                return list(range(batch.rows)), values
        bad = dict(batch.broken)
        for place, why in bad.items():
            self.note(Misfit(batch.first + place, "", "", why))
        made: dict[str, list[Any]] = {name: [] for name in self._cells}
        rows: list[int] = []
        for place in range(batch.rows):
            if place in bad:
                continue
            row = self._row(batch, place, unknown_names, has_json=has_json)
            if row is not None:
                rows.append(place)
                for name, value in row.items():
                    made[name].append(value)
        return rows, made

    def _whole(self, batch: Batch, *, has_json: bool) -> dict[str, list[Any]] | None:
        """Return the values of whole columns; None if a cell does not fit, or is not there."""
        values: dict[str, list[Any]] = {}
        for name, cells in self._cells.items():
            column = batch.columns.get(name)
            if column is None:
                if name not in self._optional:
                    return None
                values[name] = [self._default(name) for _ in range(batch.rows)]
                continue
            try:
                values[name] = _read_all(cells, column, has_json=has_json)
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001 -- each cell is read alone then, and tells its reason
                return None
        return values

    def _row(
        self, batch: Batch, place: int, unknown_names: list[str], *, has_json: bool
    ) -> dict[str, Any] | None:
        """Return the values of one row, or note why it does not fit."""
        number = batch.first + place
        for name in unknown_names:
            cell = batch.columns[name].cells[place]
            if cell is not msgspec.UNSET:
                self.note(Misfit(number, name, shown(cell), unknown("column", name, self._cells)))
                return None
        values: dict[str, Any] = {}
        for name, cells in self._cells.items():
            column = batch.columns.get(name)
            cell = msgspec.UNSET if column is None else column.cells[place]
            if cell is msgspec.UNSET or column is None:
                if name not in self._optional:
                    self.note(Misfit(number, name, "", "it is missing, and has no default"))
                    return None
                values[name] = self._default(name)
                continue
            try:
                if has_json:
                    values[name] = cells.of_json(cell)
                else:
                    values[name] = cells.read_one(cell, is_text=column.is_text)
            except Misread as error:
                self.note(Misfit(number, name, shown(cell), str(error)))
                return None
        return values

    def _default(self, name: str) -> Any:
        if self._type.initializer is None and not self._updates_rows:
            return new_value(self._type.defaults[name])
        return msgspec.UNSET  # the call, or the change, leaves it out

    def _encoded(self, batch: Batch, rows: Sequence[int], values: dict[str, list[Any]]) -> States:
        """Return the states of rows whose class has no code of its own."""
        entity_type = self._type
        encode, key_text = entity_type.encode_change, entity_type.key_text
        state_bytes = self._limits.state_bytes
        names, key_name = list(values), entity_type.key_name
        texts: list[str] = []
        states: list[bytes] = []
        for place, *row in zip(rows, *values.values(), strict=True):
            attributes = dict(zip(names, row, strict=True))
            try:
                text = key_text(attributes[key_name])
                state = encode(attributes, None)
                assert state is not None, "there was no state before"
                if len(state) > state_bytes:
                    raise RequestError(
                        f"its state takes {len(state)} bytes, more than limits.state_bytes = {state_bytes}"
                    )
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 -- comparing values runs code of a user
                self.note(
                    Misfit(
                        batch.first + place,
                        "",
                        shown(attributes[key_name]),
                        reason_of_misfit(error),
                    )
                )
                continue
            texts.append(text)
            states.append(state)
        return States(texts, states)

    def _created(self, batch: Batch, rows: Sequence[int], values: dict[str, list[Any]]) -> States:
        """Return the states that the `__init__` of the class gives to new entities."""
        executor = self._executor()
        texts: list[str] = []
        states: list[bytes] = []
        with Guard(executor, self._limits, may_end_process=False) as guard:
            for place, named in guard.each(_given(rows, values)):
                try:
                    text, state = self._new(executor, batch.first + place, named)
                except UserError as error:
                    self.note(Misfit(batch.first + place, "", "", reason_of_misfit(error)))
                    continue
                texts.append(text)
                states.append(state)
        return States(texts, states)

    def _updates(self, batch: Batch, rows: Sequence[int], values: dict[str, list[Any]]) -> States:
        """Return the attributes of rows, each with the state of a new entity."""
        entity_type, key_name = self._type, self._type.key_name
        executor = self._executor()
        texts: list[str] = []
        states: list[bytes] = []
        with Guard(executor, self._limits, may_end_process=False) as guard:
            for place, given in guard.each(_given(rows, values)):
                number = batch.first + place
                state, why = None, ""
                if lacking := lacking_of(entity_type, given):
                    why = f"a new one needs {', '.join(lacking)}"
                try:
                    text = entity_type.key_text(given[key_name])
                    own = {name: value for name, value in given.items() if name != key_name}
                    changes = entity_type.encode_some(own)
                    if not why and entity_type.initializer is None:
                        state, why = self._first_state(given)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # noqa: BLE001 -- comparing values runs code of a user
                    self.note(Misfit(number, "", shown(given[key_name]), reason_of_misfit(error)))
                    continue
                if not why and entity_type.initializer is not None:
                    state, why = self._initialised_state(executor, number, given)
                raws = {index: msgspec.Raw(value) for index, value in changes.items()}
                texts.append(text)
                states.append(encode_update(RowUpdate(number, raws, state, why)))
        return States(texts, states)

    def _first_state(self, given: dict[str, Any]) -> tuple[bytes | None, str]:
        """Return the state of a new entity with some attributes; None, and why, if there is none."""
        entity_type, state_bytes = self._type, self._limits.state_bytes
        left = {
            name: new_value(each)
            for name, each in entity_type.defaults.items()
            if name not in given
        }
        state = entity_type.encode_change(left | given, None)
        assert state is not None, "there was no state before"
        if len(state) > state_bytes:
            size = f"{len(state)} bytes, more than limits.state_bytes = {state_bytes}"
            return None, f"a new one would take {size}"
        return state, ""

    def _initialised_state(
        self, executor: Executor, row: int, given: dict[str, Any]
    ) -> tuple[bytes | None, str]:
        """Return the state of the new entity of a class with an `__init__`; as `_first_state`."""
        try:
            _, state = self._new(executor, row, given, "update_or_create")
        except UserError as error:
            return None, f"a new one is refused: {reason_of_misfit(error)}"
        return state, ""

    def _new(
        self, executor: Executor, row: int, named: dict[str, Any], method: str = "create"
    ) -> tuple[str, bytes]:
        entity_type = self._type
        body, _ = encoded(self._app, Call(entity_type.name, None, method, (), named))
        try:
            outcome = executor.run(RequestId(f"{self._name}~{row}"), body, 0)
        except Escape as escape:
            name, rest = split_entity_key(escape.key)
            used = name_in(rest.partition("/")[0]) if name == INDEX else escape.key
            raise RequestError(
                f"its __init__ uses {used}, and no other entity is there in an import"
            ) from escape
        if outcome.error is not None:
            failure = decode_failure(outcome.reply)
            raise RequestError(f"{failure.kind}: {failure.message}")
        made = [(key, state) for key, state in outcome.writes.items() if state is not None]
        if len(made) != 1 or outcome.outbox or not made[0][0].startswith(entity_type.prefix):
            raise RequestError(
                "its __init__ changes other entities, or sends or publishes something: use requests"
            )
        key, state = made[0]
        if set(outcome.reads) - {key}:
            raise RequestError(
                "its __init__ uses other entities, and no other entity is there in an import"
            )
        return key.removeprefix(entity_type.prefix), state

    def _executor(self) -> Executor:
        """Return an executor over a state that has no entity of the class, and nothing else to read."""

        def read(key: EntityKey) -> bytes | None:
            if not key.startswith(self._type.prefix):
                executor.escaped = key
                raise Escape(key)
            return None

        # The driver knows the entities that are there, and makes the rows of indexes (`ImportedIndexes`).
        executor = Executor(self._app, read, self._limits, changes_indexes=False)
        return executor


def _read_all(cells: Cells, column: Column, *, has_json: bool) -> list[Any]:
    if not has_json:
        return cells.read(column.cells, is_text=column.is_text)
    # One text of JSON with all cells: the decoder is called once.
    if msgspec.UNSET in column.cells:
        raise Misread("a cell is missing")
    return cells.read_json(column.cells)


Told = Callable[[int, int], None]
"""Takes how much is done, and how much there is; 0 and 0 if that is not known."""


def _given(
    rows: Sequence[int], values: Mapping[str, Sequence[Any]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the place of each row in its batch, and the values that it gives."""
    for place, *row in zip(rows, *values.values(), strict=True):
        pairs = zip(values, row, strict=True)
        yield place, {name: value for name, value in pairs if value is not msgspec.UNSET}
