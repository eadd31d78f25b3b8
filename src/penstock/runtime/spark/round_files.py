"""The files that the tasks of an epoch hand on to its later tasks: round outputs, and the shares of large atoms.

Where all tasks see the scratch of the driver, they are files there, cheap to write and never synced. Where each host has a disk
of its own and the data are in an object store, they are objects of it. Their names begin with the run of the driver. They are
useless after their epoch; those of a run that was killed stay for a day.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.engine.access import Positions
from penstock.engine.streams.key_shares import KeyShare, SharedTurns, decode_shares
from penstock.files.durable import storage
from penstock.files.layout import SCRATCH
from penstock.files.shared_root import SharedRoot
from penstock.journal.api import PartKind
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.large_atoms import share_of, write_share
from penstock.runtime.spark.messages import RoundOutput
from penstock.runtime.spark.rows import Tables, read_output, valid_rows, write_output

_log = logging.getLogger(__name__)


def far_files(data: Path) -> SharedRoot | None:
    """Return the root of such files in the object store of a data directory; None if its data are a directory."""
    shared = DataDirectory(data).shared
    return shared.folder(SCRATCH) if shared.is_far else None


class RoundFiles:
    """The files, for one task.

    Args:
        scratch: That of the driver.
        far: The root of objects; None where this task sees the scratch.
    """

    def __init__(self, scratch: Path, far: SharedRoot | None = None) -> None:
        self._scratch = scratch
        self._far = far
        self._own: tuple[Epoch, dict[str, Tables]] = Epoch(-1), {}

    def write(self, epoch: Epoch, name: str, tables: Tables) -> str:
        """Write a round output, and return its path for later tasks."""
        path = self._scratch / name
        if self._far is None:
            write_output(tables, path)
            return str(path)
        with storage(f"write the output {name}"):
            self._far.add(self._name_of(path), _encoded(tables))
        if self._own[0] != epoch:
            self._own = epoch, {}
        self._own[1][str(path)] = tables  # often the same task publishes them
        return str(path)

    def read(self, outputs: Sequence[RoundOutput]) -> list[Tables]:
        """Return the valid rows of round outputs."""
        return [
            self._read(Path(output.path), np.frombuffer(output.superseded, np.uint32))
            for output in outputs
        ]

    def _read(self, path: Path, superseded: Positions) -> Tables:
        if self._far is None:
            return read_output(path, superseded)
        if (tables := self._own[1].get(str(path))) is None:
            with storage(f"read the output {path.name}"):
                tables = _decoded(self._far.get(self._name_of(path)))
        return valid_rows(tables, superseded)

    def write_share(self, name: str, share: KeyShare) -> str:
        """Write the results of a share, and return its path for the task that does the rest."""
        path = self._scratch / name
        if self._far is None:
            write_share(share, path)
        else:
            with storage(f"write the share {name}"):
                self._far.add(self._name_of(path), share_of(share))
        return str(path)

    def turns(self, paths: Sequence[str]) -> SharedTurns:
        """Return the turns of all shares."""
        return SharedTurns([decode_shares(self._bytes(Path(path))) for path in paths])

    def _bytes(self, path: Path) -> bytes:
        if self._far is None:
            return path.read_bytes()
        with storage(f"read the share {path.name}"):
            return self._far.get(self._name_of(path))

    def _name_of(self, path: Path) -> str:
        return f"{path.parent.name}-{path.name}"


class UsedFiles:
    """Removes the files of epochs that are committed, for the driver."""

    def __init__(self, config: Config, scratch: Path) -> None:
        self._scratch = scratch
        self._far = far_files(config.data) if config.is_cluster else None

    def remove(self, epoch: Epoch, *, by_several: bool) -> None:
        """Remove those of an epoch.

        Args:
            by_several: Whether several tasks have run it; the store is not asked otherwise.
        """
        begin = f"e{epoch}-"
        with suppress(FileNotFoundError):  # all files of the epoch may be in the store
            for path in self._scratch.iterdir():  # `glob` would compile a pattern for each epoch
                if path.name.startswith(begin):
                    path.unlink(missing_ok=True)
        if by_several:
            self._remove_far(lambda _, name: name.startswith(f"{self._scratch.name}-e{epoch}-"))

    def remove_old(self) -> None:
        """Remove those that killed runs have left."""
        self._remove_far(lambda far, name: far.age_s(name) > far.keeps_s)

    def _remove_far(self, is_useless: Callable[[SharedRoot, str], bool]) -> None:
        if (far := self._far) is None:
            return
        try:
            for name in far.names():
                if is_useless(far, name):
                    far.remove(name)
        except OSError as error:  # they are old some day
            _log.info("files of an epoch stay in the object store", extra={"cause": str(error)})


def _encoded(tables: Tables) -> bytes:
    files = {}
    for part_kind, table in tables.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        files[part_kind.value] = memoryview(sink.getvalue())
    return msgspec.msgpack.encode(files)


def _decoded(data: bytes) -> Tables:
    files = msgspec.msgpack.decode(data, type=dict[str, memoryview])
    return {PartKind(name): pa.ipc.open_file(file).read_all() for name, file in files.items()}
