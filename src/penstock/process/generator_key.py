"""The key with which the generators of an application append on a gateway without keys.

The id of an append decides how far a generator has come. So a gateway without keys takes an id of a generator only
from a process that can read the data directory: it knows the secret of the journal, from which this key is computed.
"""

from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Final

from penstock.process.data_directory import DataDirectory

_PURPOSE: Final = b"penstock generators"
_BYTES: Final = 24


def generator_key(secret: bytes) -> str:
    """Return the key for a journal's secret."""
    return blake2b(_PURPOSE, key=secret, digest_size=_BYTES).hexdigest()


def key_in(data: Path) -> str | None:
    """Return the key of a data directory; None without a journal."""
    directory = DataDirectory(data)
    name = directory.app_name
    if name is None:
        return None
    with closing(directory.open_journal_of(name)) as journal:
        return generator_key(journal.secret)
