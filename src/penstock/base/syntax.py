"""Syntax trees of source text, and the lines of classes; a text that has no tree is a `SyntaxError`, whatever the cause.

Python's own functions raise many errors here. Some are about good code: an expression of a thousand terms is compiled,
but it has no tree, and before 3.11.8, Python counts the depth of trees in one place for all threads.
"""

import ast
import inspect
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

_TRIES: Final = 10
_Named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def parse(text: str | bytes) -> ast.Module:
    """Return the syntax tree of a module.

    If the garbage collector runs meanwhile and thereby lets other code parse, Python before 3.11.8 may refuse a good
    text with `SystemError` (its issue 106905). The text is then parsed again.

    Raises:
        SyntaxError: The text is not Python, or it is nested too deeply.
    """
    for _ in range(_TRIES):
        try:
            return ast.parse(text)
        except SystemError:
            continue
        except (ValueError, RecursionError, MemoryError) as error:
            raise SyntaxError(f"Python cannot read the text: {error}") from error
    raise SyntaxError(
        "other code that is parsed at the same time keeps Python from reading the text"
    )


def place_of_class(cls: type) -> tuple[str, int]:
    """Return the file of a class, and its first line there: that of its first decorator, if it has one.

    Raises:
        OSError: The file cannot be read, or has no such class.
        TypeError: The class has no file.
        SyntaxError: The file has no tree.
    """
    file, module = inspect.getsourcefile(cls), inspect.getmodule(cls)
    if file is None or module is None:
        raise OSError(f"class {cls.__name__} has no source")
    lines, _ = inspect.findsource(module)  # of the class, it would parse the text itself
    line = _lines_of_classes("".join(lines)).get(cls.__qualname__)
    if line is None:
        raise OSError(f"{file} has no class {cls.__qualname__}")
    return file, line


@lru_cache(maxsize=4)  # the classes of a module are asked for one after the other
def _lines_of_classes(text: str) -> dict[str, int]:
    """Return the first line of each class of a module by its qualified name; of several of one name, that of the first."""
    lines: dict[str, int] = {}
    for name, node in _named(parse(text)):
        if isinstance(node, ast.ClassDef):
            first = min([node.lineno, *(part.lineno for part in node.decorator_list)])
            lines.setdefault(name, first)
    return lines


def _named(tree: ast.Module) -> Iterator[tuple[str, _Named]]:
    """Yield each class and function with its qualified name, in the order of the text; without recursion."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        prefix, node = waiting.pop()
        if isinstance(node, _Named):
            yield prefix + node.name, node
            prefix += (
                f"{node.name}." if isinstance(node, ast.ClassDef) else f"{node.name}.<locals>."
            )
        parts = [part for part in ast.iter_child_nodes(node) if not isinstance(part, ast.expr)]
        waiting += [(prefix, part) for part in reversed(parts)]
