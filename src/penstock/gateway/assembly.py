"""Builds a gateway: opens log, journal and state, and adds the handlers of all paths.

```python
gateway = await assemble(app, spec, config)
...
await gateway.close()
```
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from penstock.base.http import (
    EPOCH,
    IDEMPOTENCY_KEY,
    JSON,
    MIN_EPOCH,
    OLDEST_ATOM,
    REQUEST_ID,
    RETRY_AFTER,
)
from penstock.base.ids import ONLY_PARTITION, Lsn
from penstock.gateway.append_batcher import AppendBatcher
from penstock.gateway.application import Gateway
from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.auth.exposure import NOT_SET
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.origin_policy import allowed_origins
from penstock.gateway.call_encoder import calls_with_code
from penstock.gateway.entity_reader import EntityReader
from penstock.gateway.flow.admission import Admission, watched_pauses
from penstock.gateway.flow.limit_table import LimitTable, limits_in_force
from penstock.gateway.handlers.app_routes import handler_of
from penstock.gateway.handlers.calls import CallHandler
from penstock.gateway.handlers.changes import ChangesHandler
from penstock.gateway.handlers.entity_read import EntityReadHandler
from penstock.gateway.handlers.health import HealthHandler
from penstock.gateway.handlers.history import HistoryHandler
from penstock.gateway.handlers.pages import PageHandler
from penstock.gateway.handlers.reads import ReadHandler
from penstock.gateway.handlers.sql import SqlHandler
from penstock.gateway.handlers.streams import StreamHandler
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.reader_pool import ReaderPool
from penstock.gateway.response_bodies import RecentLoad
from penstock.gateway.responses import json_of
from penstock.gateway.routing import Router
from penstock.gateway.telemetry.load_sampler import LoadSampler
from penstock.gateway.telemetry.metrics import Metrics
from penstock.gateway.telemetry.request_tracing import RequestTracer, TracingMiddleware
from penstock.journal.api import Journal
from penstock.journal.delta import DeltaJournal
from penstock.journal.tail import AsyncJournalTail
from penstock.log.api import Log
from penstock.log.sqlite import SqliteLog
from penstock.model.application import App
from penstock.model.route import VERBS
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.load_history import KEPT_S, STEP_US
from penstock.runtime.reads.arguments import SizeLimits
from penstock.runtime.reads.messages import ReaderSettings


@dataclass(frozen=True, slots=True)
class Assembly:
    """A gateway and the resources that it holds open.

    Attributes:
        gateway: The gateway.
        served: The ASGI application: the gateway inside its middleware.
        tail: The gateway's journal tail.
    """

    gateway: Gateway
    served: ASGIApp
    tail: AsyncJournalTail
    _load: LoadSampler
    _admission: Admission
    _batcher: AppendBatcher
    _entities: EntityReader
    _readers: ReaderPool | None
    _sql: SqlHandler
    _history: HistoryHandler
    _streams: StreamHandler
    _tracing: RequestTracer | None
    _log: SqliteLog
    _journal: DeltaJournal

    def refuse_waiting(self) -> None:
        """Refuse the requests that are not in the log yet and wait for their turn, and end event streams."""
        self._admission.refuse_waiting()
        self._streams.stop()

    async def close(self) -> None:
        """Close all resources; no request may be running."""
        self._load.close()
        self._history.close()
        self._streams.close()
        if self._readers is not None:
            await self._readers.close()
        await self._sql.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        self._admission.close()
        self.tail.close()
        self._batcher.close()
        self._entities.close()
        self._journal.close()
        self._log.close()


async def assemble(
    app: App, spec: str, config: Config, *, more: Sequence[BaseRoute] = ()
) -> Assembly:
    """Open log, journal and state of an application, and build its gateway.

    Call this in the event loop that serves.

    Args:
        app: The application.
        spec: The name by which another process loads the application.
        config: The configuration.
        more: Further routes.

    Raises:
        ConfigError: The settings of keys, tokens or limits cannot be used.
        IntegrityError: Log or journal is damaged.
        OperationalError: Log or journal cannot be opened.
    """
    data = config.data
    DataDirectory(data).create()
    journal = DataDirectory(data).open_journal(app)
    metrics = Metrics(data)
    log = DataDirectory(data).open_log(config)
    tail = AsyncJournalTail(journal, metrics.waiting)
    batcher = AppendBatcher(log, metrics)
    entities = EntityReader(data, app.name)
    sql = SqlHandler(data, config)
    load = _sampled_load(data, log, tail)
    routing = Router()
    gateway = Gateway(config.gateway, routing, Authenticator.of(config, app), metrics, load, more)
    limits = LimitTable(limits_in_force(app, config.gateway.limits), config.gateway.processes)
    admission = Admission(
        config.gateway, limits, watched_pauses(data), tail, metrics.flow, log.end()
    )
    readers = _readers(app, spec, config, metrics)
    reads = ReadHandler(app, config, admission, tail, entities, readers)
    calls = CallHandler(app, config, admission, batcher, tail, reads)
    entity_reads = EntityReadHandler(app, config, entities, tail, readers)
    _serve_calls(routing, app, calls, reads, entity_reads)
    secured = KeyStore(data).exists or config.gateway.jwks != NOT_SET
    health = HealthHandler(data, tail, lambda: gateway.draining)
    _serve_pages(routing, health, PageHandler(app, secured=secured))
    _serve_metrics(routing, metrics, journal, log, load)
    _serve_sql(routing, sql, ChangesHandler(app, sql, entity_reads, tail))
    history = _serve_history(routing, app, spec, config)
    streams = _serve_streams(routing, StreamHandler(app, journal, tail, metrics.follow))
    tracing = RequestTracer.from_environment(app.name, data)
    served = _with_cors(gateway if tracing is None else TracingMiddleware(gateway, tracing), config)
    return Assembly(
        gateway,
        served,
        tail,
        load,
        admission,
        batcher,
        entities,
        readers,
        sql,
        history,
        streams,
        tracing,
        log,
        journal,
    )


def _with_cors(served: ASGIApp, config: Config) -> ASGIApp:
    """Answer the CORS requests of browsers for pages of the configured origins."""
    origins = allowed_origins(config.gateway)
    if not origins:
        return served
    return CORSMiddleware(
        served,
        allow_origins=origins,
        allow_methods=VERBS,
        allow_headers=[
            "Authorization",
            "X-API-Key",
            "Content-Type",
            "Last-Event-ID",
            IDEMPOTENCY_KEY,
            MIN_EPOCH,
        ],
        expose_headers=[EPOCH, REQUEST_ID, RETRY_AFTER, OLDEST_ATOM],
    )


def _serve_history(routing: Router, app: App, spec: str, config: Config) -> HistoryHandler:
    history = HistoryHandler(app, spec, config)
    routing.add("GET", "/requests/{id}/trace", history.trace, "trace")
    routing.add("GET", "/entities/{entity}/{key}/history", history.history, "history")
    return history


def _serve_sql(routing: Router, sql: SqlHandler, changes: ChangesHandler) -> None:
    routing.add("POST", "/sql", sql.sql, "sql")
    routing.add("GET", "/entities/{entity}/changes", changes.changes, "changes")


def _serve_streams(routing: Router, streams: StreamHandler) -> StreamHandler:
    routing.add("GET", "/streams", streams.index, "streams")
    routing.add("GET", "/streams/{stream}", streams.follow, "streams")
    return streams


def _serve_calls(
    routing: Router,
    app: App,
    calls: CallHandler,
    reads: ReadHandler,
    entity_reads: EntityReadHandler,
) -> None:
    for path, handler, route_kind in (("call", calls.call, "call"), ("send", calls.send, "send")):
        routing.add("POST", f"/{path}/{{entity}}/{{key}}/{{method}}", handler, route_kind)
        routing.add("POST", f"/{path}/{{function}}", handler, route_kind)
    routing.add("POST", "/streams/{stream}", calls.call, "append")
    routing.add("POST", "/send/streams/{stream}", calls.send, "send")
    routing.add("POST", "/read", reads.batch, "read")
    routing.add("GET", "/requests/{id}", calls.status, "requests")
    routing.add("DELETE", "/requests/{id}", calls.cancel, "requests")
    routing.add("GET", "/entities/{entity}/{key}", entity_reads.entity, "entities")
    for route in app.routes:
        serve = handler_of(app, route, calls, entity_reads)
        routing.add(route.verb, route.path, serve, "route")


def _serve_pages(routing: Router, health: HealthHandler, pages: PageHandler) -> None:
    routing.add("GET", "/healthz", health.alive, "health")
    routing.add("GET", "/readyz", health.ready, "health")
    routing.add("GET", "/openapi.json", pages.openapi, "docs")
    routing.add("GET", "/docs", pages.docs, "docs")


def _serve_metrics(
    routing: Router, metrics: Metrics, journal: Journal, log: Log, load: LoadSampler
) -> None:
    async def exposition(request: HttpRequest) -> Response:
        request.principal.require_admin()
        text, content_type = await asyncio.to_thread(metrics.exposition, journal, log)
        return Response(text, 200, None, content_type)

    async def recent(request: HttpRequest) -> Response:
        request.principal.require_admin()
        points = await load.recent(request.seconds("seconds", KEPT_S, KEPT_S))
        return Response(json_of(RecentLoad(STEP_US // 1_000_000, points)), 200, None, JSON)

    routing.add("GET", "/metrics", exposition, "metrics")
    routing.add("GET", "/metrics/recent", recent, "metrics")


def _sampled_load(data: Path, log: Log, tail: AsyncJournalTail) -> LoadSampler:
    load = LoadSampler(data, log.end, lambda: tail.positions.get(ONLY_PARTITION, Lsn(0)))
    load.start()
    return load


def _readers(app: App, spec: str, config: Config, metrics: Metrics) -> ReaderPool | None:
    """Start the readers, if the application has `@readonly` handlers, `@migrate`, or code in arguments."""
    migrates = any(entity_type.migrations for entity_type in app.entities.values())
    if not config.gateway.readers or not (migrates or _has_readonly(app) or calls_with_code(app)):
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
    return ReaderPool(settings, metrics, config.gateway.waiting_max)


def _has_readonly(app: App) -> bool:
    methods = [entity_type.methods.values() for entity_type in app.entities.values()]
    return any(
        handler.readonly for group in (*methods, app.functions.values()) for handler in group
    )
