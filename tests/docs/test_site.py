"""The site has every page, and the API reference has every public name."""

import re
import runpy

import penstock
from tests.checkout import TOP

DOCS = TOP / "docs"
ADDRESSED = re.compile(r"^::: penstock\.(\w+)$", re.MULTILINE)
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)


def test_api_reference_has_every_public_name_once() -> None:
    """Each public name is on one page: an error by its module, the others by themselves."""
    names = [
        name for page in (DOCS / "api").glob("*.md") for name in ADDRESSED.findall(page.read_text())
    ]
    assert "errors" in names
    errors = CLASS.findall((TOP / "src" / "penstock" / "errors.py").read_text())
    shown = [name for name in names if name not in {"errors", "testing"}]
    assert sorted(shown) == sorted(set(penstock.__all__) - set(errors))


def test_navigation_names_every_page() -> None:
    """Each page of `docs` has its place in the navigation of the site."""
    navigation = (TOP / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert pages - set(re.findall(r"[\w/-]+\.md", navigation)) == set()


def test_programs_find_every_page_in_one_file() -> None:
    """`llms.txt` has the pages of the navigation by section, each with its first sentence; decisions come last."""
    pages = runpy.run_path(str(TOP / "scripts" / "site_pages.py"))
    nav = [{"Start": "index.md"}, {"Use": [{"Guide": ["GUIDE.md", {"Types": "guide/types.md"}]}]}]
    decisions = {"Understand": [{"Decisions": ["decisions/001-plain-objects.md"]}]}
    assert pages["addresses"]([decisions, *nav]) == [
        ("Start", "index.md"),
        ("Use", "GUIDE.md"),
        ("Use", "guide/types.md"),
        ("Optional", "decisions/001-plain-objects.md"),
    ]
    assert pages["summary"]("# Title\n\n| a |\n\nSee [this](x.md), first. Then\nmore.\n") == (
        "See this, first."
    )
