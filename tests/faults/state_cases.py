"""Shared by the fault tests of state: a journal, its fold, and reading in a child."""

import faulthandler
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from penstock.base.ids import EntityKey, Epoch, entity_key, split_entity_key
from penstock.journal.api import CHANGES, Commit, PartKind
from penstock.state.digest import digest_of_items
from penstock.state.stores import Stores
from tests.memory_journal import MemoryJournal

BOOT = "boot-1"
ENTITIES = 2000
LAST = Epoch(4)
DEADLINE_S = 60
PAGE = 4096
RIGHT, NOTICED, VANISHED, WRONG = 0, 10, 20, 30


def states_at(epoch: int) -> dict[EntityKey, bytes]:
    """Return the state after an epoch; each changes all entities that it does not leave alone."""
    return {
        entity_key("Item", f"item-{n}"): b"%d:%d" % (min(epoch, n % 5), n * n)
        for n in range(ENTITIES)
    }


def journal_of(epochs: int) -> MemoryJournal:
    journal = MemoryJournal()
    for epoch in range(epochs):
        states = states_at(epoch)
        before = states_at(epoch - 1) if epoch else {}
        changed = {one: state for one, state in states.items() if before.get(one) != state}
        names = [split_entity_key(one) for one in changed]
        rows = pa.table(
            {
                "epoch": [epoch] * len(changed),
                "entity": [name for name, _ in names],
                "key": [text for _, text in names],
                "state": list(changed.values()),
            },
            schema=CHANGES,
        )
        part = journal.write(PartKind.CHANGES, rows, f"{epoch}")
        journal.commit(Commit(Epoch(epoch), {}, (part,), 0))
    return journal


def started(work: Callable[[], int]) -> int:
    """Run in a forked child, which ends with the result of `work`; return its process id."""
    child = os.fork()
    if child == 0:
        status = NOTICED
        try:
            faulthandler.disable()  # some of them are meant to die
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # LMDB writes its last words there
            signal.alarm(DEADLINE_S)
            status = work()
        finally:
            os._exit(status)
    return child


def ended(child: int) -> int:
    """Wait for a child; return its exit status, negative when a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_child(work: Callable[[], int]) -> int:
    """Run in a forked child; return its exit status, negative when a signal ended it."""
    return ended(started(work))


def content(directory: Path, journal: MemoryJournal) -> str:
    """Do the same as the runtime after a worker died: examine, then use the stores."""
    stores = Stores(directory, journal, 1, boot_id=BOOT)
    stores.examine()
    with stores.at(LAST) as reader:
        digest = digest_of_items(reader.items())
    stores.close()
    return digest
