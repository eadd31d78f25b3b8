"""The class archive: Spark's classes in the form in which Java has them in memory.

Java reads the archive instead of loading and checking thousands of classes, which takes most of the
time of a start (class-data sharing). The archive lies in the user's cache directory and serves all
applications. It is only a cache: Java ignores an archive of another Java or of other files, and without
an archive a start takes longer and is otherwise the same.
`class_recording` makes it.
"""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.runtime.spark.java import Java
from penstock.runtime.spark.java_classes import TEXT

RECORDING: Final = "penstock.runtime.spark.class_recording"
"""The module that makes an archive."""

RECORDED: Final = 2
"""Increased when a start loads other classes than before, so that each archive is made again."""

RETRY_S: Final = 86_400.0
"""The time after which an archive that could not be made is tried again."""

_OTHERS: Final = 0o022


def cache_directory() -> Path:
    """Return the directory for archives: `penstock` in the user's cache directory."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(chosen) if Path(chosen).is_absolute() else Path.home() / ".cache"
    return base / "penstock"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one Java and one Spark.

    Attributes:
        path: The file, which need not exist.
    """

    path: Path

    @classmethod
    def of(cls, java: Java, jars: Sequence[Path]) -> "ClassArchive":
        """Return the archive of a Java with a class path; its name changes when a file of them does."""
        digest = hashlib.sha256(f"{java.home}\n{RECORDED}\n{TEXT}".encode())
        for path in (java.home / "lib" / "modules", java.home / "lib" / "server", *jars):
            with suppress(OSError):
                facts = path.stat()
                digest.update(f"{path}\n{facts.st_size}\n{facts.st_mtime_ns}\n".encode())
        name = f"classes-java{java.version}-{digest.hexdigest()[:16]}.jsa"
        return cls(cache_directory() / name)

    @property
    def classes(self) -> Path:
        """The archive of Penstock's own classes, compiled."""
        return self.path.with_suffix(".jar")

    @property
    def exists(self) -> bool:
        """Whether the archive can be used: no other user can have written it."""
        try:
            facts = [path.stat() for path in (self.path, self.classes, self.path.parent)]
        except OSError:
            return False
        return all(file.st_uid == os.geteuid() and not file.st_mode & _OTHERS for file in facts)

    @property
    def failure(self) -> Path:
        """The file that exists while an attempt to make the archive runs, and after it failed."""
        return self.path.with_suffix(".failed")

    def is_wanted(self) -> bool:
        """Say whether a process should make the archive: it is missing, and no attempt failed recently."""
        try:
            failed_at = self.failure.stat().st_mtime
        except OSError:
            return not self.exists
        return not self.exists and time.time() - failed_at > RETRY_S

    def options(self) -> list[str]:
        """Return the options with which Java reads the archive; none without archive."""
        if not self.exists:
            return []
        # Java says nothing about an archive that it cannot use.
        return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto", "-Xlog:disable"]

    def make_in_background(self) -> None:
        """Start a process that makes the archive, if it is wanted; the process outlives this one."""
        if not self.is_wanted():
            return
        with suppress(OSError):  # the next start tries again
            subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-m", RECORDING],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
