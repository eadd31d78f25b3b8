"""Builds a gateway: opens log, journal and state, and adds the handlers of all paths.

```python
gateway = await assemble(app, spec, config)
...
await gateway.close()
```
"""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import Final

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
from penstock.base.ids import ONLY_PARTITION, Lsn
from penstock.deployment.code_in_force import CodeInForce
from penstock.gateway.append_batcher import AppendBatcher
from penstock.gateway.application import Gateway
from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.auth.origin_policy import allowed_origins
from penstock.gateway.connections import Connections
from penstock.gateway.entity_reader import EntityReader
from penstock.gateway.flow.admission import Admission, watched_pauses
from penstock.gateway.flow.limit_table import LimitTable, limits_in_force
from penstock.gateway.handlers.deployments import DeploymentHandler
from penstock.gateway.handlers.health import HealthHandler
from penstock.gateway.handlers.history import HistoryHandler
from penstock.gateway.handlers.load import LoadHandler
from penstock.gateway.handlers.sql import SqlHandler
from penstock.gateway.handlers.streams import StreamHandler
from penstock.gateway.intake import Intake
from penstock.gateway.pipeline.endpoint import PipelineEndpoint
from penstock.gateway.pipeline.intake import PipelineIntake
from penstock.gateway.telemetry.load_sampler import LoadSampler
from penstock.gateway.telemetry.metrics import Metrics
from penstock.gateway.telemetry.request_tracing import RequestTracer, TracingMiddleware
from penstock.gateway.telemetry.stream_sampler import StreamSampler
from penstock.gateway.version import MoreHandlers, SharedParts, no_handlers, version_of
from penstock.gateway.version_switch import VersionSwitch
from penstock.journal.delta import DeltaJournal
from penstock.journal.tail import AsyncJournalTail
from penstock.log.api import Log
from penstock.log.sqlite import SqliteLog
from penstock.model.application import App
from penstock.model.route import VERBS
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.open_files import connections_within

_log = logging.getLogger(__name__)

_GOES_ON: Final = "the gateway goes on with the code that it has: %s"


@dataclass(frozen=True, slots=True)
class Assembly:
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

    async def close(self) -> None:
        """Close all resources; no request may be running."""
        self._following.cancel()
        await asyncio.wait({self._following})
        self._load.close()
        self._shared.metrics.flush()
        self._shared.history.close()
        self._shared.streams.close()
        await self.versions.close()
        await self._shared.sql.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        await self._shared.batcher.close()
        self._shared.admission.close()
        self.tail.close()
        self._shared.entities.close()
        self._journal.close()
        self._log.close()


async def assemble(
    app: App, spec: str, config: Config, *, more: MoreHandlers = no_handlers
) -> Assembly:
    """Open log, journal and state of an application, and build its gateway.

    Call this in the event loop that serves.
    """
    directory = DataDirectory(config.data)
    directory.create(config.key_service)
    journal, log = directory.open_journal(app), directory.open_log(config)
    deployments = CodeInForce(config.data, spec, partial(_log.error, _GOES_ON))
    metrics = Metrics(config.data, asyncio.get_running_loop().call_later)
    tail = AsyncJournalTail(journal, metrics.waiting)
    load = _sampled_load(log, tail, StreamSampler(app, config, metrics.follow, tail))
    connections = Connections(connections_within(config.gateway.connections_max, config.partitions))
    authenticator = Authenticator.of(config, app, journal.secret)
    gateway = Gateway(config.gateway, authenticator, metrics, load, connections)
    limits = LimitTable(limits_in_force(app, config.gateway.limits), config.gateway.processes)
    pauses = watched_pauses(config.data)
    batcher = AppendBatcher(log, metrics)
    admission = Admission(config.gateway, limits, pauses, tail, metrics.flow, log.end())
    shared = SharedParts(
        config=config,
        tail=tail,
        batcher=batcher,
        entities=EntityReader(config.data, app.name),
        sql=SqlHandler(config.data, config),
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
            app, journal, tail, metrics.follow, gateway.authenticator, connections
        ),
        deployments=DeploymentHandler(config),
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
