"""Keys of dictionaries as text: JSON has no other keys, and Penstock stores keys that are tuples, numbers or null."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def as_text(value: Any) -> str:
    """Return Python's text of a value that JSON lacks: a hook for an encoder whose values go through `json_bytes`.

    Raises:
        TypeError: It is a key, because JSON has such values; the encoder must not write Python's text of it.
    """
    if value is None or isinstance(value, bool | tuple | frozenset):
        raise TypeError
    return str(value)


def json_bytes(encode: Callable[[Any], bytes], value: Any) -> bytes:
    """Return a value as JSON; only a value that the encoder refuses gets text as keys first."""
    try:
        return encode(value)
    except TypeError:  # a key is a tuple, a boolean or null
        return encode(with_text_keys(value))


def with_text_keys(value: Any) -> Any:
    """Return plain data, or a struct with such data, as data whose dictionaries have text as keys.

    A key that is not text becomes its own JSON: `("a", 1)` becomes `["a",1]`. This costs a walk through the whole
    value, which may be nested more deeply than Python can walk, so call it if an encoder has refused the value.
    """
    match value:
        case msgspec.Struct():
            fields = msgspec.structs.asdict(value).items()
            return {name: with_text_keys(x) for name, x in fields if x is not msgspec.UNSET}
        case dict():
            return {_text_of(key): with_text_keys(item) for key, item in value.items()}
        case list() | tuple():
            return [with_text_keys(item) for item in value]
        case _:
            return value


def _text_of(key: Any) -> str:
    return key if isinstance(key, str) else _encode(key).decode().strip('"')
