"""The tutorial is true: its files are written, its changes are made, and its commands run, from top to bottom."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkout import TOP
from tests.views.processes import deployed

pytestmark = pytest.mark.long

PAGE = (TOP / "docs" / "TUTORIAL.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WRITTEN = "http://127.0.0.1:8000"
RUN = "penstock run\n"
WORDS_MAX = 1_500


def named(text: str) -> tuple[Path, str]:
    """Return the file that the first line of a block names, and the lines behind it."""
    first, _, rest = text.partition("\n")
    return Path(first.removeprefix("# ").removesuffix(", at the end")), rest


def changed(text: str, difference: str) -> str:
    """Return a text after a change; its former lines stand in the text once."""
    lines = difference.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    assert text.count(before) == 1, before
    return text.replace(before, after)


def plain(text: str) -> str:
    """Return a text without the widths of columns."""
    return re.sub(r"\s+", " ", text)


def run(commands: str, folder: Path) -> str:
    """Run commands as a reader would; `curl` may show a refusal."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")
    }
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment |= {"COLUMNS": "100", "TERM": "dumb", "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    done = subprocess.run(
        ["bash", "-ec", commands],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def work_through(folder: Path, url: str, blocks: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Do what each block says, up to the command that starts the application; yields the outputs of commands."""
    printed = ""
    for language, text in blocks:
        match language:
            case "console" if text == RUN:
                return
            case "console":
                printed = run(text.replace(WRITTEN, url), folder)
                yield printed
            case "text":
                for line in text.splitlines():
                    assert plain(line).strip() in plain(printed), f"{line}\n{printed}"
            case "python" | "toml" | "diff":
                path, body = named(text)
                known = (folder / path).read_text() if (folder / path).exists() else ""
                made = changed(known, body) if language == "diff" else known + body
                (folder / path).write_text(made)
            case _:
                assert language == "mermaid"


def test_tutorial_is_short() -> None:
    """It takes half an hour."""
    assert len(PAGE.split()) <= WORDS_MAX


def test_tutorial_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """Each command succeeds, and prints the lines of the page."""
    blocks = iter(BLOCK.findall(PAGE))
    assert [*work_through(tmp_path, "", blocks)]  # the tests pass before anything runs
    with deployed(str(tmp_path / "cafe.py"), tmp_path / ".penstock" / "cafe") as url:
        outputs = [*work_through(tmp_path, url, blocks)]
    assert '"tea""ann"200200' in outputs[0]
    assert outputs[-1].endswith("2100\n")
