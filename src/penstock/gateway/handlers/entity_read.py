"""`GET /entities/{Entity}/{key}` and the `show` routes of the application.

They append nothing: they read the state at the newest committed epoch, which is not older than any
response that a client has received.
"""

from collections.abc import Sequence

import msgspec
from starlette.responses import Response

from penstock.base.http import JSON, MSGPACK
from penstock.base.ids import EntityKey, Epoch
from penstock.errors import NoSuchEntity, RequestError
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.reader_pool import EntityReader, ReaderPool
from penstock.gateway.responses import json_of, reply_headers
from penstock.gateway.route import MIN_EPOCH_HEADER, READ, SHOWN, Answer, Route
from penstock.journal.tail import AsyncJournalTail
from penstock.model.application import App
from penstock.process.config import Config


class EntityReadHandler:
    """Reads entities for HTTP requests.

    Args:
        tail: The journal tail, which knows the newest epoch.
        pool: The readers; without them, code of the application runs in this process.
    """

    def __init__(
        self,
        app: App,
        config: Config,
        entities: EntityReader,
        tail: AsyncJournalTail,
        pool: ReaderPool | None,
    ) -> None:
        self._app = app
        self._config = config
        self._entities = entities
        self._tail = tail
        self._pool = pool

    @Route(
        "GET",
        "/entities/{entity}/{key}",
        "entities",
        parameters=(MIN_EPOCH_HEADER,),
        fields=READ,
        answers=(Answer("All attributes and the key.", {}, SHOWN),),
        errors=(504,),
    )
    async def entity(self, request: HttpRequest) -> Response:
        """Show an entity.

        Reads the newest committed epoch, so every change that any client has seen.
        """
        name, text = request.path["entity"], request.path["key"]
        return await self.show(request, name, text, (), 200)

    async def show(
        self, request: HttpRequest, name: str, text: str, shows: Sequence[str], status: int
    ) -> Response:
        """Return the attributes of an entity, or some of them, as JSON or as MessagePack.

        Args:
            shows: The names of the attributes; empty for all of them and the key.

        Raises:
            NoSuchEntity: The entity does not exist.
        """
        name = self._app.present_name(name)
        request.principal.require_read(name, self._app.stored_name(name))
        if len(text.encode()) > self._config.gateway.key_bytes_max:
            raise RequestError(f"a key takes at most {self._config.gateway.key_bytes_max} bytes")
        key = self._app.key_of(name, text)
        min_epoch = request.min_epoch()
        if min_epoch > self._tail.epoch:
            limit_s = self._config.gateway.reply_timeout_ms / 1_000
            await self._tail.until(Epoch(min_epoch), request.wait_s("timeout", 10, limit_s))
        entity_type = self._app.entity(name)
        epoch, (data,) = await self._entities.read(
            [EntityKey(entity_type.prefix + entity_type.key_text(key))]
        )
        if data is None:
            raise NoSuchEntity(f"{name} {text!r} does not exist")
        if self._pool is not None and not data.startswith(entity_type.row_head):
            timeout_s = self._config.gateway.reply_timeout_ms / 1_000
            data = await self._pool.upcast(name, text, data, timeout_s)
        values = {entity_type.key_name: key, **entity_type.plain(key, data)}
        chosen = {attribute: values[attribute] for attribute in shows} if shows else values
        if MSGPACK in request.headers.get("accept", ""):
            encoded = msgspec.msgpack.encode(chosen)
            return Response(encoded, status, reply_headers(epoch), MSGPACK)
        return Response(json_of(chosen), status, reply_headers(epoch), JSON)
