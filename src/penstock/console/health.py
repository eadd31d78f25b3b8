"""The figures by which the Overview says whether the application is well.

They are read from the data directory and, for outcomes of requests, from the SQL view. The readiness of the gateway
(`/readyz`), and the standing of views and effects (`/console/api/status`), are told elsewhere; the page joins them.
"""

import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.http import NDJSON
from penstock.deployment.code_in_force import deployment_in_force
from penstock.engine.failure import REPEATABLE
from penstock.errors import PenstockError, ViewUnavailable
from penstock.log.clock import wall_clock_us
from penstock.orders.pauses import PauseFile
from penstock.process.load_history import KEPT_S, LoadSample, percentile_ms, read_samples
from penstock.sql_view.failed_requests import failed_in
from penstock.sql_view.query_body import QueryBody
from penstock.sql_view.view_client import query_view, socket_of

RECENT_S: Final = 300
"""The seconds that count as now; they are compared with the rest of the hour before them."""

FAILED_MAX: Final = 100
"""The most failed requests of the background that are counted."""

_COUNT_SHARE: Final = 50
"""Counting takes at most this part of the time."""

_CODES: Final = ", ".join(f"'{code}'" for code in sorted(REPEATABLE))
_FAILED: Final = f"a.error IN ({_CODES})"
_UNDONE: Final = f"a.error NOT IN ({_CODES})"
_OUTCOMES: Final = f"""\
SELECT count(*) AS requests, count(*) FILTER ({_FAILED}) AS failed, count(*) FILTER ({_UNDONE}) AS undone,
       count(*) FILTER ({_FAILED} AND r.time >= CAST($2 AS TIMESTAMPTZ)) AS failed_recently
FROM penstock.requests r JOIN penstock.replies a USING (epoch, lsn, request_id)
WHERE r.time >= CAST($1 AS TIMESTAMPTZ)"""  # noqa: S608 -- names of ours


class Latency(msgspec.Struct, frozen=True):
    """The latency of the requests that gateways have answered in a time; None if there was no request."""

    requests: int
    p50_ms: float | None
    p95_ms: float | None


class Outcomes(msgspec.Struct, frozen=True):
    """The requests of the last hour that the SQL view holds.

    Attributes:
        failed: Those that failed without an answer that the application declares: mistakes in its code.
        undone: Those with such an answer.
        failed_recently: Those of `failed` that came in the last `RECENT_S` seconds.
    """

    requests: int
    failed: int
    undone: int
    failed_recently: int


class InForce(msgspec.Struct, frozen=True):
    """The deployment whose code runs: its number, its first epoch, its time and its principal."""

    number: int
    since: int
    time_us: int
    by: str


class Health(msgspec.Struct, frozen=True):
    """The figures of one moment.

    Attributes:
        latency: That of the last `recent_s` seconds.
        latency_before: That of the rest of the last hour.
        outcomes: None if no SQL view answers.
        waiting: The failed requests of the background, at most `FAILED_MAX`; None if no SQL view answers.
        paused: The targets of the pauses in force.
        deployment: None before the first start.
    """

    recent_s: int
    latency: Latency
    latency_before: Latency
    outcomes: Outcomes | None
    waiting: int | None
    paused: list[str]
    deployment: InForce | None


class HealthReader:
    """Reads the figures of a data directory, for all open pages of a gateway. Threads may share it.

    The outcomes of an hour are a query over all of its requests, 0.2 s for 850,000. So an answer is used again for
    `_COUNT_SHARE` times as long as the query took.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._counting = threading.Lock()
        self._counted: tuple[Outcomes | None, int | None] = None, None
        self._due_s = float("-inf")

    def now(self) -> Health:
        """Return the figures; zeros before the first start of the application.

        Raises:
            Corrupt: A file of pauses or deployments is damaged.
        """
        now_us = wall_clock_us()
        recent_us, since_us = now_us - RECENT_S * 1_000_000, now_us - KEPT_S * 1_000_000
        samples = list(read_samples(self._data, since_us))
        present = deployment_in_force(self._data)
        outcomes, waiting = self._counts(since_us, recent_us)
        return Health(
            recent_s=RECENT_S,
            latency=_latency([sample for sample in samples if sample.time_us > recent_us]),
            latency_before=_latency([sample for sample in samples if sample.time_us <= recent_us]),
            outcomes=outcomes,
            waiting=waiting,
            paused=sorted(PauseFile(self._data).pauses().in_force),
            deployment=None
            if present is None
            else InForce(present.number, present.since, present.time_us, present.by),
        )

    def _counts(self, since_us: int, recent_us: int) -> tuple[Outcomes | None, int | None]:
        """Return the outcomes of requests and the failed ones that wait, as they were counted last, or now."""
        with self._counting:  # pages that ask at the same time share one count
            began_s = time.monotonic()
            if began_s >= self._due_s:
                try:
                    waiting = len(failed_in(self._data, FAILED_MAX).requests)
                    self._counted = _outcomes(self._data, since_us, recent_us), waiting
                except PenstockError:  # `/readyz` says that the view is missing
                    self._counted = None, None
                ended_s = time.monotonic()
                self._due_s = ended_s + _COUNT_SHARE * (ended_s - began_s)
            return self._counted


def _latency(samples: list[LoadSample]) -> Latency:
    counts = [sum(column) for column in zip(*(sample.counts for sample in samples), strict=True)]
    return Latency(sum(counts), percentile_ms(counts, 0.5), percentile_ms(counts, 0.95))


def _outcomes(data: Path, since_us: int, recent_us: int) -> Outcomes:
    socket = socket_of(data)
    if socket is None:
        raise ViewUnavailable("no SQL view runs here; penstock run starts one")
    times = [
        datetime.fromtimestamp(at / 1_000_000, UTC).isoformat() for at in (since_us, recent_us)
    ]
    body = msgspec.json.encode(QueryBody(_OUTCOMES, times))
    return msgspec.json.decode(query_view(socket, body, NDJSON).content, type=Outcomes)
