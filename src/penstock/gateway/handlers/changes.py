"""`GET /entities/{Entity}/changes?from=N&to=M`: the changes of a class's entities in a range of epochs.

The response is JSON lines, or the format of `Accept`: Arrow, CSV or JSON. `sql.as_of_query` describes
its content. The view's process reads it from the journal. Without `from`, the path is that of the
entity whose key is `changes`.
"""

from typing import Final

import msgspec
from starlette.responses import Response

from penstock.base.http import ARROW, JSON, NDJSON
from penstock.client.results import Change, Rows
from penstock.gateway.handlers.entity_read import EntityReadHandler
from penstock.gateway.handlers.sql import SqlHandler
from penstock.gateway.http_request import HttpRequest, parse_epoch
from penstock.gateway.intake import require_every_row
from penstock.gateway.route import (
    MIN_EPOCH_HEADER,
    READ,
    SHOWN,
    TO_EPOCH,
    Answer,
    Route,
    epoch_bound,
    json_content,
    reference_to,
)
from penstock.journal.tail import AsyncJournalTail
from penstock.model.application import App

_QUERY: Final = "SELECT * FROM changes(?, ?, ?)"


class ChangesHandler:
    """Serves the feeds of changes of one application.

    Args:
        entity_reads: Reads the entity whose key is `changes`.
        tail: The journal tail, which knows the newest epoch.
    """

    def __init__(
        self,
        app: App,
        sql: SqlHandler,
        entity_reads: EntityReadHandler,
        tail: AsyncJournalTail,
    ) -> None:
        self._app = app
        self._sql = sql
        self._entity_reads = entity_reads
        self._tail = tail

    @Route(
        "GET",
        "/entities/{entity}/changes",
        "changes",
        parameters=(
            epoch_bound("from", "The first epoch.", is_required=True),
            TO_EPOCH,
            MIN_EPOCH_HEADER,
        ),
        fields=READ,
        answers=(
            Answer(
                "The changes, in order.",
                {
                    NDJSON: {"schema": reference_to(Change)},
                    **json_content(Rows, ARROW),
                },
                SHOWN,
            ),
        ),
        errors=(504,),
    )
    async def changes(self, request: HttpRequest) -> Response:
        """List changes of a class.

        Returns each entity before and after each epoch of a range, as JSON lines. Without `from` the
        path reads the entity whose key is `changes`.
        """
        entity = self._app.present_name(request.path["entity"])
        first, last = request.field("from"), request.field("to")
        if first is None:
            request.refuse_fields(("to",), "changes need from, too")
            return await self._entity_reads.show(request, entity, "changes", (), 200)
        require_every_row(request.principal, self._app, entity)
        request.refuse_fields(("timeout",), "view.time_ms limits a query of changes")
        newest = max(self._tail.epoch, request.min_epoch())
        bounds = (
            parse_epoch("from", first),
            newest if last is None else parse_epoch("to", last),
        )
        body = msgspec.json.encode({"query": _QUERY, "parameters": [entity, *bounds]})
        accept = request.headers.get("accept", "")
        media_type = NDJSON if accept in ("", "*/*") else accept
        headers = {"accept": media_type, "content-type": JSON}
        return await self._sql.forward(body, headers, request.principal)
