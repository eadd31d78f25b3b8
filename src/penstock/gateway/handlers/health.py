"""`/healthz` and `/readyz`: whether this process is alive, and whether it can serve.

A gateway is ready if it can append requests and follow the journal, and if epochs are committed. So it is not ready
while the log cannot be written, the disk is full, so many records wait that further ones are refused, or no epoch takes the waiting records for
`stuck_s`, whether the driver stands still or none runs. `/readyz` also says whether a driver and a view run, and which step
each of them has reached if it starts. A gateway whose driver starts again stays ready for that time: it accepts requests, and they
are answered then. A gateway without a view stays ready, too: only SQL queries need the view. The answer is public, so it
holds no path.
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Final, Literal

from starlette.responses import Response

from penstock.base.http import JSON
from penstock.errors import PenstockError
from penstock.files.roots import store_of
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.intake import AppendBatcher
from penstock.gateway.responses import Health, Readiness, json_of, reply_headers
from penstock.gateway.route import OPEN, Answer, Route, json_content, page, reference_to
from penstock.gateway.telemetry.load_sampler import Backlog, LoadSampler
from penstock.journal.tail import AsyncJournalTail
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.disk_space import full_text
from penstock.process.driver_claim import driver_runs
from penstock.process.startup import step_of

_LEASE_S: Final = 3.0
"""The time between two looks at the lease of an application in an object store."""

ProcessState = Literal["running", "starting", "absent"]


class HealthHandler:
    """Reports the health of one gateway.

    Args:
        deployment_problem: Says why the gateway cannot serve the newest deployment; empty if it serves it.
    """

    def __init__(
        self,
        config: Config,
        tail: AsyncJournalTail,
        batcher: AppendBatcher,
        load: LoadSampler,
        is_draining: Callable[[], bool],
        deployment_problem: Callable[[], str],
    ) -> None:
        self._config = config
        self._data = config.data
        self._tail = tail
        self._batcher = batcher
        self._load = load
        self._is_draining = is_draining
        self._deployment_problem = deployment_problem
        self._is_far = bool(store_of(config.data))
        self._looked_s = -_LEASE_S
        self._drives = False

    @Route(
        "GET",
        "/healthz",
        "health",
        name="gateway.alive",
        right=OPEN,
        answers=(page(JSON, reference_to(Health)),),
    )
    async def alive(self, request: HttpRequest) -> Response:
        """Check whether the process is alive."""
        return Response(b'{"status":"alive"}', 200, reply_headers(self._tail.epoch), JSON)

    @Route(
        "GET",
        "/readyz",
        "health",
        name="gateway.ready",
        right=OPEN,
        answers=(
            page(JSON, reference_to(Readiness)),
            Answer("The gateway is not ready.", json_content(Readiness), status=503),
        ),
    )
    async def ready(self, request: HttpRequest) -> Response:
        """Check whether the gateway can serve."""
        driver, driver_step = self._state_of("driver")
        if driver == "absent" and await self._drives_elsewhere():
            driver = "running"
        view, view_step = self._state_of("view")
        missing_driver = _missing_driver(driver, driver_step)
        backlog = await self._backlog()
        reasons = ["this gateway stops"] if self._is_draining() else []
        reasons += [failure.code] if (failure := self._tail.failure) is not None else []
        reasons += await self._append_problems(backlog)
        reasons += self._epoch_problems(backlog, missing_driver)
        readiness = Readiness(
            status="not ready" if reasons else "ready",
            reasons=reasons,
            pid=os.getpid(),
            epoch=self._tail.epoch,
            waiting=self._tail.waiting,
            lag=None if backlog is None else backlog.records,
            driver=driver,
            view=view,
            missing=[
                *missing_driver,
                *_missing_view(view, view_step),
                *_missing_deployment(self._deployment_problem()),
            ],
        )
        headers = reply_headers(self._tail.epoch)
        return Response(json_of(readiness), 503 if reasons else 200, headers, JSON)

    async def _drives_elsewhere(self) -> bool:
        """Say whether a driver of another host holds the lease; the store is asked once in some seconds."""
        if self._is_far and (now_s := time.monotonic()) - self._looked_s >= _LEASE_S:
            self._looked_s = now_s
            self._drives = await asyncio.to_thread(driver_runs, self._data)
        return self._drives

    async def _backlog(self) -> Backlog | None:
        """Return the records that wait; None if the log cannot be read."""
        try:
            return await self._load.backlog()
        except PenstockError:
            return None

    async def _append_problems(self, backlog: Backlog | None) -> list[str]:
        """Return the reasons why requests are refused now."""
        problems = []
        try:
            full = full_text(self._data)
        except OSError as error:
            problems.append(f"the data directory cannot be read: {error.strerror}")
        else:
            problems += [full] if full else []
        if backlog is None:
            problems.append("the log cannot be read; the gateway's log output says why")
        elif backlog.records > self._config.gateway.lag_max:
            problems.append(
                f"{backlog.records:,} records wait in the log, and gateway.lag_max refuses more"
            )
        if not await self._batcher.is_writable():
            problems.append("the log cannot be written; the gateway's log output says why")
        return problems

    def _epoch_problems(self, backlog: Backlog | None, missing_driver: list[str]) -> list[str]:
        """Return the reason why no epoch is committed, if records wait for one."""
        if backlog is None or backlog.standing_s < self._config.stuck_s:
            return []
        cause = missing_driver[0].partition(":")[0] if missing_driver else "the driver stands still"
        return [
            f"no epoch for {backlog.standing_s:.0f} s, while {backlog.records:,} records wait in the log: {cause}; "
            "see penstock status"
        ]

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
