"""The words of `penstock call` and `penstock append` without those of the application: the call or the append that they describe."""

from typing import Any

import msgspec

from penstock.base.http import DERIVED_KEY
from penstock.errors import RequestError
from penstock.model.application import App, unknown
from penstock.model.call import Call, append_of
from penstock.model.declaration import CREATIONS, RESERVED
from penstock.model.streams.event_list import events_of_json_lines, events_of_words
from penstock.model.streams.event_type import EventType


def call_of_words(app: App | None, words: list[str]) -> Call[Any]:
    """Return the call that words describe.

    Args:
        app: The application; None: arguments are JSON or bare text, and a class begins with a capital
            letter.
        words: `ENTITY KEY METHOD [ARGUMENT …]` or `FUNCTION [ARGUMENT …]`.

    Returns:
        The call, with arguments of the types that the application declares.
    """
    first, *rest = words
    entity, dot, method = first.partition(".")
    if dot and (entity[:1].isupper() if app is None else app.present_name(entity) in app.entities):
        raise RequestError(
            f"{first} names no key: write {entity} KEY {method or 'METHOD'} [ARGUMENT …]"
        )
    if app is not None and first not in app.entities | app.former | app.functions:
        raise RequestError(unknown("class or function", first, [*app.entities, *app.functions]))
    if app.present_name(first) not in app.entities if app is not None else not first[:1].isupper():
        return Call("", None, first, *_arguments(app, "", first, rest))
    if len(rest) < 2:
        known = [] if app is None else app.entity(first).methods
        methods = ", ".join([*known, *RESERVED])
        raise RequestError(
            f"{first} needs a key and a method: write {first} KEY METHOD [ARGUMENT …]; the methods are {methods}"
        )
    key_text, method, *arguments = rest
    positional, named = _arguments(app, first, method, arguments)
    return Call(first, _key_of(app, first, key_text, method), method, positional, named)


def _arguments(
    app: App | None, entity: str, method: str, words: list[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments by position, and those by name."""
    if app is not None:
        positional, named = app.signature(entity, method).parse(words)
        return tuple(positional), dict(named)
    pairs = [word.partition("=") for word in words]
    by_name = {name: _value(text) for name, equals, text in pairs if equals and name.isidentifier()}
    by_place = [
        _value(word)
        for word, (name, equals, _) in zip(words, pairs, strict=True)
        if not (equals and name.isidentifier())
    ]
    return tuple(by_place), by_name


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _key_of(app: App | None, entity: str, text: str, method: str) -> object:
    """Return the key that a word gives; None for `-` in a creation, which derives the key."""
    if text == DERIVED_KEY and method in CREATIONS:
        return None
    return text if app is None else app.key_of(entity, text)


def append_of_words(
    app: App | None, stream: str, words: list[str], text: bytes | None, request_id: str
) -> Call[int]:
    """Return the append that the command line describes.

    Args:
        app: The application; None: the gateway checks the events.
        words: The events as words.
        text: The events as JSON lines; None: the words are the events.
    """
    events: EventType[Any]
    events = EventType(f"stream {stream}", Any) if app is None else app.open_stream(stream).events
    values = events_of_words(events, words) if text is None else events_of_json_lines(events, text)
    return append_of(stream, values, request_id)
