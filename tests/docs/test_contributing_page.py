"""The commands of CONTRIBUTING exist, and the tests and options that they name are there."""

import re
import shlex
import subprocess
import sys

import pytest

from tests.checkout import TOP

TEXT = (TOP / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"^ {4,}((?:pytest|scripts/).*)$", TEXT, re.MULTILINE)
INLINE = re.findall(r"`((?:pytest|scripts/\w+|python -m)\b[^`]*)`", TEXT)
COMMANDS = sorted({command for command in (*BLOCKS, *INLINE) if "NUMBER" not in command})


def test_page_has_commands() -> None:
    """A page that lost its commands would be tested by nothing."""
    assert len(BLOCKS) == 6
    assert len(COMMANDS) > len(BLOCKS)


@pytest.mark.parametrize("command", COMMANDS)
def test_program_of_the_command_exists(command: str) -> None:
    """Each command names a program of the project, and paths that exist."""
    words = shlex.split(command)
    if words[0].startswith("scripts/"):
        assert (TOP / words[0]).stat().st_mode & 0o100
    if words[:2] == ["python", "-m"]:
        assert (TOP / f"{words[2].replace('.', '/')}.py").is_file()
    for word in words[1:]:
        assert not word.startswith("tests/") or (TOP / word).exists(), word


def test_one_test_is_found_by_the_command_of_the_page() -> None:
    """The command for one test selects some tests of the file, and not all of them."""
    command = next(one for one in BLOCKS if one.startswith("pytest") and "-k" in one)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            *shlex.split(command),
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
        ],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "deselected" in done.stdout
    assert "::test_" in done.stdout


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:tests|examples|benchmarks|src)/?[\w/.]*)`", TEXT)))
)
def test_path_of_the_page_exists(path: str) -> None:
    """Each file and directory that the page names is there."""
    assert (TOP / path).exists()
