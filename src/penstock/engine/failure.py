"""The record of a transaction that was undone: where user code ends, whatever it did.

A failure's text is part of the reply, so it holds nothing that differs between two runs. The
exception belongs to user code: its class, its attributes and its methods may lie, raise or never
return. So its class is read past its metaclass, and its text is taken once, inside a boundary.
"""

import re
from typing import Final

from penstock.base.ids import EntityKey
from penstock.errors import BY_CODE, Aborted, Internal, LimitExceeded, UserError
from penstock.model.request import Failure

DECIDED: Final = frozenset({LimitExceeded.code, Internal.code})
"""Codes of outcomes that a clock, a memory limit or a dead process decided, and not the request
alone. Such an outcome is recorded once; every later run of the request takes it from the record."""

_ADDRESS: Final = re.compile(r"0x[0-9a-f]{6,}")
_LENGTH_MAX: Final = 2_000
_NAME_MAX: Final = 200
_CODE: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
_name_of: Final = type.__dict__["__name__"].__get__
_bases_of: Final = type.__dict__["__mro__"].__get__
_namespace_of: Final = type.__dict__["__dict__"].__get__


class Escape(BaseException):
    """The transaction touched an entity that cannot be read here; carries which."""

    def __init__(self, key: EntityKey) -> None:
        self.key = key
        super().__init__(key)


class Interrupted(BaseException):
    """The transaction used more than it may; carries why."""


def failure_of(raised: BaseException, memory_bytes: int, depth: int) -> Failure:
    """Return what is recorded for what left a handler.

    Args:
        raised: The exception; nothing of it is trusted.
        memory_bytes: The limit that a `MemoryError` exceeded.
        depth: The limit that a `RecursionError` exceeded.

    Returns:
        The failure, of valid code, name and text, whatever the exception does when it is asked.
    """
    kind = type(raised)  # not `isinstance`, which asks the object for its `__class__`
    if issubclass(kind, Interrupted):
        return exceeded(_text_of(raised))
    if issubclass(kind, MemoryError):
        return exceeded(f"allocated more than memory_bytes = {memory_bytes}")
    if issubclass(kind, RecursionError):
        return exceeded(f"recursed deeper than depth = {depth}")
    try:
        code, name = _code_of(kind), _clean(_name_of(kind), _NAME_MAX)
    except BaseException:  # noqa: BLE001 -- a class whose very dictionary is hostile
        code, name = Aborted.code, BaseException.__name__
    return Failure(code, name, _text_of(raised))


def exceeded(why: str) -> Failure:
    """Return the failure of a transaction that used more than it may."""
    return Failure(LimitExceeded.code, LimitExceeded.__name__, why)


def internal(incident: str) -> Failure:
    """Return the failure of a request that stopped its epoch; the log file has the incident."""
    why = f"the request could not be processed; the driver's log tells why: incident {incident}"
    return Failure(Internal.code, Internal.__name__, why)


def _code_of(kind: type[BaseException]) -> str:
    """Return the code of the nearest class that names one, if a handler may bring it.

    A handler speaks for its request alone. The codes of `OperationalError` and `IntegrityError` say
    that the surroundings failed or that data are damaged, which is not for a handler to say.
    """
    for base in _bases_of(kind):
        if any(base is own for own in BY_CODE.values()):
            own_word = issubclass(base, UserError) and base is not Internal
            return base.code if own_word else Aborted.code
        code = _namespace_of(base).get("code")
        if type(code) is str and _CODE.fullmatch(code) is not None and code not in BY_CODE:
            return code if issubclass(kind, UserError) else Aborted.code
    return Aborted.code


def _text_of(raised: BaseException) -> str:
    if issubclass(type(raised), SystemExit | GeneratorExit | KeyboardInterrupt):
        name = _clean(_name_of(type(raised)), _NAME_MAX)
        return f"the handler raised {name}, which stops nothing here"
    try:
        text = str(raised)
    except BaseException as error:  # noqa: BLE001 -- a `__str__` of user code
        text = f"(its text raised {_clean(_name_of(type(error)), _NAME_MAX)})"
    cut = str.__getitem__(text, slice(4 * _LENGTH_MAX))  # an address that is cut in two goes, too
    return _clean(_ADDRESS.sub("0x…", _clean(cut, 4 * _LENGTH_MAX)), _LENGTH_MAX)


def _clean(text: str, length: int) -> str:
    """Return at most `length` characters of a text as a plain `str` that can be encoded."""
    return str.encode(str.__getitem__(text, slice(length)), "utf-8", "replace").decode()
