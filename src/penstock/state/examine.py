"""Examination of a store in a child process, so that damage cannot kill the caller.

LMDB follows page numbers in its file without checking them, so a damaged file can kill the process
that reads it by a signal. `python -m penstock.state.examine PATH BOOT_ID` reads every record once, and
exits with 0 if all are sound. Any other exit code except 4 means damage. The module imports little: there is a child for
each store.
"""

import subprocess
import sys
from pathlib import Path

from penstock.base.ids import BEFORE_FIRST
from penstock.errors import Corrupt, OperationalError
from penstock.state import environment as environments
from penstock.state import record
from penstock.state.lmdb_reader import LmdbReader, corrupt, damage_reported

SOUND = 0
DAMAGED = 3
UNKNOWN = 4


def is_sound(path: Path, boot_id: str) -> bool:
    """Return whether every record of a store can be read; a missing store is sound.

    Takes about a microsecond for each record and the start of a Python process.

    Raises:
        OperationalError: The disk or a permission failed, so the result is not known.
    """
    if environments.file_identity(path) is None:
        return True
    child = subprocess.run(  # noqa: S603 - our own module, our own interpreter
        [sys.executable, "-P", "-m", "penstock.state.examine", str(path), boot_id],
        check=False,
        capture_output=True,
        text=True,
    )
    if child.returncode == UNKNOWN:
        raise OperationalError(child.stderr.strip())
    return child.returncode == SOUND


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


def main(path: Path, boot_id: str) -> int:
    """Read the store and return the exit status."""
    try:
        verify_file(path, boot_id)
    except Corrupt as error:
        sys.stderr.write(f"{error}\n")
        return DAMAGED
    except OperationalError as error:
        sys.stderr.write(f"{error}\n")
        return UNKNOWN
    return SOUND


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
