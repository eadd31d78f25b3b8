"""A glance at stored keys: the first keys of a class that begin with a text, for the completion of words.

It reads the stores of a data directory as they are, and takes no lock of LMDB, so it disturbs no process, and no
process waits for it. In return it promises nothing: a writer may reuse the pages that it reads. A record that does not fit
its checksum is left out. Damage may end the process, so call it in a child process with a deadline.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import lmdb

from penstock.base.ids import EntityKey, entity_key, split_entity_key
from penstock.errors import Corrupt
from penstock.state import record
from penstock.state.environment import DATA_FILE

_STORES: Final = "partition-*-of-*"


def glance_at_keys(directory: Path, class_name: str, beginning: str, most: int) -> list[str]:
    """Return the texts of some keys of a class, sorted.

    Args:
        beginning: The text with which the keys begin.
        most: The most keys to return.

    Raises:
        lmdb.Error: A store cannot be read.
        Corrupt: The metadata of a store are damaged.
    """
    prefix = entity_key(class_name, beginning).encode()
    newest: dict[int, tuple[int, list[str]]] = {}
    for path in directory.glob(_STORES):
        if (path / DATA_FILE).exists():
            metadata, keys = _read(path, prefix, most)
            epoch, others = newest.get(metadata.partitions, (metadata.epoch, []))
            newest[metadata.partitions] = (max(epoch, metadata.epoch), others + keys)
    if not newest:
        return []
    _, keys = max(
        newest.values(), key=lambda each: each[0]
    )  # former numbers of partitions are older
    return sorted(keys)[:most]


def _read(path: Path, prefix: bytes, most: int) -> tuple[record.Metadata, list[str]]:
    with (
        closing(lmdb.open(str(path), readonly=True, lock=False, create=False)) as opened,
        opened.begin() as txn,
    ):
        metadata = record.unseal_metadata(txn.get(record.METADATA_KEY) or b"")
        return metadata, [key for _, key in zip(range(most), _keys(txn, prefix), strict=False)]


def _keys(txn: "lmdb.Transaction[bytes]", prefix: bytes) -> Iterator[str]:
    with txn.cursor() as cursor:
        more = cursor.set_range(prefix)
        while more and cursor.key().startswith(prefix):
            raw, state = cursor.item()
            try:
                record.unseal(raw, state)
                yield split_entity_key(EntityKey(raw.decode()))[1]
            except (Corrupt, UnicodeDecodeError):
                pass
            more = cursor.next()
