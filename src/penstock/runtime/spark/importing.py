"""The part of a task in an import: it writes staged rows as changes of the epoch, whose commit puts them in force.

If one of the rows is refused, none counts: no commit lists the parts.
"""

import secrets
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from penstock.engine.imported import NAMED_MAX, imported
from penstock.engine.streams.published_rows import first_pieces
from penstock.errors import Corrupt
from penstock.journal.api import CHANGES, Journal, PartKind
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
    parts, every = [], []
    attempt = secrets.token_hex(4)
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
            changes = pa.table(
                [
                    pa.repeat(pa.scalar(int(command.epoch), pa.int64()), len(made.texts)),
                    pa.repeat(pa.scalar(command.entity), len(made.texts)),
                    pa.array(made.texts, pa.string()),
                    pa.array(made.states, pa.binary()),
                ],
                schema=CHANGES,
            )
            name = f"e{command.epoch}-import{number}-{attempt}"
            parts.append(journal.write(PartKind.CHANGES, changes, name))
            reached("between-parts")
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


def _refused(why: str) -> TaskResult:
    return TaskResult(loaded=messages.encode(ImportedPieces(refusal=why)))
