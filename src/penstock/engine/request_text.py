"""Requests as text: what a request calls, why an application refuses it, and the line of its handler."""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from penstock.base.ids import entity_key
from penstock.base.json_keys import float_text
from penstock.errors import Erased, RequestError
from penstock.model.application import App
from penstock.model.catch_up import catch_up_text, is_catch_up
from penstock.model.control import control_text, is_control
from penstock.model.request import decode_request, is_continuation
from penstock.model.sealed_value import shown_arguments
from penstock.model.table_scan import is_scan, scan_text
from penstock.model.waiting_effect import is_settlement, settlement_text

_TEXT_MAX: Final = 80
_OWN_RECORDS: Final[tuple[tuple[Callable[[bytes], bool], Callable[[bytes], str]], ...]] = (
    (is_continuation, lambda _: "the rest of a cascade"),
    (is_control, control_text),
    (is_catch_up, catch_up_text),
    (is_scan, scan_text),
    (is_settlement, settlement_text),
)
"""The records of Penstock itself, which run no handler, and their texts."""


def call_text(body: bytes) -> str:
    """Return a request as text: `Item/i1.add(5)`, or an append: `lines.append('a b', 'c')`."""
    for is_such, text in _OWN_RECORDS:
        if is_such(body):
            return text(body)
    try:
        request = decode_request(body)
        positional, named = shown_arguments(request)
    except (RequestError, msgspec.MsgspecError) as error:
        return f"an invalid request ({error})"
    arguments = [_shown(value) for value in positional]
    arguments += [f"{name}={_shown(value)}" for name, value in named.items()]
    target = f"{entity_key(request.entity, request.key or '-')}." if request.entity else ""
    if request.stream is not None:
        target = f"{request.stream}."
    return f"{target}{request.method}({', '.join(arguments)})"


def _shown(value: Any) -> str:
    text = repr(_readable(value))
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"


def _readable(value: Any) -> Any:  # noqa: PLR0911 -- one line for each type
    """Return an argument with its times, and its floats that are no numbers, as text, as callers write them in JSON."""
    match value:
        case float() if not math.isfinite(value):
            return float_text(value)
        case datetime():
            return msgspec.json.encode(value).decode().strip('"')
        case list():
            return [_readable(item) for item in value]
        case tuple():  # a key of a dictionary
            return tuple(map(_readable, value))
        case dict():
            return {_readable(name): _readable(item) for name, item in value.items()}
        case _:
            return value


def rejection_of(app: App, body: bytes) -> str:
    """Return why an application refuses a request; empty if it accepts it."""
    if any(is_such(body) for is_such, _ in _OWN_RECORDS):
        return ""
    try:
        request = decode_request(body)
        if request.stream is not None:
            app.taking_stream(request.stream)
            return ""
        request = app.opened(request)
        app.signature(request.entity, request.method).decode(request.positional, request.named)
    except (RequestError, Erased) as error:
        return str(error)
    return ""


def is_erased(app: App, body: bytes) -> bool:
    """Say whether a request concerns an erased person, so that it cannot run again."""
    try:
        app.opened(decode_request(body))
    except Erased:
        return True
    except RequestError:
        return False
    return False


def handler_line(app: App, body: bytes) -> str:
    """Return `file:line` of the method that a request calls; empty if the method does not exist."""
    try:
        request = decode_request(body)
        return app.signature(request.entity, request.method).where
    except RequestError:
        return ""
