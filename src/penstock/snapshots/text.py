"""Values as text, for columns of SQL without a type of their own for the values.

A value has one text, whether it is made here, or by SQL when a column gets a wider type.
"""

import math
from collections.abc import Sequence
from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any, Final

import msgspec

from penstock.base.decimals import DECIMAL_PLACES, short_decimal
from penstock.base.json_keys import float_text, has_lost_floats, with_texts

_PLACES: Final = Decimal(1).scaleb(-DECIMAL_PLACES)
_NARROW: Final = Context(prec=38, traps=[Inexact, InvalidOperation])
_ROUNDING: Final = Context(prec=38, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation])
_MICROSECOND: Final = timedelta(microseconds=1)
_NESTED: Final = frozenset({list, tuple, dict})
_AS_IS: Final = frozenset({str, int, bool, bytes, type(None)})
_TEXT: Final = frozenset({str})

DEPTH_MAX: Final = 100
"""Levels of lists and dictionaries that are shown; many JSON readers refuse deeper values."""


def _named(value: object) -> str:
    """Return a value without a JSON form as text; None and tuples come here only as keys."""
    if value is None or isinstance(value, tuple):
        raise TypeError("JSON has no such keys")
    return str(value)


_encode_json: Final = msgspec.json.Encoder(enc_hook=_named).encode


class Unshowable(ValueError):
    """A value has no text; the message gives the reason."""


def json_text(value: Any) -> str:
    """Return a value as JSON, fast; NaN and the infinities are text, bytes are base64.

    Raises:
        RecursionError, Unshowable: It is nested too deeply.
    """
    try:
        encoded = _encode_json(value)
    except (TypeError, ValueError):  # a dictionary whose keys JSON does not know
        return exact_json(value)
    if has_lost_floats(encoded, value):
        encoded = _encode_json(with_texts(value))
    return encoded.decode()


def exact_json(value: Any) -> str:
    """Return a value as JSON that loses nothing of it.

    NaN and the infinities are text, and a dictionary of which a key is not text is a list of pairs.

    Raises:
        Unshowable: It is nested too deeply.
    """
    return _encode_json(value if type(value) in _AS_IS else _exact(value, 0)).decode()


def _exact(value: Any, depth: int) -> Any:
    """Return an equal value that JSON shows exactly; values that need no change are returned fast."""
    value_type = type(value)
    if value_type is float:
        return value if math.isfinite(value) else float_text(value)
    if value_type not in _NESTED:
        return value
    if depth == DEPTH_MAX:
        raise Unshowable(f"it is nested more than {DEPTH_MAX} levels deep")
    if value_type is not dict:
        return [item if type(item) in _AS_IS else _exact(item, depth + 1) for item in value]
    if set(map(type, value)) <= _TEXT:
        return {
            name: item if type(item) in _AS_IS else _exact(item, depth + 1)
            for name, item in value.items()
        }
    return [[_exact(name, depth + 1), _exact(item, depth + 1)] for name, item in value.items()]


def decimal_text(value: Decimal) -> str:
    """Return a decimal that fits DECIMAL(38,12) as `short_decimal`, and any other one with all its digits."""
    try:
        value.quantize(_PLACES, context=_NARROW)
    except DecimalException:
        return str(value)
    return short_decimal(value)


def rounded_decimals(values: Sequence[Decimal | None]) -> Sequence[Decimal | None]:
    """Return decimals with the places that SQL has; a larger one is returned as it is."""
    return [None if value is None else _rounded(value) for value in values]


def _rounded(value: Decimal) -> Decimal:
    try:
        return value.quantize(_PLACES, context=_ROUNDING)
    except DecimalException:
        return value


def duration_text(value: timedelta) -> str:
    """Return a duration as SQL writes an INTERVAL of hours: `-71:59:59.5`."""
    microseconds = abs(value) // _MICROSECOND
    seconds, fraction = divmod(microseconds, 1_000_000)
    hours, rest = divmod(seconds, 3_600)
    minus = "-" if value < timedelta() else ""
    decimals = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{minus}{hours:02}:{rest // 60:02}:{rest % 60:02}{decimals}"


def interval_text(months: int, days: int, nanoseconds: int) -> str:
    """Return an interval in ISO 8601, without the parts that are 0: `P3DT1H30M`, `PT-0.5S`."""
    minus = "-" if nanoseconds < 0 else ""
    seconds, fraction = divmod(abs(nanoseconds), 1_000_000_000)
    hours, rest = divmod(seconds, 3_600)
    decimals = f".{fraction:09}".rstrip("0") if fraction else ""
    second = f"{rest % 60}{decimals}"
    units = ((hours, f"{hours}H"), (rest // 60, f"{rest // 60}M"), (second != "0", f"{second}S"))
    clock = "".join(f"{minus}{text}" for size, text in units if size)
    calendar = (f"{months}M" if months else "") + (f"{days}D" if days else "")
    if not clock:
        return f"P{calendar}" if calendar else "PT0S"
    return f"P{calendar}T{clock}"
