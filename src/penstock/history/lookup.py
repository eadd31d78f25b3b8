"""The trace of a request, or the changes of an entity, in a process of its own, which answers with their JSON.

It only reads the data directory. Requests run again in it, within the limits of the question's configuration.
"""

from typing import Any, BinaryIO, Final

import msgspec

from penstock.base.ids import PRINCIPAL_SEPARATOR, entity_key
from penstock.base.json_keys import as_text, json_bytes
from penstock.deployment.loading import load_app
from penstock.history.code_versions import CodeVersions
from penstock.history.reader import HistoryReader
from penstock.history.trace import document_json, entity_history, trace
from penstock.process.config import Config
from penstock.process.question import answer_question

_encode: Final = msgspec.json.Encoder(enc_hook=as_text).encode


class TraceQuery(msgspec.Struct, frozen=True, tag="trace"):
    """A question for the trace of one request: its id, or the unique beginning of its id."""

    request_id: str


class HistoryQuery(msgspec.Struct, frozen=True, tag="history"):
    """A question for the newest changes of one entity.

    Attributes:
        key: The text of the entity's key.
        first: The first epoch; None is the oldest that is held.
        last: The last epoch; None is the newest.
        changes_max: How many changes are listed.
    """

    entity: str
    key: str
    first: int | None
    last: int | None
    changes_max: int


class Lookup(msgspec.Struct, frozen=True):
    """The question to the process.

    Attributes:
        spec: The application, as on the command line.
        config: Its configuration; handlers run within its limits.
        query: The request or the entity to look up.
    """

    spec: str
    config: Config
    query: TraceQuery | HistoryQuery


def _look_up(lookup: Lookup, _: BinaryIO) -> bytes:
    return json_bytes(_encode, _found(lookup))


def _found(lookup: Lookup) -> dict[str, Any]:
    app, data, limits = load_app(lookup.spec), lookup.config.data, lookup.config.limits
    match lookup.query:
        case TraceQuery(request_id):
            with (
                HistoryReader(data, app, "trace") as history,
                CodeVersions(history, app, lookup.spec) as versions,
            ):
                named = _own(history.complete(request_id), request_id)
                return document_json(trace(history, versions, named, limits))
        case HistoryQuery(entity, key, first, last, changes_max):
            name = entity_key(app.stored_name(entity), key)
            with (
                HistoryReader(data, app, "history") as history,
                CodeVersions(history, app, lookup.spec) as versions,
            ):
                span = history.span(first, last)
                changes = entity_history(history, versions, name, span, changes_max, limits)
                return document_json(changes)


def _own(completed: str, text: str) -> str:
    """Return a completed id, unless it belongs to a principal that the text does not name."""
    is_own = (PRINCIPAL_SEPARATOR in completed) == (PRINCIPAL_SEPARATOR in text)
    return completed if is_own else text


if __name__ == "__main__":
    answer_question(Lookup, _look_up)
