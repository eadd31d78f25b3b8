"""JSON of values that JSON lacks: keys of dictionaries that are no texts, and floats that are no numbers.

Penstock stores keys that are tuples, numbers or null; they become text. NaN and the infinities become the texts
`NaN`, `Infinity` and `-Infinity`; `json_floats` reads them.
"""

import math
from collections.abc import Callable
from typing import Any, Final

import msgspec

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
_ROWS: Final = (list, tuple)
_SCALARS: Final = frozenset({str, int, bool, bytes, type(None)})
_NULL: Final = b"null"
_INFINITE_KEY: Final = b'inf"'
"""Parts of JSON in which an encoder may have lost a float: it writes `null`, and `"inf"` or `"-inf"` for a key."""


def as_text(value: Any) -> str:
    """Return Python's text of a value that JSON lacks: a hook for an encoder whose values go through `json_bytes`.

    Raises:
        TypeError: It is a key, because JSON has such values; the encoder must not write Python's text of it.
    """
    if value is None or isinstance(value, bool | tuple | frozenset):
        raise TypeError
    return str(value)


def float_text(value: float) -> str:
    """Return the text of NaN or of an infinity."""
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


def json_bytes(encode: Callable[[Any], bytes], value: Any) -> bytes:
    """Return a value as JSON; only a value that the encoder refuses or writes wrongly gets texts first."""
    try:
        encoded = encode(value)
    except TypeError:  # a key is a tuple, a boolean or null
        return encode(with_texts(value))
    return encode(with_texts(value)) if has_lost_floats(encoded, value) else encoded


def has_lost_floats(encoded: bytes, value: Any) -> bool:
    """Say whether the JSON that an encoder has made of a value lacks a NaN or an infinity, in whose place it writes `null`."""
    return (_NULL in encoded or _INFINITE_KEY in encoded) and _has_strange_floats(value)


def _has_strange_floats(value: Any) -> bool:
    """Say whether a NaN or an infinity is inside; without recursion, because a value may be nested deeply."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, float):
            if not math.isfinite(item):
                return True
        elif isinstance(item, dict):
            left += item
            left += item.values()
        elif isinstance(item, _ROWS):
            left += item
        elif type(item) not in _SCALARS and isinstance(item, msgspec.Struct):
            left += [getattr(item, name) for name in item.__struct_fields__]
    return False


def with_texts(value: Any) -> Any:
    """Return plain data, or a struct with such data, as data with text for values that JSON lacks.

    A key that is not text becomes its own JSON: `("a", 1)` becomes `["a",1]`. This costs a walk through the whole
    value, which may be nested more deeply than Python can walk, so call it if an encoder has refused the value.
    """
    match value:
        case float():
            return value if math.isfinite(value) else float_text(value)
        case msgspec.Struct():
            fields = msgspec.structs.asdict(value).items()
            return {name: with_texts(x) for name, x in fields if x is not msgspec.UNSET}
        case dict():
            return {_text_of(key): with_texts(item) for key, item in value.items()}
        case list() | tuple():
            return [with_texts(item) for item in value]
        case _:
            return value


def _text_of(key: Any) -> str:
    return key if isinstance(key, str) else _encode(with_texts(key)).decode().strip('"')
