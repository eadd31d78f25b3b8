"""The number of partitions, and how a running application gets another number.

The newest commit names the number in force; the setting `partitions` is the number of the first start. A control
record changes it, in these steps:

1. `copy_stores` builds the stores of the new number from the present ones, while epochs continue.
2. `append_move` appends the control record.
3. At its place, the driver brings the new stores to the epoch before the record, and commits the new number. All
   later epochs, and all readers of them, use the new stores.

Step 1 only saves time at step 3. The stores hold the same rows in both numbers, so no outcome changes.
"""

import uuid
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import TYPE_CHECKING, Final

from penstock.base.ids import Epoch, Lsn
from penstock.errors import StateUnavailable
from penstock.log.api import Log
from penstock.model.control import Move
from penstock.orders.control_append import append_control
from penstock.process.config import Config

if TYPE_CHECKING:
    from penstock.journal.api import Commit, Journal
    from penstock.state.stores import Stores

Told = Callable[[int, int], None]
"""Takes the number of stores that are built, and of all."""

_ATTEMPTS: Final = 20
"""The driver may apply the next epoch while a copy begins; then the copy begins again, at most this often."""

_PASSES: Final = 2
"""The last catch-up is short, because it takes only the epochs of the catch-up before."""


def partitions_in_force(last: "Commit | None", configured: int) -> int:
    """Return the number of partitions after the newest commit.

    Args:
        last: The newest commit; None before the first.
        configured: The setting, for a journal whose newest commit names no number.
    """
    return configured if last is None or not last.partitions else last.partitions


def append_move(log: Log, partitions: int) -> Lsn:
    """Append the control record that changes the number of partitions; return its position.

    Raises:
        LogUnavailable: The log cannot be written.
    """
    return append_control(log, "move", uuid.uuid4().hex, Move(partitions))


def ask_for_partitions(config: Config, assignments: Iterable[str]) -> int | None:
    """Append a move, if an option names a number of partitions and the journal another one.

    Call this before the driver starts: it makes the change at once.

    Args:
        config: The settings.
        assignments: `name=value` of each setting that an option gave.

    Returns:
        The present number, if a move was appended.

    Raises:
        OperationalError: Log or journal cannot be used.
        IntegrityError: They are damaged.
    """
    if not any(each.partition("=")[0].strip() == "partitions" for each in assignments):
        return None
    from penstock.process.data_directory import DataDirectory  # noqa: PLC0415 -- slows a start without the option

    directory, partitions = DataDirectory(config.data), config.partitions
    if (name := directory.app_name) is None:
        return None
    with closing(directory.open_journal_of(name)) as journal:
        present = partitions_in_force(journal.last(), partitions)
    if present == partitions:
        return None
    with closing(directory.open_log(config)) as log:
        append_move(log, partitions)
    return present


def copy_stores(journal: "Journal", former: int, target: "Stores", told: Told) -> None:
    """Build the stores of another number from the present ones, and bring them near the newest epoch.

    A process that is killed leaves whole stores, which the next copy continues with.

    Args:
        journal: The journal.
        former: The present number of stores.
        target: The stores of the other number. They stay open, so that maintenance does not delete them.
        told: Called after each store.

    Raises:
        OperationalError: The disk is full, or the journal cannot be read.
        Corrupt: The journal is damaged.
    """
    every = range(target.partitions)
    for partition in every:
        _at_newest(journal, lambda at: target.catch_up_one(partition, at, former))  # noqa: B023
        told(partition + 1, target.partitions)
    for _ in range(_PASSES):
        for partition in every:
            _at_newest(journal, lambda at: target.catch_up_one(partition, at))  # noqa: B023


def _at_newest(journal: "Journal", work: Callable[[Epoch], None]) -> None:
    """Do a part of the copy at the newest epoch, again if the stores are at a later epoch already."""
    failure: StateUnavailable | None = None
    for _ in range(_ATTEMPTS):
        last = journal.last()
        if last is None:
            return
        try:
            work(last.epoch)
        except StateUnavailable as error:  # usually the driver has applied the next epoch
            failure = error
        else:
            return
    assert failure is not None, "each attempt has failed"
    raise failure
