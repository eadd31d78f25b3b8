"""`@transactional` and `@readonly`: decorators for the methods and functions that requests call."""

import functools
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final, TypeVar, cast

from penstock.model.savepoint import Unchanged

_LATER: Final = frozenset({GeneratorType, CoroutineType, AsyncGeneratorType})
"""The types of results whose code has not run yet."""

F = TypeVar("F", bound=Callable[..., Any])


def transactional(function: F) -> F:
    """Mark a method or a function as a transaction.

    Every request is a transaction, so the mark on a method only documents it. A function needs the
    mark: it makes the function a member of an `App`.
    """
    function.__transactional__ = True  # type: ignore[attr-defined]
    return function


def readonly(function: F) -> F:
    """Declare that a method or function changes no entity; a change aborts the transaction.

    The function must not return a generator, because the generator would run after the check.
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
