"""What the pages say is true: snippets run as a reader would type them, tables are complete."""

import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest

from penstock.process.config import Config, setting_names
from tests.checkout import TOP

OPERATIONS = TOP / "docs" / "OPERATIONS.md"
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(page: str) -> list[str]:
    return SNIPPET.findall((TOP / page).read_text())


def run_python(code: str, directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_guide_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """The guide's snippets, one after the other, are one program that runs."""
    program = tmp_path / "guide.py"
    program.write_text("\n".join(snippets("docs/GUIDE.md")))
    run_python("import runpy; runpy.run_path('guide.py')", tmp_path)


def test_readme_application_passes_its_own_test(tmp_path: Path) -> None:
    """The README's first snippet is a module, and its test of it passes."""
    application, _, test = snippets("README.md")
    (tmp_path / "kiosk.py").write_text(application)
    run_python(test, tmp_path)


@pytest.mark.spark
def test_readme_application_runs_on_spark(tmp_path: Path) -> None:
    """The README's snippet that starts Spark answers as the README says."""
    application, on_spark, _ = snippets("README.md")
    (tmp_path / "kiosk.py").write_text(application)
    run_python(on_spark, tmp_path)


def test_operations_page_names_every_setting_and_its_default(tmp_path: Path) -> None:
    """The table of settings is the configuration's, with its defaults."""
    rows = re.findall(r"^\| `([a-z_.]+)` \| ([^|]*)\|", OPERATIONS.read_text(), re.MULTILINE)
    told = {name: default.strip() for name, default in rows if name in setting_names()}
    assert sorted(told) == sorted(setting_names())
    config = Config(data=tmp_path)
    for name, default in told.items():
        if default.isdigit():
            assert attrgetter(name)(config) == int(default), name
