"""`ServedVersion`: the parts of a gateway that depend on the code of the application.

A gateway has one version at its start, and a further one after each deployment. The versions share log, journal and
connections (`SharedParts`). A request that a version has begun ends with it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.auth.exposure import NOT_SET
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.webhooks import WebhookSecrets
from penstock.gateway.connections import Connections
from penstock.gateway.flow.admission import Admission
from penstock.gateway.handlers.app_routes import endpoint_of
from penstock.gateway.handlers.at import PointHandler, PointReader
from penstock.gateway.handlers.calls import CallHandler
from penstock.gateway.handlers.changes import ChangesHandler
from penstock.gateway.handlers.deployments import DeploymentHandler
from penstock.gateway.handlers.entity_read import EntityReadHandler
from penstock.gateway.handlers.exports import ExportHandler
from penstock.gateway.handlers.failed import FailedHandler
from penstock.gateway.handlers.health import HealthHandler
from penstock.gateway.handlers.history import HistoryHandler
from penstock.gateway.handlers.load import LoadHandler
from penstock.gateway.handlers.pages import PageHandler
from penstock.gateway.handlers.reads import ReadHandler
from penstock.gateway.handlers.search import Searches, SearchHandler
from penstock.gateway.handlers.served_handlers import ServedHandlers
from penstock.gateway.handlers.sql import SqlHandler
from penstock.gateway.handlers.streams import TABLES, StreamHandler
from penstock.gateway.handlers.subscriptions import SubscriptionHandler
from penstock.gateway.handlers.tickets import TicketHandler
from penstock.gateway.intake import AppendBatcher, Intake
from penstock.gateway.order_desk import OrderDesk, Turns
from penstock.gateway.reader_pool import (
    CallEncoder,
    EntityReader,
    ReaderNursery,
    ReaderPool,
    calls_with_code,
)
from penstock.gateway.responses import json_of
from penstock.gateway.route import Router
from penstock.gateway.telemetry.metrics import Metrics
from penstock.journal.tail import AsyncJournalTail
from penstock.model.application import App
from penstock.model.signature import Signature
from penstock.process.config import Config
from penstock.runtime.reads.arguments import SizeLimits
from penstock.runtime.reads.messages import ReaderSettings

_log = logging.getLogger(__name__)

MoreHandlers = Callable[[App], Sequence[object]]
"""Returns further handlers, such as those of the console, for a version."""


def no_handlers(_app: App) -> Sequence[object]:
    """Return no further handlers."""
    return ()


class SharedParts(msgspec.Struct, frozen=True):
    """The parts of a gateway that all its versions use."""

    config: Config
    tail: AsyncJournalTail
    batcher: AppendBatcher
    entities: EntityReader
    nursery: ReaderNursery
    sql: SqlHandler
    searches: Searches
    points: PointReader
    admission: Admission
    intake: Intake
    connections: Connections
    metrics: Metrics
    health: HealthHandler
    load: LoadHandler
    history: HistoryHandler
    streams: StreamHandler
    subscriptions: SubscriptionHandler
    authenticator: Authenticator
    deployments: DeploymentHandler
    turns: Turns


class ServedVersion:
    """One version of the application in a gateway; a `with` block keeps it open.

    Attributes:
        spec: The name by which another process loads it.
        routing: The paths and their handlers.
        encoder: Encodes calls and appends.
        entity_reads: Reads entities.
        readers: The readers; None if no code of the application runs for a read.
    """

    def __init__(
        self,
        app: App,
        spec: str,
        routing: Router,
        encoder: CallEncoder,
        entity_reads: EntityReadHandler,
        readers: ReaderPool | None = None,
    ) -> None:
        self.app = app
        self.spec = spec
        self.routing = routing
        self.encoder = encoder
        self.entity_reads = entity_reads
        self.readers = readers
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> None:
        """Keep the version open while the block runs."""
        if not self._running:
            self._idle.clear()
        self._running += 1

    def __exit__(self, *_: object) -> None:
        self._running -= 1
        if not self._running:
            self._idle.set()

    async def close(self) -> None:
        """End the readers at once; no request may use them."""
        if self.readers is not None:
            await self.readers.close()

    async def retire(self) -> None:
        """End the readers when the last request of this version has its response."""
        await self._idle.wait()
        await self.close()


def version_of(app: App, spec: str, shared: SharedParts, more: Sequence[object]) -> ServedVersion:
    """Build a version of the application; its readers start in the background."""
    config, tail = shared.config, shared.tail
    secured = KeyStore(config.data).exists or config.gateway.jwks != NOT_SET
    # It reads the application's types, which may fail, so it comes before the readers start.
    pages = PageHandler(partial(_document, app, secured))
    readers = _readers(app, spec, shared)
    reads = ReadHandler(app, config, shared.admission, tail, shared.entities, readers)
    calls = CallHandler(app, config, shared.intake, shared.batcher, tail, reads, shared.connections)
    entity_reads = EntityReadHandler(app, config, shared.entities, tail, readers)
    routing = Router()
    served = ServedHandlers(
        calls=calls,
        reads=reads,
        entity_reads=entity_reads,
        changes=ChangesHandler(app, shared.sql, entity_reads, tail),
        exports=ExportHandler(app, config),
        pages=pages,
        failed=FailedHandler(config),
        health=shared.health,
        load=shared.load,
        history=shared.history,
        streams=shared.streams,
        subscriptions=shared.subscriptions,
        tickets=TicketHandler(shared.authenticator, routing),
        deployments=shared.deployments,
        sql=shared.sql,
        search=SearchHandler(app, config, shared.searches),
        at=PointHandler(app, shared.points),
    )
    # An application without published tables may have the path for tables of its own.
    without = () if app.topology.tables else (TABLES,)
    for handlers in (*served, *more):
        routing.serve(handlers, without)
    for route, handler in OrderDesk(config, app, shared.turns).routes():
        routing.add(route, handler)
    secrets = WebhookSecrets(config.gateway)
    for sentence in secrets.missing(app):  # of a deployment; at the start it is refused
        _log.error(sentence)
    for own in app.routes:
        routing.add(*endpoint_of(app, own, calls, entity_reads, secrets))
    return ServedVersion(app, spec, routing, reads.encoder, entity_reads, readers)


def _document(app: App, secured: bool) -> bytes:  # noqa: FBT001 -- a fact of the data directory
    from penstock.gateway.openapi.document import openapi_document  # noqa: PLC0415 -- the first question loads it

    return json_of(openapi_document(app, secured=secured))


def _readers(app: App, spec: str, shared: SharedParts) -> ReaderPool | None:
    """Start the readers, if the application has stored rows, `@readonly` handlers, or code in arguments."""
    config = shared.config
    # Pages of entities, rights per row and rows of earlier versions are their work, too.
    reading = [handler for handler in _handlers(app) if handler.readonly]
    if not config.gateway.readers or not (app.stored or reading or calls_with_code(app)):
        return None
    settings = ReaderSettings(
        spec=spec,
        data=config.data.absolute(),
        limits=config.limits,
        count=config.gateway.readers,
        log_format=config.log_format,
        log_level=config.log_level,
        sizes=SizeLimits(config.gateway.key_bytes_max, config.record_bytes_max),
    )
    declared = (handler.time_ms for handler in reading)
    longest_ms = max((time_ms for time_ms in declared if time_ms is not None), default=None)
    longest = max(config.limits.time_limit(longest_ms), config.limits.time_limit(None))
    return ReaderPool(shared.nursery, settings, shared.metrics, config.gateway.waiting_max, longest)


def _handlers(app: App) -> Iterator[Signature]:
    for entity_type in app.entities.values():
        yield from entity_type.methods.values()
    yield from app.functions.values()
