"""Fetch the Java archives that a lock names, with the Ivy that Spark brings along, and check their digests.

    python fetch_jars.py LOCK FOLDER

A line of the lock is a SHA-256 and Maven coordinates. Used by scripts/readers.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock.runtime.spark.java import java_home
from penstock.runtime.spark.jvm import spark_home

MODULE = """\
<ivy-module version="2.0">
  <info organisation="penstock" module="readers"/>
  <dependencies>{dependencies}</dependencies>
</ivy-module>
"""
DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" transitive="false" conf="default"/>'


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
    return list((Path(scratch) / "jars").glob("*.jar"))


def fetch(names: list[str], scratch: Path) -> None:
    module = scratch / "ivy.xml"
    dependencies = "".join(DEPENDENCY.format(*name.split(":")) for name in names)
    module.write_text(MODULE.format(dependencies=dependencies))
    jars = spark_home() / "jars"
    archives = [str(path) for word in ("ivy", "commons-cli") for path in jars.glob(f"{word}-*.jar")]
    command = [str(java_home(scratch) / "bin" / "java"), "-cp", ":".join(archives)]
    command += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "org.apache.ivy.Main"]
    command += ["-ivy", str(module), "-cache", str(scratch / "cache"), "-types", "jar"]
    command += ["-retrieve", str(scratch / "jars" / "[artifact]-[revision].[ext]")]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
