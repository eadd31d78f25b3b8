"""The standard output of commands: one JSON value for programs, or text and tables for people."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from rich.console import Console

_MICROSECOND: Final = 1_000_000
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode


def print_result(result: object, show: Callable[[Console], None], *, as_json: bool) -> None:
    """Print the result of a command.

    Args:
        result: The value that `--json` prints.
        show: Prints the result for people.
        as_json: Whether `--json` was given.
    """
    if as_json:
        print_json(result)
    else:
        show(Console(soft_wrap=True, highlight=False, markup=False))


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    sys.stdout.write(f"{json_line(value)}\n")
    sys.stdout.flush()


def json_line(value: Any) -> str:
    """Return a value as JSON; a value that JSON does not have is printed as Python's `str`."""
    return _encode(value).decode()


def utc_text(time_us: int, *, exact: bool = False) -> str:
    """Return a time in UTC: to the second, or to the microsecond if `exact`.

    Args:
        time_us: Microseconds since the Unix epoch.
        exact: Whether to print the microseconds.
    """
    time = datetime.fromtimestamp(time_us / _MICROSECOND, UTC)
    return f"{time:%Y-%m-%d %H:%M:%S.%f} UTC" if exact else f"{time:%Y-%m-%d %H:%M:%S} UTC"
