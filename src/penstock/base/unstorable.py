"""Unstorable types: the alternatives that messages name for types that cannot be stored."""

import collections
import collections.abc
import fractions
import ipaddress
import pathlib
import re
import typing
import zoneinfo
from typing import Any, Final

_ALTERNATIVES: Final[dict[Any, str]] = {
    collections.abc.Sequence: "list",
    collections.abc.MutableSequence: "list",
    collections.abc.Iterable: "list",
    collections.abc.Collection: "list",
    collections.abc.Iterator: "list",
    collections.abc.Generator: "list",
    collections.abc.Set: "set",
    collections.abc.MutableSet: "set",
    collections.abc.Mapping: "dict",
    collections.abc.MutableMapping: "dict",
    collections.defaultdict: "dict",
    collections.OrderedDict: "dict",
    collections.Counter: "dict",
    collections.ChainMap: "dict",
    bytearray: "bytes",
    memoryview: "bytes",
    complex: "tuple[float, float]",
    fractions.Fraction: "tuple[int, int]",
    range: "tuple[int, int, int]",
    object: "Any",
    pathlib.Path: "str",
    pathlib.PurePath: "str",
    re.Pattern: "str",
    zoneinfo.ZoneInfo: "str",
    ipaddress.IPv4Address: "str",
    ipaddress.IPv6Address: "str",
    collections.abc.Callable: "an Enum that names the function",
    typing.Protocol: "the class itself",
}


def alternative_to(annotation: Any) -> str:
    """Return the end of a message, `; use …`, for a type that cannot be stored."""
    cls = typing.get_origin(annotation) or annotation
    if annotation is typing.Self:
        return "; write the name of the class in place of Self"
    known = _ALTERNATIVES.get(cls)
    if known is not None:
        return f"; use {known}"
    if isinstance(cls, type) and issubclass(cls, str | int | float | bytes | list | dict | set):
        plain = next(one for one in cls.__mro__ if one.__module__ == "builtins")
        return f"; use {plain.__name__}, or a NewType of it"
    if isinstance(cls, type):
        return "; make it a dataclass, or derive it from Entity"
    return ""
