"""Every example runs, and does the steps of its text."""

import ast
from pathlib import Path

import pytest

from examples import shop
from penstock.deployment.loading import load_app
from tests.checkout import TOP

EXAMPLES = TOP / "examples"
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if (path / "__init__.py").exists())


@pytest.mark.parametrize("folder", FOLDERS)
def test_example_loads_and_tells_its_story(folder: str) -> None:
    """Each example's folder is an application of that name, and opens with its subject."""
    assert load_app(str(EXAMPLES / folder)).name == folder
    text = (EXAMPLES / folder / "__init__.py").read_text()
    assert text.startswith('"""')


def test_shop_takes_sixty_lines() -> None:
    """The three services and their routes are at most 60 lines of code, imports not counted."""
    count = 0
    for file in ("stock.py", "payment.py", "order.py"):
        text = (Path(shop.__file__).parent / file).read_text()
        told: set[int] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom) or (
                isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            ):
                told.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        lines = enumerate(text.splitlines(), 1)
        count += sum(bool(line.strip()) and number not in told for number, line in lines)
    assert count <= 60
