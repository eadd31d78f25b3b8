"""Keys of dictionaries as text: JSON has no other keys, and Penstock stores keys that are tuples, numbers or null."""

from typing import Any, Final

import msgspec

_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def with_text_keys(value: Any) -> Any:
    """Return plain data, or a struct with such data, as data whose dictionaries have text as keys.

    A key that is not text becomes its own JSON: `("a", 1)` becomes `["a",1]`. This costs a walk through the whole
    value, so call it if an encoder has refused the value.
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
