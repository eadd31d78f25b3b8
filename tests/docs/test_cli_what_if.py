"""The page's examples of `penstock what-if` work as a reader would type them."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.checkout import SHOP, TOP
from tests.history import journal_of
from tests.unit.history.test_what_if import SHOPPING, contents

SECTION = (TOP / "docs" / "HISTORY.md").read_text().partition("## What if\n")[2]
COMMANDS = re.findall(r"^    (penstock .*)$", SECTION, re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a shop's data, another version of the shop, and the page's edits."""
    journal_of(SHOP, tmp_path / ".penstock" / "shop", SHOPPING)
    shutil.copytree(SHOP, tmp_path / "new" / "shop")
    edits = re.findall(r"^```json\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    (tmp_path / "edits.jsonl").write_text("".join(edits))
    return tmp_path


def test_commands_of_the_page_run(folder: Path) -> None:
    """Each works as it stands there, and leaves the application's data as they were."""
    before = contents(folder / ".penstock")
    assert len(COMMANDS) == 3
    for command in COMMANDS:
        words = [SHOP if word == "APP" else word for word in shlex.split(command)]
        done = subprocess.run(
            [sys.executable, "-m", *words],
            capture_output=True,
            cwd=folder,
            env={**os.environ, "COLUMNS": "200"},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if "--json" in words:
            found = msgspec.json.decode(done.stdout)
            assert found["inserted"]["count"] == found["left_out"]["count"] == 1
            assert found["keep"] == {"data": "what-if", "shift": 0}
    assert contents(folder / ".penstock") == before
    assert (folder / "what-if" / "journal").is_dir()
