"""`/healthz` and `/readyz`: whether this process lives, and whether it can serve.

Alive is whoever answers. Ready is who can take requests and follow the journal; whether a driver
processes them now is told beside, because while it starts again requests are taken all the same and
answered afterwards.
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


class HealthHandler:
    """Tells how one gateway is."""

    def __init__(self, data: Path, tail: AsyncJournalTail, is_draining: Callable[[], bool]) -> None:
        """Ask these."""
        self._data = data
        self._tail = tail
        self._is_draining = is_draining

    async def alive(self, request: HttpRequest) -> Response:
        """Serve `GET /healthz`."""
        return Response(b'{"status":"alive"}', 200, reply_headers(self._tail.epoch), JSON)

    async def ready(self, request: HttpRequest) -> Response:
        """Serve `GET /readyz`."""
        failure = self._tail.failure
        reasons = ["this gateway stops"] if self._is_draining() else []
        reasons += [failure.code] if failure is not None else []
        readiness = Readiness(
            status="not ready" if reasons else "ready",
            reasons=reasons,
            pid=os.getpid(),
            epoch=self._tail.epoch,
            waiting=self._tail.waiting,
            driver=self._presence_of("driver"),
            view=self._presence_of("view"),
        )
        headers = reply_headers(self._tail.epoch)
        return Response(json_of(readiness), 503 if reasons else 200, headers, JSON)

    def _presence_of(self, role: str) -> Literal["running", "absent"]:
        return "running" if presence.find(self._data, role) else "absent"
