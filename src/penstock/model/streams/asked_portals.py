"""The portals that the handlers of a task ask, as far as their code names them.

A handler asks a portal by its name: `take.ask(…)` of a global name, of a name of an enclosing function, or of a name in a
module. So a portal that no task of the application replies to is found when the application is built. A portal that
code gets in another way, such as from a list, is found at its first question.
"""

import dis
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from penstock.model.declaration import where_of
from penstock.model.streams.portal import Portal

_ASK: Final = "ask"
_MISSING: Final = object()


def asked_portals(cls: type) -> Iterator[tuple[Portal[Any, Any], str]]:
    """Yield each portal that a method of a class, or a function that it calls, asks by name; and `file:line` of the function.

    Functions are followed in the package of the class.
    """
    package = str(cls.__module__).partition(".")[0]
    todo = [
        value for base in cls.__mro__ for value in vars(base).values() if _is_own(value, package)
    ]
    seen: set[Callable[..., Any]] = set()
    while todo:
        function = todo.pop(0)
        if function in seen:
            continue
        seen.add(function)
        for value, attribute in _named_values(function, function.__code__):
            if attribute == _ASK and issubclass(type(value), Portal):
                yield value, where_of(function)
            elif _is_own(value, package):
                todo.append(value)


def _is_own(value: object, package: str) -> bool:
    return type(value) is FunctionType and str(value.__module__).partition(".")[0] == package


def _named_values(function: FunctionType, code: CodeType) -> Iterator[tuple[Any, str]]:
    """Yield the values of the names outside of a function that it loads, and the attribute of each that it takes, if any."""
    loaded: Any = _MISSING
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname.startswith("LOAD_GLOBAL"):
            value = function.__globals__.get(name, _MISSING)
        elif instruction.opname.startswith("LOAD_DEREF"):
            value = _of_cell(function, name)
        elif instruction.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) and loaded is not _MISSING:
            yield loaded, name
            is_module = isinstance(loaded, ModuleType)
            value = vars(loaded).get(name, _MISSING) if is_module else _MISSING
        else:
            value = _MISSING
        if value is not _MISSING:
            yield value, ""
        loaded = value
    for inner in code.co_consts:
        if isinstance(inner, CodeType):  # a comprehension, or a function in the function
            yield from _named_values(function, inner)


def _of_cell(function: FunctionType, name: str) -> Any:
    cells: tuple[CellType, ...] = function.__closure__ or ()
    for known, cell in zip(function.__code__.co_freevars, cells, strict=False):
        if known == name:
            try:
                return cell.cell_contents
            except ValueError:  # it has no value yet
                return _MISSING
    return _MISSING
