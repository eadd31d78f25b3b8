"""Makes the class archive: runs a few requests on Spark, and lets Java write the classes that it loaded.

    python -m penstock.runtime.spark.class_recording

A driver starts this command in the background when the archive is missing. The command has low
priority, uses about a minute of processor time, and does nothing if the archive exists.
"""

import os
from pathlib import Path
from typing import Final

from penstock.files.lock import Claimed, claim
from penstock.files.temporary_folder import temporary_folder
from penstock.process.config import Config
from penstock.runtime.spark import recorded_app
from penstock.runtime.spark.class_archive import ClassArchive
from penstock.runtime.spark.java import find_java
from penstock.runtime.spark.java_classes import write_classes
from penstock.runtime.spark.jvm import Jvm, jars, spark_home
from penstock.runtime.spark.runtime import SparkRuntime

NICE: Final = 19
KEPT: Final = 2
"""The number of archives that remain, the newest ones; each has about 160 MB."""


def main() -> None:
    """Make the archive of the Java and the Spark that a driver would use now."""
    os.nice(NICE)
    make(ClassArchive.of(find_java(), jars(spark_home())))


def make(archive: ClassArchive) -> None:
    """Make an archive, unless it exists or another process makes it now."""
    archive.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        lock = claim(archive.path.parent / "lock")
    except Claimed:
        return
    try:
        if not archive.exists:
            _make_alone(archive)
    finally:
        os.close(lock)


def _make_alone(archive: ClassArchive) -> None:
    archive.failure.touch()  # it remains if this process is killed
    archive.classes.unlink(missing_ok=True)
    _compile(archive.classes)
    for left in archive.path.parent.glob("*.draft"):  # of attempts that failed
        left.unlink()
    draft = archive.path.with_suffix(".draft")
    _record(draft)
    draft.chmod(0o600)
    draft.replace(archive.path)
    archive.failure.unlink()
    archives = sorted(archive.path.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime)
    for path in archives[:-KEPT]:
        path.unlink(missing_ok=True)  # a Java that reads it keeps its pages
        ClassArchive(path).classes.unlink(missing_ok=True)


def _compile(path: Path) -> None:
    """Write Penstock's own classes, compiled; Java's class path needs the file before it can record."""
    with temporary_folder("classes") as folder:
        config = Config(folder / "data", class_archive=0)
        with Jvm(config, config.data / "scratch" / "compiled") as jvm:
            gateway = jvm.gateway()
            write_classes(gateway, path)
            gateway.shutdown()
    path.chmod(0o600)


def _record(path: Path) -> None:
    with temporary_folder("classes") as folder:
        config = Config(folder / "data", cores=2, small_epoch=0)
        with Jvm(config, config.data / "scratch" / "recorded", record=path) as jvm:
            runtime = SparkRuntime(recorded_app.__name__, config, jvm)
            try:
                runtime.start()
                for number in range(recorded_app.REQUESTS):
                    counter = runtime.call.Counter(f"c{number}")
                    counter.create()
                    counter.add(number)
            finally:
                runtime.stop()


if __name__ == "__main__":
    main()
