"""Exceptions that a handler may raise: those that are rarely caught, and those that lie.

Each entry of `ERRORS` makes one exception. Looking at it may raise: its text, its name, its code,
its class and its traceback are user code.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from penstock.base.ids import EntityKey
from penstock.engine.failure import Escape
from penstock.errors import Aborted, Corrupt, Fenced, LimitExceeded, StateUnavailable, Truncated
from penstock.model.time_limit import Interrupted

LONG: Final = 1_000_000


class Refused(Exception):
    """The exception that user code raises when its objects are inspected."""


def refuse(*_: Any, **__: Any) -> Any:
    raise Refused("nobody may look")


def refuse_for_good(*_: Any, **__: Any) -> Any:
    raise asyncio.CancelledError("nobody may look")


def lying(base: type[BaseException] = Exception, **members: Any) -> Callable[[], BaseException]:
    """Return a maker of exceptions whose class has these members."""

    def make() -> BaseException:
        made: BaseException = type("Liar", (base,), members)("a lie")
        return made

    return make


def coded(code: object) -> Callable[[], BaseException]:
    """Return a maker of exceptions of an `Aborted` subclass with this code."""
    return lying(Aborted, code=code)


def named(**members: Any) -> Callable[[], BaseException]:
    """Return a maker of exceptions whose class is made by a metaclass with these members."""

    def make() -> BaseException:
        metaclass = type("Meta", (type,), members)
        made: BaseException = metaclass("Liar", (Exception,), {})("a lie")
        return made

    return make


class Text(str):
    """A text whose methods lie."""

    __slots__ = ()
    encode = refuse
    __add__ = refuse
    __getitem__ = refuse
    __len__ = refuse
    __format__ = refuse


def chained_in_a_cycle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    first.__context__, second.__context__ = second, first
    return first


def raised_deep_inside(depth: int = 300) -> BaseException:
    """Return an exception with a long traceback."""
    try:
        if depth:
            raised_deep_inside(depth - 1)
            raise_deeply(depth)
    except ValueError as error:
        return error
    return ValueError("at the bottom")


def raise_deeply(depth: int) -> None:
    if not depth:
        raise ValueError("at the bottom")
    raise_deeply(depth - 1)


def with_notes() -> BaseException:
    made = ValueError("noted")
    made.__notes__ = [object(), Text("lie"), "\ud800"]  # type: ignore[list-item]
    return made


def with_other_arguments() -> BaseException:
    made = KeyError("one")
    made.args = (object(), made, "\ud800")
    return made


def nested_groups() -> BaseException:
    group: BaseException = KeyboardInterrupt("innermost")
    for _ in range(200):
        group = BaseExceptionGroup("outer", [group])
    return group


ERRORS: Final[dict[str, Callable[[], BaseException]]] = {
    "plain": lambda: KeyError("a plain failure"),
    "silent": ValueError,
    "base": lambda: BaseException("of no kind"),
    "cancelled": lambda: asyncio.CancelledError("of no task"),
    "interrupt": lambda: KeyboardInterrupt("nobody pressed it"),
    "exit": lambda: SystemExit(3),
    "exit text": lambda: SystemExit("\ud800"),
    "generator exit": GeneratorExit,
    "stop": lambda: StopIteration("nothing more"),
    "async stop": StopAsyncIteration,
    "group": lambda: ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
    "base group": lambda: BaseExceptionGroup("several", [KeyboardInterrupt(), SystemExit(1)]),
    "nested groups": nested_groups,
    "memory": MemoryError,
    "recursion": RecursionError,
    "os": lambda: OSError(5, "Input/output error"),
    "warning": lambda: ResourceWarning("a warning"),
    "timeout": TimeoutError,
    # Those of the engine.
    "escape": lambda: Escape(EntityKey("Account/a0")),
    "escape nowhere": lambda: Escape(EntityKey("\ud800")),
    "interrupted": lambda: Interrupted("by itself"),
    "limit": lambda: LimitExceeded("by itself"),
    "corrupt": lambda: Corrupt("says who?"),
    "unavailable": lambda: StateUnavailable("says who?"),
    "fenced": lambda: Fenced("says who?"),
    "truncated": lambda: Truncated("says who?"),
    # Codes.
    "code number": coded(409),
    "code none": coded(None),
    "code empty": coded(""),
    "code bytes": coded(b"aborted"),
    "code long": coded("x" * LONG),
    "code surrogate": coded("\ud800"),
    "code zero": coded("a\0b"),
    "code lines": coded("a\nb"),
    "code text": coded(Text("aborted")),
    "code refused": coded(property(refuse)),
    "code cancelled": coded(property(refuse_for_good)),
    "code list": coded([]),
    "code internal": coded("internal"),
    "code limit": coded("limit-exceeded"),
    "code corrupt": coded("corrupt"),
    "kind number": lying(Aborted, kind=7),
    # Texts.
    "text refused": lying(__str__=refuse),
    "text cancelled": lying(__str__=refuse_for_good),
    "text number": lying(__str__=lambda _: 7),
    "text lying": lying(__str__=lambda _: Text("a lie")),
    "text long": lambda: ValueError("x" * LONG),
    "text surrogate": lambda: ValueError("\ud800 and \udfff"),
    "text zero": lambda: ValueError("a\0b"),
    "text address": lambda: ValueError(str(object())),
    "argument refused": lambda: ValueError(lying(__repr__=refuse)()),
    "arguments replaced": with_other_arguments,
    "notes": with_notes,
    # Classes.
    "name number": named(__name__=property(lambda _: 7)),
    "name refused": named(__name__=property(refuse)),
    "name cancelled": named(__name__=property(refuse_for_good)),
    "name surrogate": named(__name__=property(lambda _: "\ud800")),
    "name long": named(__name__=property(lambda _: "x" * LONG)),
    "name text": named(__name__=property(lambda _: Text("Liar"))),
    "module refused": named(__module__=property(refuse)),
    "metaclass refuses": named(
        __instancecheck__=refuse,
        __subclasscheck__=refuse,
        __eq__=refuse,
        __hash__=refuse,
        __bool__=refuse,
        __getattribute__=refuse,
    ),
    "class refused": lying(__class__=property(refuse)),
    "class cancelled": lying(__class__=property(refuse_for_good)),
    "class interrupted": lying(__class__=property(lambda _: Interrupted)),
    "class escape": lying(__class__=property(lambda _: Escape)),
    "class aborted": lying(__class__=property(lambda _: Aborted)),
    "attributes refused": lying(__getattribute__=refuse),
    "attributes cancelled": lying(BaseException, __getattribute__=refuse_for_good),
    "comparison refused": lying(__eq__=refuse, __hash__=refuse, __bool__=refuse, __len__=refuse),
    "pickle refused": lying(__reduce__=refuse, __reduce_ex__=refuse, __copy__=refuse),
    # Chains and traces.
    "cycle": chained_in_a_cycle,
    "trace refused": lying(__traceback__=property(refuse), __cause__=property(refuse)),
    "context refused": lying(__context__=property(refuse), with_traceback=refuse),
    "trace long": raised_deep_inside,
    # A class that cannot even be raised.
    "made by refusal": lambda: lying(__init__=refuse)(),
    "made of nothing": lambda: lying(__new__=lambda *_: 7)(),
    "no exception": lambda: 7,  # type: ignore[dict-item,return-value]
}
"""Makers of exceptions by name."""
