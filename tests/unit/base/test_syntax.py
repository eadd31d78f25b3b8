"""Syntax trees are read although other code parses at the same time, and although expressions are deep."""

import ast
import gc
import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.base.syntax import parse
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.deployment.loading import load_app

LARGE = "x = [1, (2, [3, 4])]\n" * 2_000


@contextmanager
def disturbed(times: int) -> Iterator[None]:
    """Let the garbage collector parse at another depth of the stack, as a finalizer or another thread can."""
    left = itertools.count(times, -1)
    own = threading.get_ident()

    def disturb(phase: str, _: object) -> None:
        # The threads that earlier tests have left collect, too, and must not take the disturbances away.
        if phase == "start" and threading.get_ident() == own and next(left) > 0:
            parse_deeper(20)

    def parse_deeper(frames: int) -> None:
        # Python counts three levels of a tree for each frame. At the depth of the text itself, which the phase of the
        # collector decides, the two counts could otherwise agree by chance, and Python would refuse nothing.
        if frames:
            parse_deeper(frames - 1)
        else:
            ast.parse("1")

    before = gc.get_threshold()
    gc.callbacks.append(disturb)
    gc.set_threshold(100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(disturb)


def test_text_is_read_while_other_code_parses() -> None:
    """Python before 3.11.8 refuses the text."""
    if sys.version_info < (3, 11, 8):
        with disturbed(20), pytest.raises(SystemError, match="recursion depth mismatch"):
            ast.parse(LARGE)
    with disturbed(20):
        assert len(parse(LARGE).body) == 2_000


@pytest.mark.parametrize(
    "text", ["x = (", "x = '\0'", f"x = {'-' * 200_000}1", f"x = {'(' * 200_000}1"]
)
def test_text_without_tree_is_a_syntax_error(text: str) -> None:
    """Whatever Python raises for the text."""
    with pytest.raises(SyntaxError):
        parse(text)


def test_deep_expressions_leave_the_application_and_its_plan(tmp_path: Path) -> None:
    """Python runs them; only their own calls are unknown, and the places of classes and other methods are known."""
    deep = "+".join(["1"] * 900)
    file = tmp_path / "deep_sums.py"
    file.write_text(
        f"from penstock import App, Entity, key\n\nTABLE = {deep}\n\n\n"
        "class Sum(Entity):\n    name: str = key()\n    total: int = 0\n\n"
        f"    def grow(self) -> None:\n        self.total += {deep}\n\n"
        "    def twice(self) -> None:\n        self.grow()\n        self.shrink()\n\n"
        "    def shrink(self) -> None:\n        self.total -= 1\n\n\n"
        "app = App('sums', Sum)\n"
    )
    plan = analyze_app(load_app(str(file)))
    assert plan.operators[0].where.line == 6
    assert [warning.message for warning in plan.warnings] == [
        "its source is nested too deeply: its calls are unknown"
    ]
    assert {f"{edge.source.text} {edge.target.text}" for edge in plan.edges} >= {
        "Sum.twice Sum.shrink",
        "Sum.grow ?",
    }
