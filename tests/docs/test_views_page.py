"""The page on views is true: its program runs, its commands exist, and its tables are those of the code."""

import re
from pathlib import Path

from penstock.process.config import TargetSettings, load_config
from penstock.process.view_files import ViewState
from penstock.process.view_standing import STARTING, STOPPED, UNDECLARED
from tests.checkout import TOP
from tests.docs.test_pages import run_python, snippets

PAGE = (TOP / "docs" / "VIEWS.md").read_text()


def test_program_of_the_page_runs(tmp_path: Path) -> None:
    """The application and the test of its row function are one program; the query of the other one can be a table."""
    store, row_test, shop = snippets("docs/VIEWS.md")
    (tmp_path / "store.py").write_text(f"{store}\n{row_test}")
    (tmp_path / "shop.py").write_text(shop)
    run_python(
        "import runpy; assert list(runpy.run_path('store.py')['app'].views) == ['reporting']; "
        "from shop import app; from penstock.views.deployment_check import query_findings; "
        "assert list(query_findings(app)) == []",
        tmp_path,
    )


def test_page_names_every_state() -> None:
    """The table of states is complete."""
    table = PAGE.partition("## States")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(told) == sorted([*ViewState, STARTING, STOPPED, UNDECLARED])


def test_settings_of_the_page_are_read(tmp_path: Path) -> None:
    """The block of settings gives each view its address."""
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path / "penstock.toml"
    path.write_text(text)
    config = load_config(data=tmp_path, file=path)
    assert config.target_settings("reporting").address().startswith("postgresql://")
    assert config.target_settings("archive") == TargetSettings(
        url_file=Path("/run/secrets/archive-url")
    )
