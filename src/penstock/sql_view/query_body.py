"""The body of `POST /sql`. This module does not load DuckDB, so that a gateway can describe the body."""

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from penstock.base.http import COUNT_MAX
from penstock.errors import QueryError
from penstock.journal.as_of import PointInTime, parse_timestamp

Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
"""A whole number of a query, such as an epoch."""


class AsOf(Struct, frozen=True, forbid_unknown_fields=True):
    """A point in time: an epoch, or a time in ISO 8601 (UTC if it names no zone)."""

    epoch: int | None = None
    timestamp: str | None = None

    def moment(self) -> PointInTime:
        """Return the epoch or the time."""
        match self.epoch, self.timestamp:
            case int(epoch), None:
                return epoch
            case None, str(text):
                return parse_timestamp(text)
            case _:
                raise QueryError("as_of takes an epoch or a timestamp, and not both")


def _only(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with one field."""
    return {
        "type": "object",
        "properties": {name: schema},
        "required": [name],
        "additionalProperties": False,
    }


_AS_OF: Final = Meta(
    description="A past state instead of the newest: an epoch, or the newest epoch at a time (ISO "
    "8601; UTC if it names no zone).",
    extra_json_schema={
        "oneOf": [
            _only("epoch", {"type": "integer", "minimum": 0}),
            _only("timestamp", {"type": "string"}),
            {"type": "null"},
        ]
    },
)


class QueryBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A query of the state at one epoch.

    Attributes:
        parameters: A list for `?` and `$1`, an object for `$name`.
        min_epoch: The oldest epoch that may answer; None is the newest one committed when the
            query arrives.
        as_of: The point in time that answers, like AS OF at the end of the query.
        timeout_ms: A time limit below the view's own.
        rows_max: A row limit below the view's own.
    """

    query: Annotated[str, Meta(examples=["SELECT 42 AS answer"])]
    parameters: list[Any] | dict[str, Any] = []
    min_epoch: Count | None = None
    as_of: Annotated[AsOf | None, _AS_OF] = None
    timeout_ms: Annotated[int, Meta(ge=1, le=COUNT_MAX)] | None = None
    rows_max: Count | None = None
