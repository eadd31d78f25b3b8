"""The site has every page, and the API reference has every public name."""

import re

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
