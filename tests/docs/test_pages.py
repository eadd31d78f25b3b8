"""The pages are true: snippets run as a reader would type them, tables are complete."""

import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest

from penstock.base.http import STATUS
from penstock.errors import Overloaded, TimedOut
from penstock.gateway.serving import UNSET
from penstock.process.config import Config, meanings
from tests.checkout import TOP

GLOSSARY = TOP / "docs" / "GLOSSARY.md"
SETTINGS = TOP / "docs" / "SETTINGS.md"
GUIDE = (TOP / "docs" / "GUIDE.md", *sorted((TOP / "docs" / "guide").glob("*.md")))
STREAMS = (TOP / "docs" / "STREAMS.md", *sorted((TOP / "docs" / "streams").glob("*.md")))
COMPUTED = {  # by the configuration, from the machine and other settings
    "data": "`.penstock/<app>`",
    "cores": "all",
    "partitions": "as many as cores",
    "master": "`local[2·cores+1,4]`",
}
SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(page: str) -> list[str]:
    return SNIPPET.findall((TOP / page).read_text())


def run_python(code: str, directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("pages", [GUIDE, STREAMS], ids=["guide", "streams"])
def test_pages_run_from_top_to_bottom(pages: tuple[Path, ...], tmp_path: Path) -> None:
    """The snippets of each page, one after the other, are one program; `test_streams_page` runs those for a gateway."""
    programs = tmp_path / "programs"  # `types.py` must not be found as a module
    programs.mkdir()
    for page in pages:
        local = [text for text in snippets(str(page.relative_to(TOP))) if "127.0.0.1" not in text]
        program = programs / f"{page.stem.lower().replace('-', '_')}.py"
        program.write_text("\n".join(local))
    run_python(
        "import pathlib, runpy\nfor page in sorted(pathlib.Path('programs').iterdir()): runpy.run_path(str(page))",
        tmp_path,
    )


def test_guide_says_where_expressions_work(tmp_path: Path) -> None:
    """Outside of handlers, the expressions of the table are refused, or give the value that it says."""
    rows = re.findall(
        r"^\| `([^`]+)`[^|]*\| ([^|]*) \| ([^|]*) \|$", where := GUIDE[0].read_text(), re.MULTILINE
    )
    rows = [row for row in rows if f"| `{row[0]}`" in where.partition("## Where code runs")[2]]
    assert len(rows) == 11
    checks = [f"check({expression!r}, {'refused' in told})" for expression, _, told in rows]
    run_python("\n".join([ITEM, *checks]), tmp_path)


ITEM = """
from penstock import *
class Item(Entity):
    item_id: str = key()
    email: str = unique()
    stock: int = 0
    def take(self, amount: int) -> None:
        self.stock -= amount
event, stream = 1, stream("events", int)
App("shop", Item, flow("all", stream).sink("copies"))
item = Item("tea")
from penstock.testing import Kit
client = kit = Kit(App("other", Item))
client.call(Item.create, "tea", email="x", stock=9)
def check(expression, refused):
    try:
        exec(expression)
        found = False
    except OutsideTransaction:
        found = True
    assert found is refused, expression
"""


def test_limits_of_the_guide_are_the_defaults(tmp_path: Path) -> None:
    """Each setting of the table of limits has its default there, and none of `limits` is missing."""
    told = dict(re.findall(r"`([a-z_.]+)` = (\d+)", (TOP / "docs/guide/limits.md").read_text()))
    config = Config(data=tmp_path)
    assert told == {name: str(attrgetter(name)(config)) for name in told}
    assert {name for name in meanings() if name.startswith("limits.")} <= told.keys()


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


def test_settings_page_names_every_setting_with_default_and_meaning(tmp_path: Path) -> None:
    """The table of settings is the configuration's; the page adds links and details to a meaning, and changes no word."""
    row = r"^\| `([a-z_.]+)` \| ([^|]*)\| ([^|]*)\|"
    rows = re.findall(row, SETTINGS.read_text(), re.MULTILINE)
    told = {name: default.strip() for name, default, _ in rows if name in meanings()}
    assert sorted(told) == sorted(meanings())
    meant = {name: re.sub(r"\[([^]]+)]\([^)]+\)", r"\1", text) for name, _, text in rows}
    for name, meaning in meanings().items():
        assert meant[name].startswith(meaning), name
    config = Config(data=tmp_path)
    assert told == {name: written(attrgetter(name)(config)) for name in told} | COMPUTED


def written(default: object) -> str:
    """Write a default as the page does."""
    if default == UNSET:
        return ""
    return f"`{default}`" if isinstance(default, str) and default else str(default)


def test_pages_name_the_status_of_each_refusal() -> None:
    """Statuses in the table of settings, and in the meanings of settings, are those of the errors."""
    limits = {
        "waiting_max": Overloaded,
        "lag_max": Overloaded,
        "reply_timeout_ms": TimedOut,
    }
    page, meant = SETTINGS.read_text(), meanings()
    for name, error in limits.items():
        (line,) = re.findall(rf"\| `gateway\.{name}` \|[^\n]*", page)
        for text in (line, meant[f"gateway.{name}"]):
            assert set(re.findall(r"\b[45]\d\d\b", text)) <= {str(STATUS[error.code])}, text
    assert str(STATUS[Overloaded.code]) in page


def test_glossary_names_modules_that_exist() -> None:
    """Each term of the glossary names the module that implements it, and appears once."""
    rows = re.findall(
        r"^\| ([^|]+) \| [^|]+ \| `([a-z_.]+)` \|$", GLOSSARY.read_text(), re.MULTILINE
    )
    lines = [line for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) == len(lines) - lines.count("| term | meaning | module |")
    assert len({term for term, _ in rows}) == len(rows)
    package = TOP / "src" / "penstock"
    missing = [name for _, name in rows if not (package / f"{name.replace('.', '/')}.py").is_file()]
    assert missing == []
