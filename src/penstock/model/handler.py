"""`@transactional` and `@readonly`: the decorators of methods and functions that requests call."""

import functools
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final, TypeVar, cast

from penstock.model.savepoint import Unchanged

_LATER: Final = frozenset({GeneratorType, CoroutineType, AsyncGeneratorType})
"""Types of results whose bodies have not run yet."""

F = TypeVar("F", bound=Callable[..., Any])


def transactional(function: F) -> F:
    """Say that a method, or a function without state, is a transaction.

    Every request is one; on a method this documents intent, on a function it makes a service.
    """
    function.__transactional__ = True  # type: ignore[attr-defined]
    return function


def readonly(function: F) -> F:
    """Promise that a method or function changes nothing; it aborts with an error when it does.

    It returns no generator, whose body would run when nobody looks any more.
    """

    @functools.wraps(function)
    def guarded(*arguments: Any, **named: Any) -> Any:
        with Unchanged(function.__qualname__) as block:
            result = function(*arguments, **named)
            if type(result) in _LATER:
                raise block.refused("returns a generator, which runs later; return a list")
            return result

    guarded.__readonly__ = True  # type: ignore[attr-defined]
    return cast(F, guarded)
