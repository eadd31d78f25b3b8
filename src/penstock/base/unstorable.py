"""Unstorable types: the alternatives that messages name for types that cannot be stored."""

import dataclasses
import sys
import typing
from collections.abc import Hashable
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
    "datetime.tzinfo": "str, the name of the zone",
    "datetime.timezone": "str, the name of the zone",
    "builtins.type": "an Enum that names the class",
    "msgspec.UnsetType": "None",
    "msgspec.Raw": "bytes",
    "pydantic.EmailStr": "str",
    "pydantic.NameEmail": "str",
    "pydantic.SecretStr": "str",
    "pydantic.SecretBytes": "bytes",
    "pydantic.HttpUrl": "str",
    "pydantic.AnyUrl": "str",
}
"""By the name of the package and of the class: to import all of these modules would take time."""

_SPECIAL: Final = {
    typing.LiteralString: "str",
    typing.NamedTuple: "a class that derives from NamedTuple",
    typing.TypedDict: "a class that derives from TypedDict",
    typing.Never: "None",
    typing.NoReturn: "None",
    typing.Final: "the type inside of the brackets",
    dataclasses.InitVar: "the type inside of the brackets",
    typing.Unpack: "tuple",
}
_PLAIN: Final = (str, int, float, bytes, list, dict, set)


def alternative_to(annotation: Any) -> str:
    """Return the end of a message, `; use …`, for a type that cannot be stored."""
    if annotation is typing.Self:
        return "; write the name of the class in place of Self"
    cls = typing.get_origin(annotation) or annotation
    special = dataclasses.InitVar if isinstance(cls, dataclasses.InitVar) else cls
    known = _SPECIAL.get(special) if isinstance(special, Hashable) else None
    if known is None and isinstance(cls, type):
        return f"; {_alternative_to_class(cls)}"
    return f"; use {known or 'a class'}"


def _alternative_to_class(cls: type) -> str:
    package = cls.__module__.partition(".")[0]
    known = _ALTERNATIVES.get(f"{package}.{cls.__name__}")
    if known is not None:
        return f"use {known}"
    plain = next((base for base in _PLAIN if issubclass(cls, base)), None)
    if plain is not None:
        return f"use {plain.__name__}, or a NewType of it"
    if package in sys.stdlib_module_names:
        return "use a dataclass of the values that make it"
    return "make it a dataclass, or derive it from Entity"
