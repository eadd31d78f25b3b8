"""`@transactional`, `@readonly` and `@internal`: decorators for the methods and functions that requests call."""

import functools
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType
from typing import Any, Final, TypeVar, cast

from penstock.errors import DefinitionError
from penstock.model.declaration import caller_place
from penstock.model.savepoint import Unchanged

_LATER: Final = frozenset({GeneratorType, CoroutineType, AsyncGeneratorType})
"""The types of results whose code has not run yet."""

_FOR_REQUESTS: Final = {"__routes__": "@route", "__limits__": "@limit", "__internal__": "@internal"}
"""The marks that only a request obeys."""

MARKS: Final = {
    **_FOR_REQUESTS,
    "__readonly__": "@readonly",
    "__transactional__": "@transactional",
    "__migration__": "@migrate",
}
"""The decorators of methods and functions that requests call, by their marks."""

_ELSEWHERE: Final = {
    "__schedule__": "is marked @every or @cron; write it as a function outside of the class, and name it in the App",
    "__migration__": "is marked @migrate; write it as a function outside of the class, and name it in the App",
    "__portal__": "replies to a portal, which only the task of a workflow does; name it in a class for .task(…)",
}
"""The marks that a member of an entity class cannot have, with the complaint."""

F = TypeVar("F", bound=Callable[..., Any])


def check_marked(thing: object, mark: str, where: str) -> None:
    """Refuse a mark where it would have no effect: on a class, a property and the like.

    Args:
        mark: The decorator, in the message: `@readonly`.
        where: `file:line` of the decorator.
    """
    if isinstance(thing, FunctionType):
        return
    if isinstance(thing, property | classmethod | staticmethod | functools.cached_property):
        what = f"a {type(thing).__name__}"
    else:
        what = f"the class {thing.__name__}" if isinstance(thing, type) else repr(thing)
    raise DefinitionError([f"{where}: {mark} marks a method or a function, and not {what}"])


def function_in(member: Any) -> FunctionType | None:
    """Return the function of a member of a class: of a method, a property and the like; None for other members."""
    if isinstance(member, FunctionType):
        return member
    inner = (getattr(member, name, None) for name in ("fget", "func", "__func__", "__wrapped__"))
    return next((function for function in inner if isinstance(function, FunctionType)), None)


def misplaced_mark(member: Any, *, is_handler: bool) -> str:
    """Say that a member of an entity class has a mark that it cannot obey; empty without one.

    Args:
        is_handler: Whether requests can call it if it is a function.
    """
    function = function_in(member)
    wrong = [mark for mark in (*_ELSEWHERE, *_FOR_REQUESTS) if hasattr(function, mark)]
    if not wrong or (wrong[0] in _FOR_REQUESTS and is_handler and isinstance(member, FunctionType)):
        return ""
    if wrong[0] in _ELSEWHERE:
        return _ELSEWHERE[wrong[0]]
    word = _FOR_REQUESTS[wrong[0]]
    if isinstance(member, property):
        return f"is a property, and {word} is for requests; write a method"
    return f"is marked {word} and serves no request; let its name begin without _"


def transactional(function: F) -> F:
    """Mark a method or a function as a transaction.

    Every request is a transaction, so the mark on a method only documents it. A function needs the
    mark: it makes the function a member of an `App`.

    Raises:
        DefinitionError: The marked object is neither a method nor a function.
    """
    check_marked(function, "@transactional", caller_place())
    function.__transactional__ = True  # type: ignore[attr-defined]
    return function


def readonly(function: F) -> F:
    """Declare that a method or function changes no entity; a change aborts the transaction.

    The function must not return a generator, because the generator would run after the check.

    Raises:
        DefinitionError: The marked object is neither a method nor a function.
    """
    check_marked(function, "@readonly", caller_place())

    @functools.wraps(function)
    def guarded(*arguments: Any, **named: Any) -> Any:
        with Unchanged(function.__qualname__) as block:
            result = function(*arguments, **named)
            if type(result) in _LATER:
                raise block.refused("returns a generator, which runs later; return a list")
            return result

    guarded.__readonly__ = True  # type: ignore[attr-defined]
    return cast(F, guarded)


def internal(function: F) -> F:
    """Declare that no caller outside of the application reaches a method or function through a gateway.

    Handlers, workflows, `send` and `ask` call it as any other, and so does `penstock call` on the machine of the data
    directory. A gateway refuses it with `forbidden`, also for the scope `*`. `class Order(Entity, internal=…)` declares
    it of `create`, `upsert`, `delete` and `exists`, or of the whole class.

    Raises:
        DefinitionError: The marked object is neither a method nor a function.
    """
    check_marked(function, "@internal", caller_place())
    function.__internal__ = True  # type: ignore[attr-defined]
    return function
