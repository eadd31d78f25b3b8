"""The part of a task in an import, and in a build of indexes: it writes staged rows as changes of the epoch.

The commit puts them in force. If one of the rows of an import is refused, none counts: no commit lists the parts.
"""

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import EntityKey, Epoch, split_entity_key
from penstock.engine.built_indexes import BUILD, RowsOf, begun_build, next_build
from penstock.engine.imported import NAMED_MAX, ImportedIndexes, imported
from penstock.engine.streams.published_rows import first_pieces
from penstock.errors import Corrupt, RequestError
from penstock.journal.api import CHANGES, Journal, Part, PartKind
from penstock.journal.staged import StagedRows
from penstock.model.application import App
from penstock.runtime.spark import messages
from penstock.runtime.spark.messages import ImportedPieces, ImportRows, PrepareRows, TaskResult
from penstock.state.stores import PartitionedReader


def import_rows(  # noqa: PLR0913 -- its place in the order, and what it reads
    command: ImportRows,
    app: App,
    journal: Journal,
    stores: PartitionedReader,
    data: Path,
    state_bytes: int,
    reached: Callable[[str], None],
) -> TaskResult:
    """Write the changes that staged rows make, a part for each of their files.

    Args:
        app: The code in force.
        stores: The state before the epoch.
        state_bytes: The most bytes of a state.
        reached: Called after each part.
    """
    entity_type = app.readable.get(command.entity)
    if entity_type is None or entity_type.shape.tag != command.tag:
        return _refused(
            f"a deployment has changed the class {command.entity} since the rows were read; give the order again"
        )
    staged = StagedRows(data)
    parts: list[Part] = []
    every = []
    indexes = ImportedIndexes(entity_type, stores.get)
    for number, piece in enumerate(command.pieces):
        try:
            rows = staged.rows(piece)
        except (
            Corrupt
        ) as error:  # the journal does not need it: without it, the order has no effect
            return _refused(str(error))
        columns = rows["key"].to_pylist(), rows["state"].to_pylist()
        made = imported(entity_type, columns, stores.get, command.existing, state_bytes)
        every.append(made._replace(texts=[], states=[]))
        if made.texts and not any(each.refused for each in every):
            try:
                indexes.note(made)
            except RequestError as error:
                return _refused(str(error))
            keys = [EntityKey(entity_type.prefix + text) for text in made.texts]
            changes = dict(zip(keys, made.states, strict=True))
            parts += changes_part(journal, command.epoch, changes, f"import{number}")
            reached("between-parts")
    try:
        parts += changes_part(journal, command.epoch, indexes.rows(), "import-indexes")
    except RequestError as error:
        return _refused(str(error))
    first = first_pieces(app.topology, command.epoch + 1)
    summary = ImportedPieces(
        sum(each.created for each in every),
        sum(each.replaced for each in every),
        sum(each.unchanged for each in every),
        sum(each.refused for each in every),
        tuple(name for each in every for name in each.named)[:NAMED_MAX],
        scans=[piece for piece in first if piece.entity == command.entity],
    )
    return TaskResult(parts=parts, loaded=messages.encode(summary))


def changes_part(
    journal: Journal, epoch: Epoch, changes: Mapping[EntityKey, bytes | None], what: str
) -> list[Part]:
    """Write changes of an epoch that no transaction makes, and return the part; nothing without changes."""
    if not changes:
        return []
    # As `split_entity_key`, for all keys at once: a deployment may write a million rows of an index, and epochs wait.
    both = pc.split_pattern(pa.array(list(changes), pa.string()), "/", max_splits=1)
    names, texts = pc.list_element(both, 0), pc.list_element(both, 1)
    return columns_part(
        journal, epoch, (names, texts, pa.array(list(changes.values()), pa.binary())), what
    )


def columns_part(
    journal: Journal, epoch: Epoch, columns: tuple[Any, Any, Any], what: str
) -> list[Part]:
    """Write changes likewise.

    Args:
        columns: The names of the classes, the texts of the keys, and the states, as columns of Arrow.
    """
    epochs = pa.repeat(pa.scalar(int(epoch), pa.int64()), len(columns[0]))
    table = pa.table([epochs, *columns], schema=CHANGES)
    return [journal.write(PartKind.CHANGES, table, f"e{epoch}-{what}-{secrets.token_hex(4)}")]


def prepare_rows(command: PrepareRows, journal: Journal, rows_of: RowsOf, data: Path) -> TaskResult:
    """Write the rows of a step of a build; no index that is in force has them.

    Args:
        rows_of: Returns rows of the state before the epoch.

    Raises:
        RequestError: The state has another build.
        Corrupt: The file of the step is missing or damaged.
    """
    step, is_more = command.step, False
    if step.step == 0:
        updates, is_more = begun_build(step, rows_of)
        parts = changes_part(journal, command.epoch, updates, "prepared")
        return TaskResult(parts=parts, loaded=messages.encode((is_more, len(updates))))
    build = next_build(step, rows_of)
    rows = StagedRows(data).rows(step.piece)
    name, text = split_entity_key(BUILD)
    last = pa.table([[text], [msgspec.msgpack.encode(build)]], schema=rows.schema)
    rows = pa.concat_tables([rows, last]).combine_chunks()
    columns = pa.repeat(pa.scalar(name, pa.string()), len(rows)), rows["key"], rows["state"]
    parts = columns_part(journal, command.epoch, columns, "prepared")
    return TaskResult(parts=parts, loaded=messages.encode((is_more, len(rows))))


def _refused(why: str) -> TaskResult:
    return TaskResult(loaded=messages.encode(ImportedPieces(refusal=why)))
