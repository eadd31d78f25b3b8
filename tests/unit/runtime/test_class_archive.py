"""The class archive: which file it is, who may use it, and who makes it."""

import os
from pathlib import Path

import pytest

from penstock.files.lock import claim
from penstock.runtime.spark import class_recording
from penstock.runtime.spark.class_archive import RETRY_S, ClassArchive, cache_directory
from penstock.runtime.spark.java import Java, find_java
from penstock.runtime.spark.jvm import jars as archives_of


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Give a class path of one file, and an empty cache directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jar = tmp_path / "spark.jar"
    jar.write_bytes(b"classes")
    return [jar]


@pytest.fixture
def archive(tmp_path: Path, jars: list[Path]) -> ClassArchive:
    """Give the archive of that class path, whose file does not exist."""
    found = ClassArchive.of(Java(tmp_path / "java", 17), jars)
    found.path.parent.mkdir(parents=True, mode=0o700)
    return found


def written(path: Path) -> None:
    """Stand for Java, which writes an archive."""
    path.write_bytes(b"archive")
    path.chmod(0o600)


def failing(path: Path) -> None:
    """Stand for a Java that dies."""
    raise OSError("no space")


def test_another_java_or_another_jar_has_another_archive(tmp_path: Path, jars: list[Path]) -> None:
    """An update of Java or of Spark never finds the archive of the former files."""
    java = Java(tmp_path / "java", 17)
    names = {ClassArchive.of(java, jars).path, ClassArchive.of(java, jars).path}
    assert len(names) == 1
    names.add(ClassArchive.of(Java(tmp_path / "other", 17), jars).path)
    jars[0].write_bytes(b"other classes")
    names.add(ClassArchive.of(java, jars).path)
    assert len(names) == 3


def test_class_path_has_no_machine_learning(tmp_path: Path) -> None:
    """Archives of parts that no application uses are left out; the others keep their order."""
    names = [
        "arrow-vector-1.jar",
        "breeze_2.13-2.jar",
        "spark-mllib_2.13-4.jar",
        "spark-sql_2.13-4.jar",
    ]
    for name in reversed(names):
        (tmp_path / "jars" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "jars" / name).touch()
    left = [path.name for path in archives_of(tmp_path)]
    assert left == ["arrow-vector-1.jar", "spark-sql_2.13-4.jar"]


def test_cache_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative XDG_CACHE_HOME is ignored, as its specification says."""
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/ada")
    assert cache_directory() == Path("/home/ada/.cache/penstock")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_directory() == Path("/caches/penstock")


def test_java_reads_only_an_archive_that_no_other_user_can_write(archive: ClassArchive) -> None:
    """A missing archive gives no options, and neither does one that others may write."""
    assert archive.options() == []
    written(archive.path)
    assert archive.options() == []  # the classes of Penstock are missing
    written(archive.classes)
    assert archive.options()[0] == f"-XX:SharedArchiveFile={archive.path}"
    for path in (archive.path, archive.classes):
        path.chmod(0o622)
        assert archive.options() == []
        path.chmod(0o600)
    archive.path.parent.chmod(0o777)
    assert archive.options() == []


def test_archive_is_made_once(archive: ClassArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call does nothing, and the two newest archives remain."""
    monkeypatch.setattr(class_recording, "_compile", written)
    monkeypatch.setattr(class_recording, "_record", written)
    for age in (3, 2, 1):
        old = archive.path.with_name(f"classes-java17-{age}.jsa")
        written(old)
        written(ClassArchive(old).classes)
        os.utime(old, (1_000_000 - age, 1_000_000 - age))
    written(archive.path.with_name("classes-java17-4.draft"))  # a killed attempt left it
    assert archive.is_wanted()
    class_recording.make(archive)
    assert archive.exists
    assert not archive.is_wanted()
    left = sorted(archive.path.parent.glob("classes-*"))
    newest = archive, ClassArchive(archive.path.with_name("classes-java17-1.jsa"))
    assert left == sorted(path for kept in newest for path in (kept.path, kept.classes))
    monkeypatch.setattr(class_recording, "_record", failing)
    class_recording.make(archive)


def test_failure_is_not_repeated_for_a_day(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that fails leaves no archive, and the next start does not try again."""
    monkeypatch.setattr(class_recording, "_compile", written)
    monkeypatch.setattr(class_recording, "_record", failing)
    with pytest.raises(OSError, match="no space"):
        class_recording.make(archive)
    assert not archive.path.exists()
    assert not archive.is_wanted()
    long_ago = archive.failure.stat().st_mtime - RETRY_S - 60
    os.utime(archive.failure, (long_ago, long_ago))
    assert archive.is_wanted()


def test_two_processes_make_one_archive(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process makes the archive, a process does nothing."""
    monkeypatch.setattr(class_recording, "_record", failing)
    lock = claim(archive.path.parent / "lock")
    class_recording.make(archive)
    os.close(lock)
    assert not archive.exists


def test_java_that_has_written_an_archive_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file `release` of a known Java gives its home and version; an unknown Java is started."""
    home = tmp_path / "java-17"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('IMPLEMENTOR="a"\nJAVA_VERSION="17.0.9"\n')
    (home / "bin" / "java").write_text(f"#!/bin/sh\n: > {tmp_path}/started\nexit 1\n")
    (home / "bin" / "java").chmod(0o700)
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "link"))
    monkeypatch.setenv("PATH", "")
    asked: list[Java] = []

    def is_known(java: Java) -> bool:
        asked.append(java)
        return True

    assert find_java(is_known) == Java(home, 17)
    assert asked == [Java(home, 17)]
    assert not (tmp_path / "started").exists()
    find_java(lambda java: java.home != home)
    assert (tmp_path / "started").exists()
