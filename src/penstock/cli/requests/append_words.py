"""The words of `penstock append`: the append that they describe."""

from typing import Any

from penstock.model.application import App
from penstock.model.call import Call, append_of
from penstock.model.streams.event_list import events_of_json_lines, events_of_words
from penstock.model.streams.event_type import EventType


def append_of_words(
    app: App | None, stream: str, words: list[str], text: bytes | None, request_id: str
) -> Call[int]:
    """Return the append that the command line describes.

    Args:
        app: The application; None: the gateway checks the events.
        stream: The name of the stream.
        words: The events as words.
        text: The events as JSON lines; None: the words are the events.
        request_id: The id of the append.

    Raises:
        RequestError: The stream does not exist or takes no appends, or an event does not fit.
    """
    events: EventType[Any]
    events = EventType(f"stream {stream}", Any) if app is None else app.open_stream(stream).events
    values = events_of_words(events, words) if text is None else events_of_json_lines(events, text)
    return append_of(stream, values, request_id)
