"""Reads values that JSON has as texts, as `json_keys` writes them: floats that are no numbers, and keys that are no texts."""

import typing
from contextlib import suppress
from itertools import repeat
from typing import Any, Final

import msgspec

from penstock.base.annotations import UNIONS
from penstock.base.record import RecordKind, fields_of, is_record, kind_of
from penstock.base.schema import decode_reference, reference_type

FLOATS: Final = {text: float(text) for text in ("NaN", "Infinity", "-Infinity")}
"""The values, by their texts."""

_MARKS: Final = (b"NaN", b"Infinity", b'"[', b'"true"', b'"false"', b'"null"')


def decode_json(text: str | bytes | msgspec.Raw, annotation: Any) -> Any:
    """Return the value of a JSON text.

    The texts of NaN and the infinities are floats where the type has a float. The key of a dictionary may be its own
    JSON in a text: that of a tuple begins with a bracket.

    To decode the value may run code of the application, as `base.class_code` says.
    """
    try:
        return msgspec.json.decode(text, type=annotation, dec_hook=decode_reference)
    except msgspec.ValidationError:
        given = text.encode() if isinstance(text, str) else bytes(text)
        if not any(mark in given for mark in _MARKS):
            raise
        floats = _with_floats(annotation, msgspec.json.decode(text))
        with suppress(msgspec.ValidationError, TypeError):
            return _converted(floats, annotation)
        raise


def _converted(value: Any, annotation: Any) -> Any:
    return msgspec.convert(value, annotation, dec_hook=_with_references, str_keys=True)


def _with_references(annotation: Any, value: object) -> object:
    """Return a value as `decode_reference`; the references of `_of_dict` are values already."""
    reference = reference_type(type(value))
    if reference is not None and reference is reference_type(annotation):
        return value
    return decode_reference(annotation, value)


def _with_floats(annotation: Any, value: Any) -> Any:
    """Return decoded JSON in which texts are floats where a type has floats and the text fits no other type."""
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if isinstance(value, str):
        return FLOATS.get(value, value) if _is_float(annotation, value) else value
    if not isinstance(value, list | dict):
        return value
    if is_record(annotation):
        return _of_record(annotation, value)
    return _of_parts(typing.get_origin(annotation), typing.get_args(annotation), value)


def _of_parts(origin: Any, inside: tuple[Any, ...], value: Any) -> Any:
    """Return the floats of a value whose type has arguments in brackets."""
    if origin in UNIONS:
        return _of_union(inside, value)
    if origin is dict and isinstance(value, dict):
        return _of_dict(inside, value)
    if isinstance(value, dict) or not inside:
        return value
    hints = inside if origin is tuple and Ellipsis not in inside else repeat(inside[0], len(value))
    return _of_row(list(hints), value)


def _is_float(annotation: Any, text: str) -> bool:
    """Say whether a text stands for a float; in a union with a type that the text fits, it is of that type."""
    if typing.get_origin(annotation) not in UNIONS:
        return annotation is float
    if float not in typing.get_args(annotation):
        return False
    try:
        _converted(text, annotation)
    except msgspec.ValidationError:
        return True
    return False


def _of_record(annotation: Any, value: Any) -> Any:
    fields = fields_of(annotation)
    if kind_of(annotation) is RecordKind.NAMED_TUPLE:
        return _of_row([hint for _, hint in fields], value) if isinstance(value, list) else value
    if not isinstance(value, dict):
        return value
    hints = {member.wire: hint for member, hint in fields}
    return {
        name: _with_floats(hints[name], item) if name in hints else item
        for name, item in value.items()
    }


def _of_row(hints: typing.Sequence[Any], value: Any) -> Any:
    if not isinstance(value, list) or len(value) > len(hints):
        return value
    return [_with_floats(hint, item) for hint, item in zip(hints, value, strict=False)]


def _of_dict(inside: tuple[Any, ...], value: dict[str, Any]) -> dict[Any, Any]:
    hint_of_key, hint = inside
    names: Any = value
    if reference_type(hint_of_key) is not None:  # a conversion leaves such keys as they are
        text = msgspec.json.encode(dict.fromkeys(value))
        names = msgspec.json.decode(text, type=_names_of(hint_of_key), dec_hook=decode_reference)
    elif _is_no_text(hint_of_key):
        names = [_key_in(name, hint_of_key) for name in value]
    return {
        name: _with_floats(hint, item) for name, item in zip(names, value.values(), strict=True)
    }


def _is_no_text(hint_of_key: Any) -> bool:
    """Say whether keys of a type are in a text as their own JSON: tuples, booleans and None."""
    origin, inside = typing.get_origin(hint_of_key), typing.get_args(hint_of_key)
    if origin in UNIONS:
        return str not in inside and any(map(_is_no_text, inside))
    is_row = tuple in (hint_of_key, origin) or kind_of(hint_of_key) is RecordKind.NAMED_TUPLE
    return is_row or hint_of_key in (bool, type(None))


def _key_in(text: str, hint_of_key: Any) -> Any:
    """Return the key whose JSON is in a text; any other text as it is, so that a conversion judges it."""
    try:
        return decode_json(text, hint_of_key)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return text


def _names_of(hint_of_key: Any) -> Any:
    return dict.__class_getitem__((hint_of_key, None))


def _of_union(members: tuple[Any, ...], value: Any) -> Any:
    """Return the first form that fits a member of a union."""
    for member in members:
        if not _has_tag_of(member, value):
            continue
        floats = _with_floats(member, value)
        try:
            _converted(floats, member)
        except (msgspec.ValidationError, TypeError):
            continue
        return floats
    return value


def _has_tag_of(member: Any, value: Any) -> bool:
    """Say whether a value can be of a member of a union; a tag tells the classes of Structs.

    Two members whose parts were both tried at each level would take a time that doubles with each level.
    """
    config = getattr(typing.get_origin(member) or member, "__struct_config__", None)
    if config is None or config.tag_field is None or not isinstance(value, dict):
        return True
    return bool(value.get(config.tag_field) == config.tag)
