"""Failures: the record of a transaction that was undone.

The text of a failure is part of the reply, so it contains nothing that differs between two runs. The
exception is user code: its class, attributes and methods may give wrong answers, raise, or never
return. So its class is read without its metaclass, and its text is read once, inside a `try`.
"""

import re
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final

from penstock.base.ids import EntityKey
from penstock.base.near_names import did_you_mean
from penstock.errors import (
    BY_CODE,
    Cancelled,
    Internal,
    LimitExceeded,
    MigrationFailed,
    ReadonlyViolation,
    RequestError,
    Unencodable,
    Unhandled,
    UserError,
)
from penstock.model.entity_type import EntityType
from penstock.model.personal import PersonalType
from penstock.model.request import Failure
from penstock.model.time_limit import Interrupted

DECIDED: Final = frozenset({LimitExceeded.code, Internal.code})
"""Codes of outcomes that depend on a clock, a memory limit or a dead process. Such an outcome is
recorded once, and every later run of the request uses the record."""

REPEATABLE: Final = frozenset(
    error.code
    for error in (
        Unhandled,
        Internal,
        LimitExceeded,
        MigrationFailed,
        ReadonlyViolation,
        RequestError,
        Unencodable,
    )
)
"""Codes of failures that other code, or a larger limit, may remedy: no application has declared them as its answer."""

_ADDRESS: Final = re.compile(r"0x[0-9a-f]{6,}")
_ADVICE: Final = (
    (
        re.compile("'type' object is not iterable"),
        "; a class is no list of its entities: a handler finds them by an index, index(…) in the class, and the SQL view has all of them",
    ),
    (
        re.compile(
            r"type object '\w+' has no attribute '(all|filter|find|get|list|objects|query|search|where)'"
        ),
        "; Item(key) refers to one entity, and an index, index(…) in the class, finds several",
    ),
    (
        re.compile("'OpenStream' object has no attribute '(append|emit|publish|send)'"),
        "; a handler writes emit(stream, event)",
    ),
)
"""The remedies of mistakes with entity classes that only Python notices, by its whole text."""
_LACKS: Final = re.compile(r"(?:'\w+' object|type object '\w+') has no attribute '(\w+)'")
_LENGTH_MAX: Final = 2_000
_NAME_MAX: Final = 200
_CODE: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
_name_of: Final = type.__dict__["__name__"].__get__
_bases_of: Final = type.__dict__["__mro__"].__get__
_namespace_of: Final = type.__dict__["__dict__"].__get__
_object_of: Final = vars(AttributeError)["obj"].__get__


class Escape(BaseException):
    """The transaction touched an entity that cannot be read here; `key` names it."""

    def __init__(self, key: EntityKey) -> None:
        self.key = key
        super().__init__(key)


def failure_of(raised: BaseException, memory_bytes: int, depth: int) -> Failure:
    """Return the failure to record for an exception that left a handler.

    Args:
        raised: The exception, which is not trusted.
        memory_bytes: The limit that a `MemoryError` exceeded.
        depth: The limit that a `RecursionError` exceeded.

    Returns:
        The failure, with a valid code, name and text for every exception.
    """
    error_type = type(raised)  # not `isinstance`, which asks the object for its `__class__`
    if issubclass(error_type, Interrupted):
        return exceeded(_text_of(raised))
    if issubclass(error_type, MemoryError):
        return exceeded(f"allocated more than memory_bytes = {memory_bytes}")
    if issubclass(error_type, RecursionError):
        return exceeded(f"recursed deeper than depth = {depth}")
    try:
        code = code_of(error_type)
    except BaseException:  # noqa: BLE001 -- a class whose very dictionary is hostile
        return Failure(Unhandled.code, BaseException.__name__, _text_of(raised))
    return Failure(code, error_name(raised), _text_of(raised))


def error_name(raised: BaseException) -> str:
    """Return the name of the class of an exception, which is not trusted."""
    return _clean(_name_of(type(raised)), _NAME_MAX)


