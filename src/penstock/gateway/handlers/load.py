"""`GET /metrics` and `GET /metrics/recent`: the figures of an application for operators and their tools."""

import asyncio

from starlette.responses import Response

from penstock.base.http import JSON
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.responses import RecentLoad, json_of
from penstock.gateway.route import WATCH, Answer, Route, json_content, page, seconds
from penstock.gateway.telemetry.load_sampler import LoadSampler
from penstock.gateway.telemetry.metrics import Metrics
from penstock.journal.api import Journal
from penstock.log.api import Log
from penstock.model.application import App
from penstock.orders.paused_workflows import workflow_lags
from penstock.process.config import Config
from penstock.process.load_history import KEPT_S, STEP_US


class LoadHandler:
    """Serves the metrics and the load of one application."""

    def __init__(
        self,
        app: App,
        config: Config,
        metrics: Metrics,
        load: LoadSampler,
        journal: Journal,
        log: Log,
    ) -> None:
        self._app = app
        self._config = config
        self._metrics = metrics
        self._load = load
        self._journal = journal
        self._log = log

    def serve(self, app: App) -> None:
        """Show the workflows of another version of the application."""
        self._app = app
        if self._load.streams is not None:
            self._load.streams.serve(app)

    @Route(
        "GET",
        "/metrics",
        "metrics",
        name="gateway.metrics",
        right=WATCH,
        answers=(page("text/plain"),),
    )
    async def exposition(self, request: HttpRequest) -> Response:
        """Return metrics for Prometheus."""
        self._metrics.flush()
        text, content_type = await asyncio.to_thread(self._exposition)
        return Response(text, 200, None, content_type)

    def _exposition(self) -> tuple[bytes, str]:
        return self._metrics.exposition(
            self._journal, self._log, workflow_lags(self._app, self._config)
        )

    @Route(
        "GET",
        "/metrics/recent",
        "metrics",
        name="gateway.load",
        right=WATCH,
        parameters=(seconds("seconds", "Only the last seconds; all if absent."),),
        answers=(Answer("The load.", json_content(RecentLoad)),),
    )
    async def recent(self, request: HttpRequest) -> Response:
        """Get the load of the last hour.

        Returns answered requests, latency percentiles, processed requests and lag of all
        gateways, in steps of some seconds.
        """
        points = await self._load.recent(request.wait_s("seconds", KEPT_S, KEPT_S))
        return Response(json_of(RecentLoad(STEP_US // 1_000_000, points)), 200, None, JSON)
