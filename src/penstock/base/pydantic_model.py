"""pydantic models: their decoding, and the reasons why a model cannot be stored.

The fields of a model are decoded as strictly as all other values. Then pydantic validates the model: its
constraints, its validators and its defaults apply. pydantic is optional: this module never imports it.
"""

import sys
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.base.class_caches import cached_by_class
from penstock.base.misfit import Misfit
from penstock.base.record import fields_of

_ERRORS_SHOWN: Final = 3
_OLDEST: Final = "2.11"


@cached_by_class
def wire_model(model: Any) -> Any:
    """Return the type of a stored model: a dictionary with the names and types of its fields."""
    fields = {
        member.name: typing.NotRequired[hint] if member.has_default else hint
        for member, hint in fields_of(model)
    }
    return typing.TypedDict(model.__name__, fields)  # type: ignore[operator]


def decode_model(model: Any, value: object, convert: Callable[[object, Any], Any]) -> Any:
    """Return a model with these fields, validated by pydantic.

    Args:
        value: The decoded map of the fields.
        convert: Converts a decoded value to a type.

    Raises:
        ValueError: A field does not fit its type, or pydantic refuses the model.
    """
    fields = convert(value, wire_model(model))
    try:
        return model.model_validate(fields, by_name=True, by_alias=False)
    except ValueError as error:
        raise ValueError(_text_of(error)) from error


def model_complaint(model: Any) -> str:
    """Return the reason why a model cannot be stored; empty if it can."""
    name = model.__qualname__
    if getattr(model, "__pydantic_root_model__", False):
        return f"{name} is a RootModel; use the type of its root, or a model with a field"
    if model.model_config.get("extra") == "allow":
        return f"{name} allows extra fields, which have no type; declare them, or use a dict"
    version = str(getattr(sys.modules.get("pydantic.version"), "VERSION", _OLDEST))
    if tuple(map(int, version.split(".")[:2])) < tuple(map(int, _OLDEST.split("."))):
        return f"{name} needs pydantic {_OLDEST} or newer"
    return ""


def _text_of(error: ValueError) -> str:
    """Return the mistakes that pydantic found, each with its place."""
    details: Any = getattr(error, "errors", None)
    if details is None:
        return str(error)
    mistakes = details(include_url=False, include_context=False, include_input=False)
    misfits = [Misfit(_path_of(each["loc"]), each["msg"]) for each in mistakes[:_ERRORS_SHOWN]]
    if len(mistakes) == 1:
        return misfits[0].inner_text()
    more = len(mistakes) - len(misfits)
    texts = [str(misfit).removeprefix(".") for misfit in misfits]
    return "; ".join([*texts, f"and {more} more"] if more > 0 else texts)


def _path_of(location: Sequence[str | int]) -> str:
    return "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in location)
