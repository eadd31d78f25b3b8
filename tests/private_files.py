"""Files below a directory that others than their owner may use."""

import os
import stat
from pathlib import Path


def open_to_others(directory: Path) -> list[str]:
    """Return the files below a directory, itself included, that others than their owner may use.

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
