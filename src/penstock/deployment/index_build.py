"""The build of large new indexes while epochs go on, before the record of their deployment.

`prepare_indexes` is the caller's side. The child reads the entities of the newest epoch, makes the rows of the indexes, and puts
them into the state by control records (`control.Prepare`), one after the other, so that requests go on between them. Then it
corrects the rows of the entities that have changed meanwhile. The deployment names the build, and corrects the last few.

The build is a help only. If it cannot go on, the order goes on without it, and the epoch of the deployment builds all rows.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import count, groupby, islice
from operator import itemgetter
from typing import BinaryIO, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import EntityKey, Epoch, split_entity_key
from penstock.deployment.archives import own_paths
from penstock.deployment.code_in_force import folder_of, unpacked
from penstock.deployment.guarded_import import IMPORT_S, ask_importing, import_guarded
from penstock.deployment.prepared_indexes import (
    PREPARE,
    STANDINGS,
    ChangedEntities,
    ClassIndexes,
    staged_standings,
    standing_table,
)
from penstock.engine.built_indexes import (
    indexed_values,
    indexes_to_build,
    standings,
)
from penstock.errors import Erased, PenstockError
from penstock.journal.api import Journal
from penstock.journal.deployments import Deployments, deployment_at
from penstock.journal.staged import StagedRows
from penstock.log.api import Log
from penstock.model.application import App
from penstock.model.control import DeployedCode, Prepare, Prepared
from penstock.model.entity_type import EntityType
from penstock.model.index import Index, encode_holder, name_in
from penstock.model.index_rows import built
from penstock.orders.order import Place, append_control, settled
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.question import ChildEnded, answer_question
from penstock.state.newest import at_newest
from penstock.state.stores import PartitionedReader, Stores

_log = logging.getLogger(__name__)

ROLE: Final = "builder"
"""The role of the child among the processes of an application."""

PREPARED_MIN: Final = 20_000
"""An index over fewer entities is built by the epoch of the deployment, in less than 0.2 s."""

BUILD_S: Final = 1_800.0
"""The time that a build may take; then the deployment goes on without it."""

_PIECE_ROWS: Final = 10_000
_PIECE_BYTES: Final = 4 << 20
"""One step has at most so many rows, and so many bytes of them: epochs wait for it."""

_LOOK_S: Final = 0.1

_BATCH: Final = 50_000
_ATTEMPTS: Final = 3
"""A build begins again if a person of a class is erased meanwhile."""

_ROUNDS: Final = 4
_FEW: Final = 500
"""The rows are corrected up to four times, until so few entities have changed meanwhile."""


class BuildQuestion(msgspec.Struct, frozen=True):
    """The code whose indexes are built, the settings, which name the data directory, and the time of the import."""

    settings: Config
    code: DeployedCode
    dropped: tuple[str, ...]
    timeout_s: float
    import_s: float = IMPORT_S


class BuildAnswer(msgspec.Struct, frozen=True):
    """The build; None if there is nothing to prepare."""

    prepared: Prepared | None = None


def prepare_indexes(
    place: Place, timeout_s: float, code: DeployedCode, dropped: tuple[str, ...]
) -> Prepared | None:
    """Put the rows of the large indexes that code adds into the state; return the build for the record of its deployment.

    Args:
        place: The application; `told` takes the parts that are done, and all parts.
        timeout_s: How long to wait for the driver, for each part.
        dropped: The stored classes that the code may lack.

    Returns:
        None without such an index, and if the build could not go on; the deployment then builds all rows.
    """
    settings = replace(place.settings, data=place.settings.data.absolute())
    question = BuildQuestion(settings, code, dropped, timeout_s)
    module, longest_s = "penstock.deployment.index_build", IMPORT_S + BUILD_S
    try:
        with _told(place):
            answer = ask_importing(module, question, BuildAnswer, code.module, IMPORT_S, longest_s)
    except (PenstockError, ChildEnded, TimeoutError) as error:
        extra = {"code": code.module, "cause": str(error) or f"it took more than {longest_s:g} s"}
        _log.warning(
            "indexes are not prepared, so the epoch of the deployment builds them", extra=extra
        )
        return None
    return answer.prepared


@contextmanager
def _told(place: Place) -> Iterator[None]:
    """Tell the progress of a build, which its process announces, until the block ends."""
    if place.told is None:
        yield
        return
    ended = threading.Event()

    def tell(told: Callable[[int, int], None]) -> None:
        while not ended.wait(_LOOK_S):
            for builder in presence.find(place.settings.data, ROLE):
                told(int(builder.details.get("done", 0)), int(builder.details.get("parts", 1)))

    thread = threading.Thread(target=tell, args=(place.told,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def build_beside(question: BuildQuestion, app: App) -> Prepared | None:
    """Build the large indexes that an application adds; this is the work of the child.

    Raises:
        PenstockError: It cannot go on; another build has begun, or the driver is late.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(Erased):  # an erasure has ended the build, also while it read the person
            return _attempt(question, app)
    return _attempt(question, app)


