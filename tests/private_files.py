"""Which files below a directory others than their owner may touch."""

import os
import stat
from pathlib import Path


def open_to_others(directory: Path) -> list[str]:
    """Return what lies below a directory, itself included, whose rights are wider than its owner's.

    A directory has 0700 and all else 0600. A script that Spark starts may be executed.
    """
    found = []
    for folder, _, files in os.walk(directory):
        for path in (Path(folder), *(Path(folder) / name for name in files)):
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:  # of an epoch that runs
                continue
            rights = stat.S_IMODE(mode)
            expected = 0o700 if stat.S_ISDIR(mode) or is_script(path) else 0o600
            if rights != expected and not stat.S_ISLNK(mode):
                found.append(f"{path.relative_to(directory)} {rights:o}")
    return sorted(found)


def is_script(path: Path) -> bool:
    """Say whether a file is a launcher of Spark's."""
    return path.name in ("java", "python") and path.read_bytes()[:2] == b"#!"
