"""The source of functions: their syntax trees, parsed once for each file, and their locations.

A function without readable source (typed at a prompt, generated) has no tree, and the analysis
reports it. File names are relative to the folder from which the modules are imported, so that a plan
is the same on every machine.
"""

import ast
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import Any, Final, TypeAlias

from penstock.base.annotations import annotations_of, evaluate
from penstock.base.syntax import parse
from penstock.dataflow.graph import SourceLocation

_OWN: Final = "penstock"

Tree: TypeAlias = ast.FunctionDef | ast.Lambda
"""A function in the source; an `async` one is made plain."""

_Trees: TypeAlias = Mapping[tuple[str, int], list[Tree]]
"""The functions of a file, by name and first line."""


class Sources:
    """Syntax trees of the files that an application's functions come from."""

    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages
        self._trees: dict[str, _Trees] = {}

    def tree_of(self, function: FunctionType) -> Tree | None:
        """Return the tree of a function, with the line numbers of its file."""
        code: CodeType = function.__code__
        if code.co_filename not in self._trees:
            self._trees[code.co_filename] = _functions_of(function)
        trees = self._trees[code.co_filename].get((code.co_name, code.co_firstlineno), [])
        if len(trees) > 1:  # lambdas of one line
            trees = [tree for tree in trees if _makes(tree, code)]
        return trees[-1] if trees else None

    def follows(self, function: FunctionType) -> bool:
        """Whether a function belongs to the application rather than to a library."""
        package = (function.__module__ or "").partition(".")[0]
        if package in self._packages:
            return True
        if package == _OWN or package in sys.stdlib_module_names:
            return False
        file = function.__code__.co_filename
        return "/site-packages/" not in file and "/dist-packages/" not in file


def _make_synchronous(tree: ast.Module) -> None:
    """Replace `async def` by `def`, without recursion: the analysis follows both in the same way."""
    for node in ast.walk(tree):
        for _, part in ast.iter_fields(node):
            if isinstance(part, list):
                part[:] = map(_plain, part)


def _plain(node: Any) -> Any:
    """Return an `async` function as a function that is not `async`, and everything else as it is."""
    if not isinstance(node, ast.AsyncFunctionDef):
        return node
    plain = ast.FunctionDef(
        name=node.name,
        args=node.args,
        body=node.body,
        decorator_list=node.decorator_list,
        returns=node.returns,
    )
    return ast.copy_location(plain, node)


def _makes(tree: Tree, code: CodeType) -> bool:
    """Whether a lambda has the names of this code; its instructions also depend on the code around it."""
    if not isinstance(tree, ast.Lambda):
        return True
    made = compile(ast.Expression(tree), code.co_filename, "eval").co_consts[0]
    return (made.co_names, made.co_varnames) == (code.co_names, code.co_varnames)


def _functions_of(function: FunctionType) -> _Trees:
    """Return the functions of a file by name and first line (that of the first decorator)."""
    try:
        lines, _ = inspect.findsource(function)
        tree = parse("".join(lines))
    except (OSError, TypeError, SyntaxError):
        return {}
    _make_synchronous(tree)
    trees: dict[tuple[str, int], list[Tree]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            lines_of = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
            trees.setdefault((node.name, min(lines_of)), []).append(node)
        elif isinstance(node, ast.Lambda):
            trees.setdefault(("<lambda>", node.lineno), []).append(node)
    return trees


def plain_function(thing: Any) -> FunctionType | None:
    """Return the Python function behind decorators, methods of classes and properties."""
    match thing:
        case staticmethod() | classmethod():
            thing = thing.__func__
        case property():
            thing = thing.fget
        case _ if inspect.ismethod(thing):
            thing = thing.__func__
        case _:
            pass
    function = inspect.unwrap(thing) if callable(thing) else None
    return function if isinstance(function, FunctionType) else None


def file_of(module: str, filename: str) -> str:
    """Name a file as from the folder that its module is imported from."""
    depth = module.count(".") + 1 + filename.endswith("/__init__.py")
    return "/".join(filename.split("/")[-depth:])


def place_of(function: FunctionType, line: int) -> SourceLocation:
    """Return a line of a function's file."""
    return SourceLocation(file_of(function.__module__ or "", function.__code__.co_filename), line)


def place_of_class(cls: type, where: str) -> SourceLocation:
    """Return the place of a class that is said to be at `file:line`."""
    filename, _, line = where.rpartition(":")
    return SourceLocation(file_of(cls.__module__, filename), int(line) if line.isdigit() else 0)


def hints_of(thing: Callable[..., Any] | type, names: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the annotations of a function, resolved; none if they cannot be resolved."""
    try:
        plain = inspect.unwrap(thing)
        if inspect.isfunction(plain):
            return evaluate(annotations_of(plain), plain.__globals__, names)
        return typing.get_type_hints(thing, None, dict(names))
    except (NameError, TypeError, AttributeError, SyntaxError):
        return {}


def resolve(annotation: ast.expr | None, names: Mapping[str, Any]) -> Any:
    """Return the type that an annotation in a function's body names; `Any` where it cannot be."""
    if annotation is None:
        return Any
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    try:
        return evaluate({"it": text}, names)["it"]
    except (NameError, TypeError, AttributeError, SyntaxError):
        return Any