def _attempt(question: BuildQuestion, app: App) -> Prepared | None:
    directory = DataDirectory(question.settings.data)
    # Read before the classes: a deployment that comes meanwhile may change how stored classes are read.
    every = Deployments(directory.journal_root).every()
    with closing(directory.open_journal(app, dropped=question.dropped)) as journal:
        last = journal.last()
        deployment = None if last is None else deployment_at(every, Epoch(last.epoch + 1))
        classes = [] if deployment is None else list(_preparable(app, deployment.indexes))
        if deployment is None or not classes:
            return None
        with closing(directory.open_stores(journal)) as stores:
            build = _Build(question, journal, stores)
            try:
                return build.run(classes, deployment.number)
            except PenstockError:
                build.forget()
                raise


def _preparable(
    app: App, former: Mapping[str, str]
) -> Iterator[tuple[EntityType, Sequence[Index]]]:
    for entity_type, indexes in indexes_to_build(app, former):
        # Another deployment may have come since `former` was read; then an index may have the place of one in force.
        new = [each for each in indexes if each.place not in former]
        if new:
            yield entity_type, new


class _Build:
    """A build."""

    def __init__(self, question: BuildQuestion, journal: Journal, stores: Stores) -> None:
        self._question = question
        self._data = question.settings.data
        self._journal = journal
        self._stores = stores
        self._staged = StagedRows(self._data)
        self._id = uuid.uuid4().hex
        self._steps = 0
        self._files: list[str] = []

    def forget(self) -> None:
        """Remove the files; those of a process that is killed are removed by maintenance."""
        with suppress(OSError):
            self._staged.remove(self._files)

    def run(self, classes: ClassIndexes, deployment: int) -> Prepared | None:
        """Do the work; raises as `build_beside`.

        Args:
            deployment: The number of the deployment in force.
        """
        made = at_newest(self._journal, self._stores, lambda reader: self._made(classes, reader))
        if made is None:
            return None
        order, pieces = made
        order = msgspec.structs.replace(order, deployment=deployment)
        own = [
            (entity_type, [each for each in indexes if each.place in order.places])
            for entity_type, indexes in classes
        ]
        about = presence.present(
            self._data,
            ROLE,
            self._question.code.module,
            indexes=", ".join(map(name_in, order.places)),
        )
        directory = DataDirectory(self._data)
        with about as announced, closing(directory.open_log(self._question.settings)) as log:
            self._begin(log, order)
            for number, piece in enumerate(pieces):
                announced.tell(done=number, parts=len(pieces))
                self._put(log, order, piece)
            for _ in range(_ROUNDS):
                changed = ChangedEntities(order, self._staged, own)
                order = self._caught_up(log, order, changed)
                if len(changed.keys) <= _FEW:
                    break
        return msgspec.structs.replace(order, steps=self._steps)

    def _made(
        self, classes: ClassIndexes, reader: PartitionedReader
    ) -> tuple[Prepared, list[str]] | None:
        """Return the build without its steps, and the names of the files with its rows; None without a large class."""
        places: list[str] = []
        pieces: list[str] = []
        tables = []
        entities = 0
        for entity_type, indexes in classes:
            first = len(places)
            table, count = _standings_of(entity_type, indexes, reader, first)
            if count < PREPARED_MIN:
                continue
            places += [each.place for each in indexes]
            entities += count
            tables.append(table)
            for number, index in enumerate(indexes, first):
                mine = table.filter(pc.equal(table["place"], number))
                pieces += self._pieces(_rows_of(index, len(entity_type.prefix), mine))
        if not places:
            return None
        files = staged_standings(pa.concat_tables(tables), self._staged, self._id, entities)
        self._files += files
        order = Prepared(self._id, 0, 0, reader.epoch, tuple(places), tuple(files))
        return order, pieces

    def _caught_up(self, log: Log, order: Prepared, changed: ChangedEntities) -> Prepared:
        """Correct the rows of the entities that have changed since they were made."""

        def correct(reader: PartitionedReader) -> tuple[Epoch, list[str]]:
            changed.find(self._journal, reader.epoch)
            updates = changed.corrections(reader.get)
            return reader.epoch, list(self._pieces(sorted(updates.items())))

        done = at_newest(self._journal, self._stores, correct)
        assert done is not None, "an epoch has the rows"
        epoch, pieces = done
        for piece in pieces:
            self._put(log, order, piece)
        file = self._staged.stage_table(changed.table(), self._id, "an index")
        self._files.append(file)
        return msgspec.structs.replace(order, epoch=epoch, later=(*order.later, file))

    def _pieces(self, rows: Iterable[tuple[EntityKey, bytes | None]]) -> Iterator[str]:
        """Store rows, and yield the names of their files."""
        keys: list[str] = []
        states: list[bytes | None] = []
        size = 0
        for key, state in rows:
            keys.append(split_entity_key(key)[1])
            states.append(state)
            size += len(state or b"")
            if len(keys) == _PIECE_ROWS or size >= _PIECE_BYTES:
                yield self._piece(keys, states)
                keys, states, size = [], [], 0
        if keys:
            yield self._piece(keys, states)

    def _piece(self, keys: list[str], states: list[bytes | None]) -> str:
        self._files.append(name := self._staged.stage(keys, states, self._id))
        return name

    def _begin(self, log: Log, order: Prepared) -> None:
        """Remove the rows of an earlier build, and begin."""
        for number in count():
            began = time.monotonic()
            if not self._execute(log, Prepare(self._id, order.places), f"0-{number}"):
                return
            time.sleep(time.monotonic() - began)

    def _put(self, log: Log, order: Prepared, piece: str) -> None:
        """Put the rows of a file into the state."""
        began = time.monotonic()
        self._steps += 1
        step = Prepare(self._id, order.places, self._steps, piece)
        self._execute(log, step, str(self._steps))
        self._staged.remove([piece])
        time.sleep(time.monotonic() - began)  # requests have at least half of the time

    def _execute(self, log: Log, step: Prepare, number: str) -> bool:
        """Append a step, and wait for it; return whether it must be repeated."""
        lsn = append_control(log, PREPARE, f"{self._id}-{number}", step)
        settings, timeout_s = self._question.settings, self._question.timeout_s
        is_more: bool = settled(settings, lsn, timeout_s, "a part of an index").value(bool)
        return is_more


