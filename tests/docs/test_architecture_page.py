"""The page on the architecture is short, and it and the decisions name code that exists."""

import ast
import re
from pathlib import Path

import pytest

from tests.checkout import TOP

PACKAGE = TOP / "src" / "penstock"
PAGE = TOP / "docs" / "ARCHITECTURE.md"
DECISIONS = sorted((TOP / "docs" / "decisions").glob("*.md"))
ROOMS = sorted(path.stem for path in PACKAGE.iterdir() if path.name != "__pycache__")
NAME = re.compile(rf"`((?:{'|'.join(ROOMS)})(?:\.\w+)+)`")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
WORDS_MAX = 5_000
WORDS_OF_A_PARAGRAPH_MAX = 120


def exists(name: str) -> bool:
    """Say whether a dotted name leads to a directory, to a module, or to a name that a module defines."""
    place, *rest = PACKAGE, *name.split(".")
    while rest and (place / rest[0]).is_dir():
        place /= rest.pop(0)
    if not rest:
        return True
    module = place / f"{rest.pop(0)}.py"
    return module.is_file() and defines(ast.parse(module.read_text()).body, rest)


def defines(body: list[ast.stmt], names: list[str]) -> bool:
    if not names:
        return True
    for node in body:
        match node:
            case ast.ClassDef(name=name, body=inner) if name == names[0]:
                return defines(inner, names[1:])
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name == names[0]:
                return len(names) == 1
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if name == names[0]:
                    return len(names) == 1
            case _:
                pass
    return False


def paragraphs(path: Path) -> list[str]:
    """Return the paragraphs of a page, and the points of its lists; neither code nor tables."""
    blocks = re.split(r"\n\s*\n|\n(?=- |\d+\. )", FENCED.sub("", path.read_text()))
    return [block for block in blocks if not block.lstrip().startswith(("|", "#", "    "))]


def test_page_is_read_in_twenty_minutes() -> None:
    """The page has at most 5,000 words, tables and pictures included."""
    assert len(PAGE.read_text().split()) <= WORDS_MAX


@pytest.mark.parametrize("path", [PAGE, *DECISIONS], ids=lambda path: path.stem)
def test_paragraphs_are_short(path: Path) -> None:
    """No paragraph has more than 120 words."""
    assert [text for text in paragraphs(path) if len(text.split()) > WORDS_OF_A_PARAGRAPH_MAX] == []


@pytest.mark.parametrize("path", [PAGE, *DECISIONS], ids=lambda path: path.stem)
def test_named_modules_and_functions_exist(path: Path) -> None:
    """Each module, class and function that a page names is there."""
    assert [name for name in NAME.findall(path.read_text()) if not exists(name)] == []


def test_page_names_functions() -> None:
    """The test of names would see a function that is gone, and the page names enough of them."""
    assert exists("model.control")
    assert exists("runtime.spark")
    assert not exists("model.no_such_module")
    assert not exists("journal.tail.NoSuchClass")
    assert len(NAME.findall(PAGE.read_text())) > 20


def test_page_links_every_decision() -> None:
    """Each decision is linked from the page; the numbers of decisions have no gap."""
    links = re.findall(r"\]\(decisions/([^)#]+)\)", PAGE.read_text())
    assert sorted(set(links)) == [path.name for path in DECISIONS]
    numbers = [int(path.name[:3]) for path in DECISIONS]
    assert numbers == list(range(1, len(DECISIONS) + 1))


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_decision_has_its_parts(path: Path) -> None:
    """A decision begins with its number and its context; its sections are in one order."""
    text = path.read_text()
    assert text.startswith(f"# {path.name[:3]} ")
    context, _, rest = text.partition("\n## ")
    assert len(context.splitlines()) > 1
    sections = re.findall(r"^## (.+)$", f"## {rest}", re.MULTILINE)
    known = ["Decision", "Measured", "Would change it"]
    assert sections == [name for name in known if name in sections]
    assert sections[0] == "Decision"
