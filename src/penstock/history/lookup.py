"""Questions to a process that traces a request or lists the changes of an entity; and its answers.

The process is `penstock.history.lookup_process`. This module loads nothing of the machinery that
runs requests again.
"""

import msgspec

from penstock.process.config import Config


class TraceQuery(msgspec.Struct, frozen=True, tag="trace"):
    """A question for the trace of one request: its id, or the unique beginning of its id."""

    request_id: str


class HistoryQuery(msgspec.Struct, frozen=True, tag="history"):
    """A question for the newest changes of one entity.

    Attributes:
        entity: The name of the class.
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


class LookupFailure(msgspec.Struct, frozen=True, tag="failure"):
    """An error of Penstock that ended the lookup: its code and its message."""

    code: str
    message: str


class LookupResult(msgspec.Struct, frozen=True, tag="result"):
    """The JSON of a trace or of a history, as `history.trace` describes it."""

    json: bytes


LookupAnswer = LookupResult | LookupFailure
