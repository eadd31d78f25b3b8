"""Types as text, as in source."""

import typing
from collections.abc import Mapping
from inspect import Parameter
from typing import Any, Final

_NAMES: Final[tuple[tuple[Any, str], ...]] = (
    (Parameter.empty, "Any"),
    (Any, "Any"),
    (Ellipsis, "..."),
    (None, "None"),
    (type(None), "None"),
)
_NO_NAMES: Final[dict[type, str]] = {}


def type_text(annotation: Any, full_names: Mapping[type, str] = _NO_NAMES) -> str:
    """Return a type as in source, without modules, except for the classes that have full names."""
    for known, text in _NAMES:
        if (
            annotation is known
        ):  # the annotation of a private method is not checked, and may have no hash
            return text
    if isinstance(annotation, str):
        return annotation
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if isinstance(annotation, list):  # the parameters of a Callable
        arguments = tuple(annotation)
    inner = [type_text(argument, full_names) for argument in arguments]
    if "Union" in getattr(origin, "__name__", str(origin)):
        return " | ".join(inner)
    name = "" if isinstance(annotation, list) else _name_of(origin or annotation, full_names)
    return f"{name}[{', '.join(inner)}]" if inner or not name else name


def _name_of(cls: Any, full_names: Mapping[type, str]) -> str:
    full_name = full_names.get(cls) if isinstance(cls, type) else None
    return full_name or str(getattr(cls, "__name__", cls))
