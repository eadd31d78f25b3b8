"""Traces a request or lists the changes of an entity, in a process of its own.

    python -m penstock.history.lookup_process < Lookup > LookupAnswer

It only reads the data directory. Requests run again in it, within the limits of the question's
configuration.
"""

from typing import Any, Final

import msgspec

from penstock.base.ids import PRINCIPAL_SEPARATOR, entity_key
from penstock.base.json_keys import as_text, json_bytes
from penstock.deployment.loading import load_app
from penstock.errors import PenstockError
from penstock.history.code_versions import CodeVersions
from penstock.history.lookup import (
    HistoryQuery,
    Lookup,
    LookupAnswer,
    LookupFailure,
    LookupResult,
    TraceQuery,
)
from penstock.history.reader import HistoryReader
from penstock.history.trace import document_json, entity_history, trace
from penstock.process.question import receive_question

_encode: Final = msgspec.json.Encoder(enc_hook=as_text).encode


def main() -> None:
    """Answer the question on standard input."""
    lookup, answer_file = receive_question(Lookup)
    answer: LookupAnswer
    try:
        answer = LookupResult(json_bytes(_encode, _look_up(lookup)))
    except PenstockError as error:
        answer = LookupFailure(error.code, str(error))
    with answer_file:
        answer_file.write(msgspec.msgpack.encode(answer))


def _look_up(lookup: Lookup) -> dict[str, Any]:
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
    main()
