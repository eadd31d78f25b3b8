"""Sentences that a reader has to decode are rare: the signs of them are counted.

The limits are counts in 1,000 words, and stand in `LIMITS` alone. A sign is a hint and not a proof:
rewrite the sentence so that it is plain, with subject, verb and object.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.checkout import TOP

LIMITS = {"src": 2.0, "pages": 1.0}
SIGNS = {
    "a clause in the place of a noun: name the thing": re.compile(
        r"\b(?:what|whatever)\b(?![^.?!]*\?)(?! if\b)|"
        r"(?:^|[,;:(] |\b(?:of|for|to|by|from|with|than|is|are|tells?|knows?) )\bwho(?:ever)?\b"
        r"(?![^.?!]*\?)",
        re.IGNORECASE,
    ),
    "a fragment in the place of a sentence": re.compile(
        r"^\s*`?\w+`?: (?:of|in|by|for|from|to|with|at|on|than|where|whose|which)\b", re.IGNORECASE
    ),
    "an old or rare word": re.compile(
        r"\b(?:anew|beside|thereof|hitherto|shall|aught|nought|lest|whence|thence|for ever)\b",
        re.IGNORECASE,
    ),
    "nobody, somebody or everybody acts": re.compile(r"\b(?:no|some|every)body\b", re.IGNORECASE),
    "a negation that is turned round": re.compile(
        r"\b(?:is|are|be) none\b|\bis no\b|\bone's own\b|\b(?:none|nothing|only) where\b"
    ),
    "'one' for a noun": re.compile(r"\b(?:the|this|that) one\b", re.IGNORECASE),
}


class Line(NamedTuple):
    """A line of prose, where it stands, and what it says."""

    path: Path
    number: int
    text: str


def prose_of_page(path: Path) -> Iterator[Line]:
    """Yield the lines of a page that are neither code nor commands."""
    in_code = False
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if text.startswith("```"):
            in_code = not in_code
        elif not in_code and not text.startswith("    "):
            yield Line(path, number, re.sub(r"`[^`]*`", "`code`", text))


def prose_of_module(path: Path) -> Iterator[Line]:
    """Yield the comments of a module, its docstrings, and its texts of several words."""
    source = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Line(path, token.start[0], token.string.lstrip("# "))
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) if len(text.split()) > 2:
                for offset, line in enumerate(text.splitlines()):
                    yield Line(path, node.lineno + offset, line)
            case _:
                pass


def prose_of(part: str) -> list[Line]:
    if part == "src":
        modules = sorted((TOP / "src").rglob("*.py"))
        return [line for path in modules for line in prose_of_module(path)]
    pages = [*sorted(TOP.glob("*.md")), *sorted((TOP / "docs").rglob("*.md"))]
    return [line for path in pages for line in prose_of_page(path)]


@pytest.mark.parametrize("part", LIMITS)
def test_hard_sentences_are_rare(part: str) -> None:
    """The signs of hard sentences stay below the limit."""
    lines = prose_of(part)
    words = sum(len(line.text.split()) for line in lines)
    signs = [
        f"{line.path.relative_to(TOP)}:{line.number}: {sign}: {line.text.strip()[:80]}"
        for line in lines
        for sign, pattern in SIGNS.items()
        for _ in pattern.findall(line.text)
    ]
    rate = 1_000 * len(signs) / words
    shown = "\n".join(signs if len(signs) < 100 else signs[:50])
    assert rate <= LIMITS[part], f"{rate:.1f} signs in 1,000 words of {part}\n{shown}"
