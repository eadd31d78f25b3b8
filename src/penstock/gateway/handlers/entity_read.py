"""Entities over HTTP: `GET /entities/{Entity}/{key}`, and what `show` routes answer.

Nothing is appended: the state at the newest committed epoch is read, which is not older than any
answer that a client has had.
"""

from collections.abc import Sequence

from starlette.responses import Response

from penstock.base.http import JSON
from penstock.base.ids import EntityKey, Epoch
from penstock.errors import NoSuchEntity, RequestError
from penstock.gateway.entity_reader import EntityReader
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.responses import json_of, reply_headers
from penstock.journal.tail import AsyncJournalTail
from penstock.model.application import App
from penstock.process.config import Config


class EntityReadHandler:
    """Shows entities."""

    def __init__(
        self, app: App, config: Config, entities: EntityReader, tail: AsyncJournalTail
    ) -> None:
        """Use what reads and what follows."""
        self._app = app
        self._config = config
        self._entities = entities
        self._tail = tail

    async def entity(self, request: HttpRequest) -> Response:
        """Serve `GET /entities/{Entity}/{key}`."""
        name, text = request.path["entity"], request.path["key"]
        return await self.show(request, name, text, (), 200)

    async def show(
        self, request: HttpRequest, name: str, text: str, shows: Sequence[str], status: int
    ) -> Response:
        """Answer an entity's attributes, the key among them, or some of them.

        Raises:
            NoSuchEntity: It is not there.
            TimedOut: The epoch that was asked for is not committed in time.
        """
        request.principal.require_read(name)
        if len(text.encode()) > self._config.gateway.key_bytes_max:
            raise RequestError(f"a key takes at most {self._config.gateway.key_bytes_max} bytes")
        key = self._app.key_of(name, text)
        min_epoch = request.min_epoch()
        if min_epoch > self._tail.epoch:
            limit_s = self._config.gateway.reply_timeout_ms / 1_000
            await self._tail.until(Epoch(min_epoch), request.seconds("timeout", 10, limit_s))
        kind = self._app.entities[name]
        epoch, data = await self._entities.read(EntityKey(kind.prefix + kind.key_text(key)))
        if data is None:
            raise NoSuchEntity(f"{name} {text!r} does not exist")
        values = {kind.key_name: key, **kind.plain(key, data)}
        told = {one: values[one] for one in shows} if shows else values
        return Response(json_of(told), status, reply_headers(epoch), JSON)
