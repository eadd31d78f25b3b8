"""`/healthz` and `/readyz`: whether this process is alive, and whether it can serve.

A gateway is ready if it can append requests and follow the journal. `/readyz` also says whether a
driver and a view run, and which step each of them has reached if it starts. A gateway without a driver stays ready: it
accepts requests, and they are answered when a driver runs again. A gateway without a view stays ready, too: only SQL
queries need the view.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from starlette.responses import Response

from penstock.base.http import JSON
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.response_bodies import Readiness
from penstock.gateway.responses import json_of, reply_headers
from penstock.journal.tail import AsyncJournalTail
from penstock.process import presence
from penstock.process.startup import step_of

ProcessState = Literal["running", "starting", "absent"]


class HealthHandler:
    """Reports the health of one gateway."""

    def __init__(
        self,
        data: Path,
        tail: AsyncJournalTail,
        is_draining: Callable[[], bool],
        deployment_problem: Callable[[], str],
    ) -> None:
        """Create the handler.

        Args:
            data: The data directory.
            tail: The gateway's journal tail.
            is_draining: Says whether the gateway is about to stop.
            deployment_problem: Says why the gateway cannot serve the newest deployment; empty if it serves it.
        """
        self._data = data
        self._tail = tail
        self._is_draining = is_draining
        self._deployment_problem = deployment_problem

    async def alive(self, request: HttpRequest) -> Response:
        """Serve `GET /healthz`."""
        return Response(b'{"status":"alive"}', 200, reply_headers(self._tail.epoch), JSON)

    async def ready(self, request: HttpRequest) -> Response:
        """Serve `GET /readyz`."""
        failure = self._tail.failure
        reasons = ["this gateway stops"] if self._is_draining() else []
        reasons += [failure.code] if failure is not None else []
        driver, driver_step = self._state_of("driver")
        view, view_step = self._state_of("view")
        readiness = Readiness(
            status="not ready" if reasons else "ready",
            reasons=reasons,
            pid=os.getpid(),
            epoch=self._tail.epoch,
            waiting=self._tail.waiting,
            driver=driver,
            view=view,
            missing=[
                *_missing_driver(driver, driver_step),
                *_missing_view(view, view_step),
                *_missing_deployment(self._deployment_problem()),
            ],
        )
        headers = reply_headers(self._tail.epoch)
        return Response(json_of(readiness), 503 if reasons else 200, headers, JSON)

    def _state_of(self, role: str) -> tuple[ProcessState, str | None]:
        """Return the state of the process of a role, and the step that it has reached if it starts."""
        if presence.find(self._data, role):
            return "running", None
        step = step_of(self._data, role)
        return ("absent" if step is None else "starting"), step


def _missing_driver(driver: ProcessState, step: str | None) -> list[str]:
    match driver:
        case "running":
            return []
        case "starting":
            return [f"the driver starts ({step}): requests are durable, and wait for it"]
        case "absent":
            return ["no driver runs: requests are durable, and wait until a driver starts"]


def _missing_view(view: ProcessState, step: str | None) -> list[str]:
    match view:
        case "running":
            return []
        case "starting":
            return [f"the view starts ({step}): SQL queries are refused until it listens"]
        case "absent":
            return ["no view runs: SQL queries are refused"]


def _missing_deployment(problem: str) -> list[str]:
    return [f"this gateway serves older code: {problem}"] if problem else []
