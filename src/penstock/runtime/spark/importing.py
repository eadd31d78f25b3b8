"""The part of a task in an import: it writes staged rows as changes of the epoch, whose commit puts them in force.

If one of the rows is refused, none counts: no commit lists the parts.
"""

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import EntityKey, Epoch
from penstock.engine.imported import NAMED_MAX, ImportedIndexes, imported
from penstock.engine.streams.published_rows import first_pieces
from penstock.errors import Corrupt, RequestError
from penstock.journal.api import CHANGES, Journal, Part, PartKind
from penstock.journal.staged import StagedRows
from penstock.model.application import App
from penstock.runtime.spark import messages
from penstock.runtime.spark.messages import ImportedPieces, ImportRows, TaskResult
from penstock.state.stores import PartitionedReader


def import_rows(
    command: ImportRows,
    app: App,
    journal: Journal,
    stores: PartitionedReader,
    data: Path,
    reached: Callable[[str], None],
) -> TaskResult:
    """Write the changes that staged rows make, a part for each of their files.

    Args:
        app: The code in force.
        stores: The state before the epoch.
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
        made = imported(entity_type.prefix, columns, stores.get, command.existing)
        every.append(made._replace(texts=[], states=[]))
        if made.texts and not any(each.taken for each in every):
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
        sum(each.taken for each in every),
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
    table = pa.table(
        [
            pa.repeat(pa.scalar(int(epoch), pa.int64()), len(changes)),
            pc.list_element(both, 0),
            pc.list_element(both, 1),
            pa.array(list(changes.values()), pa.binary()),
        ],
        schema=CHANGES,
    )
    return [journal.write(PartKind.CHANGES, table, f"e{epoch}-{what}-{secrets.token_hex(4)}")]


def _refused(why: str) -> TaskResult:
    return TaskResult(loaded=messages.encode(ImportedPieces(refusal=why)))
