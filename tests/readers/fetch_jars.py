"""Fetch the Java archives that a lock names, with Spark's own means, and check their digests.

    python fetch_jars.py LOCK FOLDER

A line of the lock is a SHA-256 and Maven coordinates. Used by scripts/readers.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.runtime.spark.java import java_home


def main(lock: Path, folder: Path) -> None:
    lines = [line.split() for line in lock.read_text().splitlines()]
    wanted = {name: digest for digest, name in lines}
    with tempfile.TemporaryDirectory() as scratch:
        fetch(list(wanted), Path(scratch))
        fetched = {hashlib.sha256(one.read_bytes()).hexdigest(): one for one in found(scratch)}
        if missing := [name for name, digest in wanted.items() if digest not in fetched]:
            sys.exit(
                f"fetch_jars: the fetched files are not those that {lock} names: {', '.join(missing)}"
            )
        folder.mkdir(parents=True, exist_ok=True)
        for digest in wanted.values():
            shutil.copy(fetched[digest], folder)


def found(scratch: str) -> list[Path]:
    return list((Path(scratch) / "ivy" / "jars").glob("*.jar"))


def fetch(names: list[str], scratch: Path) -> None:
    os.environ["JAVA_HOME"] = str(java_home(scratch))
    settings = {
        "spark.jars.ivy": str(scratch / "ivy"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    for name in names:
        session.sql(f"ADD JAR ivy://{name}?transitive=false")
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
