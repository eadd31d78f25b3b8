"""Unstorable types: the alternatives that messages name for types that cannot be stored."""

import typing
from typing import Any, Final

_ALTERNATIVES: Final = {
    "collections.Sequence": "list",
    "collections.MutableSequence": "list",
    "collections.Iterable": "list",
    "collections.Collection": "list",
    "collections.Iterator": "list",
    "collections.Generator": "list",
    "collections.Set": "set",
    "collections.MutableSet": "set",
    "collections.Mapping": "dict",
    "collections.MutableMapping": "dict",
    "collections.defaultdict": "dict",
    "collections.OrderedDict": "dict",
    "collections.Counter": "dict",
    "collections.ChainMap": "dict",
    "collections.Callable": "an Enum that names the function",
    "builtins.bytearray": "bytes",
    "builtins.memoryview": "bytes",
    "builtins.complex": "tuple[float, float]",
    "builtins.range": "tuple[int, int, int]",
    "builtins.object": "Any",
    "fractions.Fraction": "tuple[int, int]",
    "pathlib.Path": "str",
    "pathlib.PurePath": "str",
    "re.Pattern": "str",
    "zoneinfo.ZoneInfo": "str",
    "ipaddress.IPv4Address": "str",
    "ipaddress.IPv6Address": "str",
}
"""By the name of the package and of the class: to import all of these modules would take time."""

_PLAIN: Final = (str, int, float, bytes, list, dict, set)


def alternative_to(annotation: Any) -> str:
    """Return the end of a message, `; use …`, for a type that cannot be stored."""
    if annotation is typing.Self:
        return "; write the name of the class in place of Self"
    cls = typing.get_origin(annotation) or annotation
    if not isinstance(cls, type):
        return ""
    known = _ALTERNATIVES.get(f"{cls.__module__.partition('.')[0]}.{cls.__name__}")
    if known is not None:
        return f"; use {known}"
    plain = next((base for base in _PLAIN if issubclass(cls, base)), None)
    if plain is not None:
        return f"; use {plain.__name__}, or a NewType of it"
    return "; make it a dataclass, or derive it from Entity"