def exceeded(why: str) -> Failure:
    """Return the failure of a transaction that exceeded a limit."""
    return Failure(LimitExceeded.code, LimitExceeded.__name__, why)


def internal(incident: str) -> Failure:
    """Return the failure of a request that failed its epoch; the log file has the incident."""
    why = f"the request could not be processed; the driver's log tells why: incident {incident}"
    return Failure(Internal.code, Internal.__name__, why)


def cancelled() -> Failure:
    """Return the failure of a scheduled request that was cancelled before it was due."""
    why = "the request was cancelled before it was due; it never runs"
    return Failure(Cancelled.code, Cancelled.__name__, why)


def close_all(coroutines: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """End suspended handlers; their `finally` blocks are user code, and may raise anything."""
    for coroutine in coroutines:
        with suppress(BaseException):  # the step fails already, for another reason
            coroutine.close()


def code_of(error_type: type[BaseException]) -> str:
    """Return the code of the nearest class that has a code which handlers may use.

    A handler may not use the codes of `OperationalError` and `IntegrityError`, because they report
    that the environment failed or that data are damaged, nor those of `Internal` and `Cancelled`,
    which Penstock gives to requests whose handlers did not end. Without such a class the application has not declared
    the exception.
    """
    for base in _bases_of(error_type):
        if any(base is own for own in BY_CODE.values()):
            own_word = issubclass(base, UserError) and base not in (Internal, Cancelled)
            return base.code if own_word else Unhandled.code
        code = _namespace_of(base).get("code")
        if type(code) is str and _CODE.fullmatch(code) is not None and code not in BY_CODE:
            return code if issubclass(error_type, UserError) else Unhandled.code
    return Unhandled.code


def _text_of(raised: BaseException) -> str:
    if issubclass(type(raised), SystemExit | GeneratorExit | KeyboardInterrupt):
        name = _clean(_name_of(type(raised)), _NAME_MAX)
        return f"the handler raised {name}, which stops nothing here"
    try:
        text = str(raised)
    except BaseException as error:  # noqa: BLE001 -- a `__str__` of user code
        text = f"(its text raised {_clean(_name_of(type(error)), _NAME_MAX)})"
    cut = str.__getitem__(text, slice(4 * _LENGTH_MAX))  # an address that is cut in two goes, too
    advice = next((advice for known, advice in _ADVICE if known.fullmatch(cut)), "")
    cut += advice or _near(raised, cut)
    return _clean(_ADDRESS.sub("0x…", _clean(cut, 4 * _LENGTH_MAX)), _LENGTH_MAX)


def _near(raised: BaseException, text: str) -> str:
    """Return the names of an entity, or of its class, that are similar to a name that it lacks; empty if there are none."""
    message = _LACKS.fullmatch(text) if issubclass(type(raised), AttributeError) else None
    if message is None:
        return ""
    lacking, owner = message[1], _object_of(raised)
    cls = owner if issubclass(type(owner), type) else type(owner)
    try:
        names = _names_of(cls, is_class=owner is cls)
        # A handler may have deleted an attribute.
        return did_you_mean(lacking, [name for name in names if name != lacking])
    except Exception:  # noqa: BLE001 -- the handler has reached into the description of its class
        return ""


def _names_of(cls: type, *, is_class: bool) -> list[str]:
    """Return the names that an entity, or its class, has; none for another class. No code of the class runs."""
    names: list[str] = []
    described: Any = None
    for base in _bases_of(cls)[:-1]:  # without `object`
        # A key may be any object, so it is compared with nothing before its type is known.
        for name, value in _namespace_of(base).items():
            if type(name) is not str:
                continue
            if name[:2] != "__":
                names.append(name)
            elif name == "__reference__" and described is None:
                described = value
    if type(described) is not EntityType and type(described) is not PersonalType:
        return []
    return names if is_class else [*names, described.key_name, *described.attributes]


def _clean(text: str, length: int) -> str:
    """Return at most `length` characters of a text as a plain `str` that can be encoded."""
    return str.encode(str.__getitem__(text, slice(length)), "utf-8", "replace").decode()
