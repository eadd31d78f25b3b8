"""`GET /entities/{Entity}/{key}`, the pages of `GET /entities/{Entity}`, and the `show` routes of the application.

They append nothing: they read the state at the newest committed epoch, which is not older than any
response that a client has received. A class with a right (`allows`) is read by readers only, which ask it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response

from penstock.base.http import JSON, MSGPACK
from penstock.base.ids import EntityKey, Epoch
from penstock.engine.rows import RowsFound, RowsWanted, decode_rows
from penstock.errors import NoSuchEntity, RequestError
from penstock.gateway.auth.principal import Principal
from penstock.gateway.http_request import HttpRequest, whole_number
from penstock.gateway.reader_pool import EntityReader, ReaderPool
from penstock.gateway.request_ids import RequestIds, stored_id
from penstock.gateway.responses import json_of, reply_headers
from penstock.gateway.route import MIN_EPOCH_HEADER, READ, SHOWN, Answer, Parameter, Route
from penstock.journal.tail import AsyncJournalTail
from penstock.model.application import App
from penstock.model.entity_page import LIMIT, LIMIT_MAX, PAGE_FIELDS, SIZE
from penstock.model.entity_type import EntityType
from penstock.model.reply import raised_by
from penstock.model.request import decode_failure
from penstock.process.config import Config
from penstock.runtime.reads.messages import ReadCall

_TEXT: Final[Mapping[str, Any]] = {"type": "string"}


class EntityReadHandler:
    """Reads entities for HTTP requests.

    Args:
        tail: The journal tail, which knows the newest epoch.
        pool: The readers; without them, code of the application runs in this process, and no rows are found.
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
        self._ids = RequestIds()

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
        entity, key = self._named(request.principal, name, text)
        await self.reached(request)
        epoch, values = await self._state(request.principal, entity, key, None)
        if values is None:
            raise NoSuchEntity(f"{entity.name} {text!r} does not exist")
        chosen = {attribute: values[attribute] for attribute in shows} if shows else values
        return _response(request, chosen, status, epoch)

    async def state(
        self, principal: Principal, name: str, text: str, read: tuple[Epoch, bytes | None] | None
    ) -> tuple[Epoch, dict[str, Any] | None]:
        """Return all attributes of an entity and its key, and their epoch; None if it does not exist.

        Args:
            read: An epoch and the row at it, if they are read already; a reader that asks the right of a class reads a newer row.
        """
        return await self._state(principal, *self._named(principal, name, text), read)

    def stored_key(self, principal: Principal, name: str, text: str) -> EntityKey:
        """Return the key in the state of an entity that the principal may read."""
        entity, key = self._named(principal, name, text)
        return EntityKey(entity.prefix + entity.key_text(key))

    def _named(self, principal: Principal, name: str, text: str) -> tuple[EntityType, Any]:
        """Return the class and the key of an entity that the principal may read."""
        entity = self._readable(principal, name)
        if len(text.encode()) > self._config.gateway.key_bytes_max:
            raise RequestError(
                f"a key takes at most gateway.key_bytes_max = {self._config.gateway.key_bytes_max} bytes"
            )
        return entity, self._app.key_of(entity.name, text)

    async def _state(
        self,
        principal: Principal,
        entity: EntityType,
        key: Any,
        read: tuple[Epoch, bytes | None] | None,
    ) -> tuple[Epoch, dict[str, Any] | None]:
        key_text, timeout_s = entity.key_text(key), self._config.gateway.reply_timeout_ms / 1_000
        data: bytes | None
        if entity.allows is not None:
            wanted = RowsWanted(entity.name, principal.rights, key_text)
            epoch, page = await self._found(principal, wanted, timeout_s)
            data = page.rows[0][1] if page.rows else None
        else:
            if read is None:
                epoch, (data,) = await self._entities.read([EntityKey(entity.prefix + key_text)])
            else:
                epoch, data = read
            if data is not None and self._pool is not None and not data.startswith(entity.row_head):
                data = await self._pool.upcast(entity.name, key_text, data, timeout_s)
        if data is None:
            return epoch, None
        return epoch, {entity.key_name: key, **entity.plain(key, data)}

    @Route(
        "GET",
        "/entities/{entity}",
        "entities",
        parameters=(
            Parameter(
                "after",
                "query",
                "The key behind which the page begins, from the page before.",
                _TEXT,
            ),
            Parameter(
                "limit",
                "query",
                "The most entities of the page.",
                {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT},
            ),
            MIN_EPOCH_HEADER,
        ),
        fields=READ,
        has_filters=True,
        answers=(Answer("A page.", {}, SHOWN),),
        errors=(429, 504),
    )
    async def page(self, request: HttpRequest) -> Response:
        """List entities.

        Returns a page of the entities that the caller may see, in the order of their keys as text, all at the epoch that the page
        names. Each other field of the query string is the name of an attribute, and the value that it must have.
        """
        entity = self._readable(request.principal, request.path["entity"])
        after, limit = request.field("after", ""), request.field("limit", str(LIMIT))
        count = whole_number("limit", limit, SIZE, 1, LIMIT_MAX)
        where = {name: text for name, text in request.query().items() if name not in PAGE_FIELDS}
        behind = entity.key_text(self._app.key_of(entity.name, after)) if after else ""
        timeout_s = await self.reached(request)
        wanted = RowsWanted(entity.name, request.principal.rights, None, behind, count, where)
        epoch, page = await self._found(request.principal, wanted, timeout_s)
        rows = [(entity.key_at(text), row) for text, row in page.rows]
        shown = [{entity.key_name: key, **entity.plain(key, row)} for key, row in rows]
        body = {"epoch": epoch, "entities": shown, "after": page.after}
        return _response(request, body, 200, epoch)

    def _readable(self, principal: Principal, name: str) -> EntityType:
        """Return a class that the principal may read."""
        name = self._app.present_name(name)
        principal.require_read(name, self._app.stored_name(name))
        return self._app.entity(name)

    async def reached(self, request: HttpRequest) -> float:
        """Return when the epoch is there that a request wants: the seconds that a reader may take then.

        Raises:
            TimedOut: The epoch is not there in time.
        """
        limit_s = self._config.gateway.reply_timeout_ms / 1_000
        min_epoch, wait_s = request.min_epoch(), request.wait_s("timeout", 10, limit_s)
        if min_epoch > self._tail.epoch:
            await self._tail.until(Epoch(min_epoch), wait_s)
        return limit_s

    async def _found(
        self, principal: Principal, wanted: RowsWanted, timeout_s: float
    ) -> tuple[Epoch, RowsFound]:
        """Return the rows that a reader finds, and their epoch; none for an entity that does not exist."""
        if self._pool is None:
            raise RequestError(
                "this gateway has no readers (gateway.readers = 0), which find the rows of a page, and ask the right of a class"
            )
        drawn = stored_id(principal, self._ids.draw())
        asked = [ReadCall(drawn, b"", rows=wanted)]
        epoch, (outcome,) = await self._pool.read(asked, timeout_s)
        if outcome.error is not None:
            error = raised_by(decode_failure(outcome.data))
            if isinstance(error, NoSuchEntity):
                return epoch, RowsFound([])
            raise error
        return epoch, decode_rows(outcome.data)


def _response(request: HttpRequest, body: Any, status: int, epoch: Epoch) -> Response:
    if MSGPACK in request.headers.get("accept", ""):
        return Response(msgspec.msgpack.encode(body), status, reply_headers(epoch), MSGPACK)
    return Response(json_of(body), status, reply_headers(epoch), JSON)
