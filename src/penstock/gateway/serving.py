"""One gateway as a process: a socket, an event loop, and a graceful end.

SIGTERM and SIGINT, or the end of standard input where a supervisor holds it, begin the drain: new
requests and those that are not in the log yet get 503, those in the log get their answers, then the
process ends. Several gateways share one port (`SO_REUSEPORT`), and the kernel spreads connections.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from penstock.base.http import (
    EPOCH,
    IDEMPOTENCY_KEY,
    MIN_EPOCH,
    OLDEST_ATOM,
    REQUEST_ID,
    RETRY_AFTER,
)
from penstock.base.ids import ONLY_PARTITION, Epoch, Lsn
from penstock.deployment.code_in_force import CodeInForce
from penstock.errors import PenstockError, TimedOut
from penstock.gateway.application import Gateway
from penstock.gateway.auth.authentication import Authenticator, allowed_origins
from penstock.gateway.connections import Connections
from penstock.gateway.flow.admission import Admission, watched_pauses
from penstock.gateway.flow.limit_table import LimitTable, limits_in_force
from penstock.gateway.handlers.at import PointReader
from penstock.gateway.handlers.deployments import DeploymentHandler
from penstock.gateway.handlers.health import HealthHandler
from penstock.gateway.handlers.history import HistoryHandler
from penstock.gateway.handlers.load import LoadHandler
from penstock.gateway.handlers.search import Searches
from penstock.gateway.handlers.sql import SqlHandler
from penstock.gateway.handlers.streams import StreamHandler
from penstock.gateway.handlers.subscriptions import SubscriptionHandler
from penstock.gateway.intake import AppendBatcher, Intake
from penstock.gateway.order_desk import Turns
from penstock.gateway.pipeline.endpoint import PipelineEndpoint
from penstock.gateway.pipeline.intake import PipelineIntake
from penstock.gateway.reader_pool import EntityReader, ReaderNursery
from penstock.gateway.telemetry.load_sampler import LoadSampler, StreamSampler
from penstock.gateway.telemetry.metrics import Metrics
from penstock.gateway.telemetry.request_tracing import RequestTracer, TracingMiddleware
from penstock.gateway.version import (
    MoreHandlers,
    ServedVersion,
    SharedParts,
    no_handlers,
    version_of,
)
from penstock.journal.delta import DeltaJournal
from penstock.journal.deployments import Deployment
from penstock.journal.tail import AsyncJournalTail
from penstock.log.api import Log
from penstock.log.sqlite import SqliteLog
from penstock.model.application import App
from penstock.model.route import VERBS
from penstock.process import presence
from penstock.process.config import Config, GatewayConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.large_pages import HEAP
from penstock.process.open_files import connections_within
from penstock.process.process_limits import keep_present_objects
from penstock.process.serving import serving, until_stopped
from penstock.process.stop import stop_event

_GOES_ON: Final = "the gateway goes on with the code that it has: %s"


_LOOK_S: Final = 1.0
"""The longest time between two looks: a driver that starts records a deployment without an epoch."""

READY_S: Final = 60.0
"""How long the first reader of a version may take to load the application."""


class VersionSwitch:
    """Lets the gateway serve each deployment of the application from its commit on; for one event loop.

    If a deployment cannot be served, the gateway goes on with the version that it has, tells of the
    failure in `/readyz` and in its log, and tries again.

    Attributes:
        on_retired: Is called when the last request of a former version has its response.
    """

    def __init__(
        self, gateway: Gateway, code: CodeInForce, shared: SharedParts, more: MoreHandlers
    ) -> None:
        self.on_retired: Callable[[], None] = lambda: None
        self._gateway = gateway
        self._code = code
        self._shared = shared
        self._more = more
        self._retiring: dict[asyncio.Task[None], ServedVersion] = {}

    @property
    def present(self) -> ServedVersion:
        """The version that gets new requests."""
        return self._gateway.version

    @property
    def _following(self) -> Epoch:
        return Epoch(self._shared.tail.epoch + 1)

    def is_behind(self) -> bool:
        """Say whether a newer deployment than the served one is in force."""
        try:
            return self._code.wanted(self._following) is not None
        except PenstockError:
            return True

    async def behind(self) -> bool:
        """Say the same, from a thread where the look waits for a network."""
        return await asyncio.to_thread(self.is_behind) if self._code.is_far else self.is_behind()

    async def run(self) -> None:
        """Serve the deployment that executes the next epoch, as soon as a commit names it, until the task is cancelled."""
        tail = self._shared.tail
        while True:
            known = (
                tail.deployment
            )  # before the look, which thus finds at least what this epoch names
            if (deployment := await self._due()) is not None:
                with self._code.exchange(deployment):
                    await self._take(deployment)
            await tail.until_deployed(known, _LOOK_S)

    async def _due(self) -> Deployment | None:
        if self._code.is_far:
            return await asyncio.to_thread(self._code.due, self._following)
        return self._code.due(self._following)

    async def _take(self, deployment: Deployment) -> None:
        former = self.present
        config = self._shared.config
        loaded = await asyncio.to_thread(self._code.load, deployment)
        if loaded is None:
            return
        app, spec = loaded.app, loaded.location.spec
        handlers = await asyncio.to_thread(self._more, app)
        limits = limits_in_force(app, config.gateway.limits)
        version = version_of(app, spec, self._shared, handlers)
        try:
            # The new version is complete before a single assignment gives it the next request.
            if version.readers is not None:
                await version.readers.ready(READY_S)
        except BaseException:
            await version.close()
            raise
        self._shared.admission.apply_limits(limits)
        self._shared.history.serve(app, spec)
        self._shared.streams.serve(app)
        self._shared.load.serve(app)
        # Requests under way end with the version that began them; connections stay open.
        self._gateway.version = version
        _log.info("a deployment is served", extra={"deployment": deployment.number})
        retiring = asyncio.create_task(former.retire())
        self._retiring[retiring] = former
        retiring.add_done_callback(self._retired)

    async def close(self) -> None:
        """End the readers of all versions; no request may be running."""
        retiring = list(self._retiring.items())
        for task, version in retiring:
            task.cancel()
            await asyncio.wait({task})
            await version.close()
        await self.present.close()

    def _retired(self, retiring: asyncio.Task[None]) -> None:
        del self._retiring[retiring]
        if not retiring.cancelled():
            self.on_retired()


class Assembly(msgspec.Struct, frozen=True):
    """A gateway and the resources that it holds open.

    Attributes:
        served: The ASGI application: the gateway inside its middleware.
        deployments: The deployments, and the one that the gateway serves.
        versions: Exchanges the version of the gateway.
    """

    gateway: Gateway
    served: ASGIApp
    tail: AsyncJournalTail
    deployments: CodeInForce
    versions: VersionSwitch
    connections: Connections
    _following: asyncio.Task[None]
    _load: LoadSampler
    _shared: SharedParts
    _tracing: RequestTracer | None
    _log: SqliteLog
    _journal: DeltaJournal

    def refuse_waiting(self) -> None:
        """Refuse the requests that are not in the log yet and wait for their turn, and end event streams."""
        self._shared.admission.refuse_waiting()
        self._shared.streams.stop()
        self._shared.subscriptions.stop()

    async def close(self) -> None:
        """Close all resources; no request may be running."""
        self._following.cancel()
        await asyncio.wait({self._following})
        self._load.close()
        self._shared.metrics.flush()
        self._shared.history.close()
        self._shared.streams.close()
        await self._shared.subscriptions.close()
        await self.versions.close()
        await self._shared.sql.close()
        self._shared.searches.close()
        await self._shared.points.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        await self._shared.batcher.close()
        self._shared.admission.close()
        self.tail.close()
        self._shared.entities.close()
        self._journal.close()
        self._log.close()


async def assemble(
    app: App,
    spec: str,
    config: Config,
    nursery: ReaderNursery,
    *,
    more: MoreHandlers = no_handlers,
) -> Assembly:
    """Open log, journal and state of an application, and build its gateway.

    Call this in the event loop that serves.

    Args:
        nursery: Starts the readers; the caller closes it after the gateway.
    """
    directory = DataDirectory(config.data)
    directory.create(config.key_service)
    journal, log = directory.open_journal(app), directory.open_log(config)
    deployments = CodeInForce(config.data, spec, partial(_log.error, _GOES_ON), known=journal.known)
    metrics = Metrics(config.data, asyncio.get_running_loop().call_later)
    tail = AsyncJournalTail(directory.resting(journal, log), metrics.waiting)
    load = _sampled_load(log, tail, StreamSampler(app, config, metrics.follow, tail))
    connections = Connections(connections_within(config.gateway.connections_max, config.partitions))
    authenticator = Authenticator.of(config, app, journal.secret)
    gateway = Gateway(config.gateway, authenticator, metrics, load, connections)
    limits = LimitTable(limits_in_force(app, config.gateway.limits), config.gateway.processes)
    pauses = watched_pauses(config.data)
    batcher = AppendBatcher(log, metrics)
    entities = EntityReader(config.data, app.name)
    admission = Admission(config.gateway, limits, pauses, tail, metrics.flow, log.end())
    shared = SharedParts(
        config=config,
        tail=tail,
        batcher=batcher,
        entities=entities,
        nursery=nursery,
        sql=SqlHandler(config.data, config),
        searches=Searches(config),
        points=PointReader(config, tail, journal.identity, metrics.point_sessions),
        admission=admission,
        intake=Intake(config.gateway, admission, batcher, tail),
        connections=connections,
        metrics=metrics,
        health=HealthHandler(
            config, tail, batcher, load, lambda: gateway.draining, lambda: deployments.problem
        ),
        load=LoadHandler(app, config, metrics, load, journal, log),
        history=HistoryHandler(app, spec, config),
        streams=StreamHandler(
            app,
            journal,
            tail,
            metrics.follow,
            gateway.authenticator,
            connections,
            entities,
            lambda: versions.behind(),
        ),
        subscriptions=SubscriptionHandler(
            lambda: gateway.version, tail, entities, authenticator, connections
        ),
        authenticator=authenticator,
        deployments=DeploymentHandler(config),
        turns=Turns(asyncio.Lock),
    )
    gateway.version = version_of(app, spec, shared, more(app))
    pipelined = PipelineIntake(lambda: gateway.version, shared.intake, config.gateway)
    gateway.pipeline = PipelineEndpoint(
        gateway.authenticator, pipelined, metrics, load, connections
    )
    versions = VersionSwitch(gateway, deployments, shared, more)
    gateway.is_behind = versions.is_behind
    tracing = RequestTracer.from_environment(app.name, config.data)
    served = _with_cors(gateway if tracing is None else TracingMiddleware(gateway, tracing), config)
    return Assembly(
        gateway,
        served,
        tail,
        deployments,
        versions,
        connections,
        asyncio.create_task(versions.run()),
        load,
        shared,
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


def _sampled_load(log: Log, tail: AsyncJournalTail, streams: StreamSampler) -> LoadSampler:
    load = LoadSampler(
        streams.data, log.end, lambda: tail.positions.get(ONLY_PARTITION, Lsn(0)), streams
    )
    load.start()
    return load


_log = logging.getLogger(__name__)

BACKLOG: Final = 4_096
_LAST_ANSWERS_S: Final = 2.0
_HEAP_S: Final = 5.0
UNSET: Final = Path()
_REACHED_AT: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- names, binding to none


def serve_gateway(
    app: App,
    spec: str,
    config: Config,
    *,
    more: MoreHandlers = no_handlers,
    supervised: bool = False,
) -> None:
    """Serve an application's requests until this process is asked to stop.

    Args:
        config: Its settings; `config.gateway.port` is not 0.
        supervised: Whether the end of standard input asks to stop, too.
    """
    uvloop.run(_serve(app, spec, config, more, supervised=supervised))


async def _serve(
    app: App, spec: str, config: Config, more: MoreHandlers, *, supervised: bool
) -> None:
    settings = config.gateway
    host = _REACHED_AT.get(settings.host, settings.host)
    async with stop_event(supervised=supervised) as stop:
        nursery = ReaderNursery()
        assembly = await assemble(app, spec, config, nursery, more=more)
        keeping = asyncio.create_task(assembly.connections.keep_room(settings.port))
        enlarging = asyncio.create_task(_enlarge_pages())
        server = server_of(assembly.served, settings, assembly.connections.most)
        try:
            async with serving(
                server, lambda: asyncio.open_connection(host, settings.port)
            ) as task:
                url, deployments = url_of(settings), assembly.deployments
                with presence.present(config.data, "gateway", spec, url=url) as announcement:
                    deployments.on_served = partial(_announce, announcement)
                    if deployments.served is not None:
                        deployments.on_served(deployments.served)
                    keep_present_objects()
                    assembly.versions.on_retired = keep_present_objects
                    await until_stopped(stop, task)
                    assembly.refuse_waiting()
                    if not await assembly.gateway.drain(settings.drain_ms / 1_000):
                        _log.warning(
                            "the gateway stops while requests still wait; ask for them by their ids"
                        )
                        assembly.tail.fail(
                            TimedOut(
                                "the gateway stops before the reply; the request is durable and "
                                "will be processed; ask again with the same request id"
                            )
                        )
                        await assembly.gateway.drain(_LAST_ANSWERS_S)
        finally:
            keeping.cancel()
            enlarging.cancel()
            await assembly.close()
            await asyncio.to_thread(nursery.close)


async def _enlarge_pages() -> None:
    """Look after the heap of this process in a thread, since requests wait for the event loop."""
    while True:
        await asyncio.sleep(_HEAP_S)
        if HEAP.is_due:
            await asyncio.to_thread(HEAP.after_work)


def _announce(announcement: presence.Announcement, deployment: Deployment) -> None:
    """Tell other processes which deployment this gateway serves."""
    try:
        announcement.tell(deployment=deployment.number)
    except OSError as error:
        _log.warning("other processes cannot see which code this gateway serves: %s", error)


def url_of(settings: GatewayConfig) -> str:
    """Return where the gateways are reached."""
    scheme = "https" if settings.tls_certificate != UNSET else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{settings.port}"


def server_of(gateway: ASGIApp, settings: GatewayConfig, connections_max: int) -> Server:
    """Return the HTTP server of a gateway, an ASGI application; it does not run yet."""
    tls = settings.tls_certificate != UNSET
    return Server(
        # The server copies the attributes of its application, and would keep a former version alive.
        lambda scope, receive, send: gateway(scope, receive, send),
        address=settings.host,
        port=settings.port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=True,
        backlog=BACKLOG,
        backpressure=connections_max,  # further connections wait in the backlog
        http1_settings=HTTP1Settings(
            header_read_timeout=settings.receive_timeout_ms,
            max_buffer_size=max(8_192 * 2, settings.header_bytes_max * 2),
        ),
        log_enabled=False,
        ssl_cert=settings.tls_certificate if tls else None,
        ssl_key=settings.tls_key if tls else None,
    )
