"""Types as text, as in source."""

import typing
from inspect import Parameter
from typing import Any, Final

_NAMES: Final[dict[Any, str]] = {
    Parameter.empty: "Any",
    Any: "Any",
    Ellipsis: "...",
    None: "None",
    type(None): "None",
}


def type_text(annotation: Any) -> str:
    """Return a type as in source, without modules."""
    if annotation in _NAMES:
        return _NAMES[annotation]
    if isinstance(annotation, str):
        return annotation
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    inner = [type_text(argument) for argument in arguments]
    if "Union" in getattr(origin, "__name__", str(origin)):
        return " | ".join(inner)
    name = getattr(origin or annotation, "__name__", str(annotation))
    return f"{name}[{', '.join(inner)}]" if inner else name
