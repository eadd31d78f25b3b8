"""`GET /entities/{Entity}/changes?from=N&to=M`: what epochs made of the entities of a class.

JSON lines, or what `Accept` names of Arrow, CSV and JSON; each change with the entity before and after
it (`sql.change_feed` says what is in them). The view's process answers, from the journal. Without `from`
the path is that of the entity whose key is `changes`.
"""

from typing import Final

import msgspec
from starlette.responses import Response

from penstock.base.http import JSON, NDJSON
from penstock.errors import RequestError
from penstock.gateway.handlers.entity_read import EntityReadHandler
from penstock.gateway.handlers.sql import SqlHandler
from penstock.gateway.http_request import HttpRequest
from penstock.journal.tail import AsyncJournalTail
from penstock.model.application import App

_QUERY: Final = "SELECT * FROM changes(?, ?, ?)"
_DIGITS_MAX: Final = 18


class ChangesHandler:
    """Serves the feeds of changes of one application."""

    def __init__(
        self,
        app: App,
        sql: SqlHandler,
        entity_reads: EntityReadHandler,
        tail: AsyncJournalTail,
    ) -> None:
        """Use what reads and what follows."""
        self._app = app
        self._sql = sql
        self._entity_reads = entity_reads
        self._tail = tail

    async def changes(self, request: HttpRequest) -> Response:
        """Serve `GET /entities/{Entity}/changes`.

        Raises:
            Forbidden: The principal may not read the class.
            RequestError: There is no such class, or `from` or `to` is no epoch.
            ViewUnavailable: No view runs, or it broke off.
        """
        name = request.path["entity"]
        asked = request.query()
        if "from" not in asked:
            return await self._entity_reads.show(request, name, "changes", (), 200)
        request.principal.require_read(name)
        self._app.signature(name, "exists")  # says what there is, where this is not
        last = max(self._tail.epoch, request.min_epoch())
        bounds = _epoch("from", asked["from"]), _epoch("to", asked.get("to", str(last)))
        body = msgspec.json.encode({"query": _QUERY, "parameters": [name, *bounds]})
        accept = request.headers.get("accept", "")
        wanted = NDJSON if accept in ("", "*/*") else accept
        return await self._sql.forward(
            body, {"accept": wanted, "content-type": JSON}, request.principal
        )


def _epoch(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS_MAX:
        raise RequestError(f"{name}={text} is no epoch: a whole number, 0 or more")
    return int(text)
