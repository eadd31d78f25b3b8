"""Examination of stores in a child process, so that damage cannot kill the caller.

LMDB follows page numbers in its file without checking them, so a damaged file can kill the process
that reads it by a signal. `python -m penstock.state.examine BOOT_ID PATH …` reads every record of each store once, writes
a line for each that is sound, and ends at the first that is not: the next one is read by a process that has met no damage. It
exits with 0 if all are sound; any other exit code except 4 means damage. The module imports little, because a driver waits for
it at its start.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.base.ids import BEFORE_FIRST
from penstock.errors import Corrupt, OperationalError
from penstock.state import environment as environments
from penstock.state import record
from penstock.state.lmdb_reader import LmdbReader, corrupt, damage_reported

SOUND: Final = 0
DAMAGED: Final = 3
UNKNOWN: Final = 4
_SOUND_LINE: Final = "sound"


def is_sound(path: Path, boot_id: str) -> bool:
    """Return whether every record of a store can be read; see `damaged_of`."""
    return not damaged_of([path], boot_id)


def damaged_of(paths: Sequence[Path], boot_id: str) -> set[Path]:
    """Return the stores of which not every record can be read; a missing store is sound.

    Takes about a microsecond for each record, and the start of a Python process, and of another one after each damaged
    store.

    Raises:
        OperationalError: The disk or a permission failed, so the result is not known.
    """
    left = [path for path in paths if environments.file_identity(path) is not None]
    damaged: set[Path] = set()
    while left:
        child = subprocess.run(  # noqa: S603 - our own module, our own interpreter
            [sys.executable, "-P", "-m", "penstock.state.examine", boot_id, *map(str, left)],
            check=False,
            capture_output=True,
            text=True,
        )
        sound = child.stdout.splitlines().count(_SOUND_LINE)
        if sound == len(left):
            break
        if child.returncode == UNKNOWN:
            raise OperationalError(child.stderr.strip())
        # The first store without a line has ended the child.
        damaged.add(left[sound])
        left = left[sound + 1 :]
    return damaged


def verify_file(path: Path, boot_id: str) -> None:
    """Read every record of a store of any journal and partition; see `examine`.

    Raises:
        Corrupt: The store is damaged.
        StateUnavailable: The disk fails.
    """
    environment = environments.attach(path, boot_id)
    try:
        with damage_reported(path):
            txn = environment.begin_read()
        try:
            stored = txn.get(record.METADATA_KEY)
            if stored is None and txn.stat()["entries"]:
                raise corrupt(path, "its metadata is missing")
            if stored is not None:
                record.unseal_metadata(stored)
                for _ in LmdbReader(txn, BEFORE_FIRST, path).items():
                    pass
        finally:
            environment.end_read(txn)
    finally:
        environments.detach(environment)


def main(boot_id: str, paths: Sequence[str]) -> int:
    """Read the stores up to a damaged one, and return the exit status."""
    for path in paths:
        try:
            verify_file(Path(path), boot_id)
        except Corrupt as error:
            sys.stderr.write(f"{error}\n")
            return DAMAGED
        except OperationalError as error:
            sys.stderr.write(f"{error}\n")
            return UNKNOWN
        sys.stdout.write(f"{_SOUND_LINE}\n")
        sys.stdout.flush()  # the next store may kill this process
    return SOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
