"""Decimals in SQL: their decimal places, and their text."""

from decimal import Decimal
from typing import Final

DECIMAL_PLACES: Final = 12
"""The decimal places of every attribute that is a `Decimal`, in SQL."""


def short_decimal(value: Decimal) -> str:
    """Return a decimal in digits, without zeros at the end of its places, and zero without a sign: `12.5`."""
    text = format(value if value else abs(value), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
