"""Annotations are read alike in all versions of Python, evaluated or not."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple, Optional, get_args

import pytest

from penstock.base.annotations import annotations_of, evaluate, signature_of
from penstock.deployment.loading import load_app
from penstock.errors import ConfigError

LATER_NAMES = """
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from penstock import Emit, PerTask, entity, flow, key, stream
if TYPE_CHECKING:
    from elsewhere import Bin

@entity
class Shelf:
    place: Place = key()
    limit: ClassVar[Limit] = 3
    newest: Bin | None = None
    bins: list[Bin] = []

    def fill(self, newest: Bin, bins: list[Bin]) -> Bin:
        self.newest = newest
        self.bins = bins
        return newest

class Place(NamedTuple):
    row: Row
    number: int

class Total:
    newest: PerTask[Bin | None] = None
    total: Limit = 0

    def on_event(self, filled: Filled, out: Emit[Filled]) -> None:
        self.total += filled.number
        out(filled)

def number_of(filled: Filled) -> Limit:
    return filled.number

class Filled(NamedTuple):
    number: Limit

Row = str
Limit = int
filled = stream("filled", Filled)
totals = flow("totals", filled).key(number_of).task(Total).sink("totalled")
"""
APP = """
from elsewhere import Bin
from later_names import Shelf, totals
from penstock import App

app = App("later", Shelf, Bin, totals)
"""
ELSEWHERE = """
from penstock import entity, key

@entity
class Bin:
    name: str = key()
"""


class Base:
    first: int


class Derived(Base):
    second: "Base"
    third: ClassVar[int] = 3

    def method(self, one: "Base", two: int = 2) -> "Derived":
        return self


def test_annotations_of_a_class_are_its_own() -> None:
    """Those of a base class are not among them, also where the class has none."""
    assert list(annotations_of(Derived)) == ["second", "third"]
    assert annotations_of(type("Empty", (Base,), {})) == {}


def test_texts_are_evaluated_with_the_given_names() -> None:
    """Local names come before global ones; an unknown name is an error."""
    annotations = {"one": "Base", "two": int, "three": "list[Base]"}
    assert evaluate(annotations, {"Base": Base}) == {"one": Base, "two": int, "three": list[Base]}
    assert evaluate({"one": "Base"}, {"Base": Base}, {"Base": Derived}) == {"one": Derived}
    with pytest.raises(NameError, match="Base"):
        evaluate({"one": "Base"}, {})


def test_made_classes_keep_texts_inside_of_types() -> None:
    """Whether a class was written or made, a text in a type is evaluated with the given names."""
    made = NamedTuple("made", [("first", Optional["Base"]), ("second", int)])  # noqa: UP014
    assert evaluate(annotations_of(made), {"Base": Derived}) == {
        "first": Derived | None,
        "second": int,
    }


def test_signature_has_annotations_as_they_are_written() -> None:
    """A text stays a text."""
    parameters = signature_of(Derived.method).parameters
    assert [parameters[name].annotation for name in ("one", "two")] == ["Base", int]
    assert signature_of(Derived.method).return_annotation == "Derived"


@pytest.fixture
def forgotten_modules() -> Iterator[None]:
    """Let no later test find the modules of this one."""
    yield
    for name in ("later_names", "elsewhere", "shelf_app"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("forgotten_modules")
@pytest.mark.parametrize("head", ["", "from __future__ import annotations\n"], ids=["", "text"])
def test_names_may_be_defined_later(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Annotations that are text may name later classes; since Python 3.14 all annotations may."""
    files = {"later_names": head + LATER_NAMES, "elsewhere": ELSEWHERE, "shelf_app": APP}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    spec = f"{tmp_path / 'shelf_app.py'}:app"
    if not head and sys.version_info < (3, 14):
        with pytest.raises(ConfigError, match="'Place' is not defined"):
            load_app(spec)
        return
    app = load_app(spec)
    attributes = app.entities["Shelf"].attributes
    bins = app.entities["Bin"].cls
    assert (list(attributes), get_args(attributes["bins"])) == (["newest", "bins"], (bins,))
    assert get_args(attributes["newest"]) == (bins, type(None))
    assert app.signature("Shelf", "fill").returns is bins
    task = app.topology.tasks["totals.Total"]
    assert task.shared is not None
    assert (list(task.shared.attributes), list(task.rows.attributes)) == (["newest"], ["total"])
