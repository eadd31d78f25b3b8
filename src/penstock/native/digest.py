"""The digest of the sources of the compiled implementation, by which a stale build is noticed.

The build reads this file by its path, without Penstock's packages, so it imports the standard library alone.
"""

import zlib
from pathlib import Path


def source_digest(folder: Path) -> str:
    """Return the digest of the sources in a directory; empty if a wheel has left them out."""
    digest, paths = 0, sorted([*folder.glob("*.pyx"), *folder.glob("*.pxi")])
    for path in paths:
        digest = zlib.crc32(path.name.encode() + b"\0" + path.read_bytes(), digest)
    return f"{digest:08x}" if paths else ""