def _standings_of(
    entity_type: EntityType, indexes: Sequence[Index], reader: PartitionedReader, first: int
) -> tuple[pa.Table, int]:
    """Return where the entities of a class stand, and how many they are.

    Args:
        first: The number of the first of the indexes in `Prepared.places`.
    """
    prefix, places = entity_type.prefix, range(first, first + len(indexes))
    values = indexed_values(entity_type, reader.items_of(prefix))
    every = ((EntityKey(prefix + text), each) for text, each in standings(indexes, values))
    tables, count = [STANDINGS.empty_table()], 0
    while batch := list(islice(every, _BATCH)):
        tables.append(standing_table(batch, places))
        count += len(batch)
    return pa.concat_tables(tables), count


def _rows_of(index: Index, begin: int, table: pa.Table) -> Iterator[tuple[EntityKey, bytes | None]]:
    """Yield the rows of an index, in the order of their keys.

    Args:
        begin: The length of the beginning that the keys of entities have in common.
        table: The standings of all entities.

    Raises:
        NotUnique: Two entities have the same value of a unique index.
    """
    table = table.sort_by([("row", "ascending"), ("entry", "ascending")])
    for row, group in groupby(_listed(table), itemgetter(1)):
        if index.is_unique:
            (text, *others) = (key[begin:] for key, _, _ in group)
            if others:
                raise index.shared(text, others[0])
            yield row, encode_holder(text)
        else:
            yield from built(row, (entry for _, _, entry in group)).items()


def _listed(table: pa.Table) -> Iterator[tuple[str, EntityKey, bytes]]:
    for batch in table.to_batches(max_chunksize=_BATCH):
        columns = (batch[name].to_pylist() for name in ("key", "row", "entry"))
        yield from zip(*columns, strict=True)


def _answer(question: BuildQuestion, answer_file: BinaryIO) -> BuildAnswer:
    data, code = question.settings.data, question.code
    with own_paths(folder_of(data, code)):
        app = import_guarded(unpacked(data, code), question.import_s, answer_file)
        return BuildAnswer(build_beside(question, app))


if __name__ == "__main__":
    answer_question(BuildQuestion, _answer)
