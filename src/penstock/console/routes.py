"""The console: a page with its files, and the data that the page shows.

The page is public; its data need the scope `watch` or `admin`, except the list of requests with their scopes, which every key opens,
as it opens the document of the API. Only `penstock dev` has the route that kills the driver, and only
the console's own page can use it. The figures of an answer are of the same moment. The driver is not disturbed, and need
not run. No file of the data directory stays open between two answers.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Final, ParamSpec

import msgspec
import psutil
from starlette.responses import Response

from penstock.base.http import CONSOLE, JSON
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.base.instants import with_times
from penstock.console.health import HealthReader
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.public_surface import public_surface
from penstock.dataflow.text import plan_json
from penstock.errors import Forbidden, OperationalError
from penstock.files.layout import LOG
from penstock.gateway.errors import HttpError
from penstock.gateway.http_request import HttpRequest, parse_epoch
from penstock.gateway.route import ADMIN, OPEN, WATCH, Route
from penstock.log.clock import wall_clock_us
from penstock.log.sqlite import SqliteLog
from penstock.model.application import App
from penstock.orders.paused_workflows import workflow_lags
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.epoch_report import EpochReport
from penstock.process.hosts import HostLook
from penstock.process.presence import RunningProcess
from penstock.process.reports import ReportReader
from penstock.process.status import ApplicationStatus, status_in, survey
from penstock.sql_view.system_tables import arguments_text, recorded_call
from penstock.sql_view.view_client import view_epoch

EPOCHS_MAX: Final = 600
"""The largest number of epoch reports in an answer."""

INCIDENTS_MAX: Final = 20
"""The largest number of incidents in an answer."""

REQUESTS_MAX: Final = 25
"""The largest number of requests in an answer."""
_ARGUMENTS_SHOWN: Final = 600
PAGE: Final = "index.html"
_FILE: Final = re.compile(rb'( (?:href|src)=")([\w-]+\.\w+")')
"""The name of a file in the page, with the text before it."""
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
"""The browser refuses files from other sites."""
P = ParamSpec("P")
_KIND: Final = "other"
_KILL: Final = "kill-driver"
_encode: Final = msgspec.json.Encoder().encode


class Killed(msgspec.Struct, frozen=True):
    """The driver that was killed, and how the application stood right before."""

    pid: int
    now_us: int
    epoch: Epoch
    accepted: int
    answered: int


class Observation:
    """Looks at one application's data directory."""

    def __init__(self, app: App, config: Config, *, dev: bool) -> None:
        """Look at the data directory of a configuration, which need not exist yet."""
        self._application = app
        self._config = config
        self._app, self._data = app.name, config.data
        self._dev = dev
        self._reports = ReportReader(self._data)

    def now(self) -> ApplicationStatus:
        """Return how the application stands.

        Raises:
            OperationalError: Log or journal cannot be read.
            IntegrityError: They are damaged.
        """
        seen = survey(self._data, self._app, view_epoch(self._data))
        lags = workflow_lags(self._application, self._config)
        return msgspec.structs.replace(
            seen,
            dev=self._dev,
            incidents=seen.incidents[:INCIDENTS_MAX],
            processes=[_without_socket(process) for process in seen.processes],
            rates=msgspec.structs.replace(seen.rates, lags=lags),
        )

    def epochs(self, after: Epoch) -> list[EpochReport]:
        """Return reports of later epochs, the newest 600 at most."""
        newest = status_in(self._data, self._app).epoch
        return self._reports.after(max(after, Epoch(newest - EPOCHS_MAX)))[-EPOCHS_MAX:]

    def kill_driver(self) -> Killed:
        """Kill the driver with SIGKILL; that very process, never another one of the same number."""
        now_us = wall_clock_us()
        standing = status_in(self._data, self._app)
        for driver in presence.find(self._data, "driver"):
            try:
                process = psutil.Process(driver.pid)
                if (
                    driver.alive
                ):  # the process id has not been reused; psutil checks this again at the kill
                    process.kill()
                    return Killed(
                        driver.pid, now_us, standing.epoch, standing.accepted, standing.answered
                    )
            except psutil.NoSuchProcess:
                continue
        raise OperationalError("no driver runs that could be killed; perhaps it starts again now")


def _without_socket(process: RunningProcess) -> RunningProcess:
    # A path of this machine is of no use to a browser.
    details = {name: value for name, value in process.details.items() if name != "socket"}
    return msgspec.structs.replace(process, details=details)


class ScheduledRequest(msgspec.Struct, frozen=True):
    """A request that is not due yet. `arguments` is JSON text, cut at 600 characters."""

    request_id: str
    due_us: int
    entity: str | None
    key: str | None
    method: str
    arguments: str


class ScheduledRequests(msgspec.Struct, frozen=True):
    """The requests that are due next, and whether others follow them."""

    requests: list[ScheduledRequest]
    has_more: bool


def scheduled_in(data: Path) -> ScheduledRequests:
    """Return the scheduled requests in a data directory, those that are due next first."""
    path = data / LOG
    if not path.exists():  # opening it would make it
        return ScheduledRequests([], has_more=False)
    with closing(SqliteLog(path)) as log:
        upcoming = log.upcoming(REQUESTS_MAX + 1)
    requests = [
        _described(entry.request_id, due_us, entry.body)
        for due_us, entry in upcoming[:REQUESTS_MAX]
    ]
    return ScheduledRequests(requests, has_more=len(upcoming) > REQUESTS_MAX)


def _described(request_id: str, due_us: int, body: bytes) -> ScheduledRequest:
    call = recorded_call(body)
    return ScheduledRequest(
        request_id=request_id,
        due_us=due_us,
        entity=call.entity or None,
        key=call.key,
        method=call.method,
        arguments=arguments_text(call)[:_ARGUMENTS_SHOWN],
    )


_ASK_AGAIN: Final = "no-cache"
_KEEP: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Asset:
    """One of the page's own files: it holds no data of the application, so it is public."""

    content: bytes
    headers: dict[str, str]

    def answer(self, request: HttpRequest) -> Response:
        """Return the file, or 304 to a browser that has it."""
        known = {tag.strip() for tag in request.headers.get("if-none-match", "").split(",")}
        if self.headers["ETag"] in known:
            return Response(status_code=304, headers=self.headers)
        return Response(self.content, headers=self.headers)


def load_assets() -> dict[str, Asset]:
    """Return every file of the console by its name."""
    files = resources.files("penstock.console").joinpath("static").iterdir()
    return {file.name: _asset(file.name, file.read_bytes()) for file in files if file.is_file()}


def _asset(name: str, content: bytes) -> Asset:
    headers = {
        "Content-Type": _TYPES[name.rpartition(".")[2]],
        "Content-Security-Policy": _POLICY,
        "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        "Cache-Control": _ASK_AGAIN,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return Asset(content, headers)


class Assets:
    """The page and its files. The page names its files by a folder whose name is the digest of all of them.

    So the browser asks again for the page alone, and sees an upgrade at once; it keeps the files of a version.

    Attributes:
        page: The page.
        version: The name of the folder.
    """

    def __init__(self, files: Mapping[str, Asset]) -> None:
        self._files = files
        tags = "".join(files[name].headers["ETag"] for name in sorted(files))
        self.version = hashlib.sha256(tags.encode()).hexdigest()[:16]
        page = _FILE.sub(rf"\g<1>{self.version}/\2".encode(), files[PAGE].content)
        self.page = _asset(PAGE, page)
        self._kept = {
            name: replace(file, headers={**file.headers, "Cache-Control": _KEEP})
            for name, file in files.items()
        }

    def find(self, name: str, version: str | None = None) -> Asset | None:
        """Return a file, to be kept if it is named with its version; None if there is no such file."""
        if version is None:
            return self._files.get(name)
        return self._kept.get(name) if version == self.version else None


def console_handlers(app: App, config: Config, *, dev: bool) -> list[object]:
    """Return the handlers of the console for a version of the application.

    Args:
        config: Its settings, of which the console uses the data directory.
    """
    observation = Observation(app, config, dev=dev)
    console = ConsoleHandler(app, config, observation)
    return [console, KillHandler(observation)] if dev else [console]


class ConsoleHandler:
    """Serves the page and its data."""

    def __init__(self, app: App, config: Config, observation: Observation) -> None:
        self._assets = Assets(load_assets())
        self._plan = plan_json(analyze_app(app)).encode()
        self._surface = _encode({"requests": [row._asdict() for row in public_surface(app)]})
        self._data = config.data
        self._health = HealthReader(config.data)
        self._observation = observation
        self._hosts = HostLook(config.data)

    @Route("GET", "/console", _KIND, right=OPEN, fields=None)
    async def page(self, request: HttpRequest) -> Response:
        """Return the page."""
        if not request.scope["path"].endswith("/"):  # its files have relative addresses
            return Response(None, 308, {"Location": "console/"})
        return self._assets.page.answer(request)

    @Route("GET", "/console/{name}", _KIND, right=OPEN, fields=None)
    @Route("GET", "/console/{version}/{name}", _KIND, right=OPEN, fields=None)
    async def file(self, request: HttpRequest) -> Response:
        """Return a file of the page."""
        asset = self._assets.find(request.path["name"], request.path.get("version"))
        if asset is None:
            raise HttpError(404, "not-found", "the console has no such file")
        return asset.answer(request)

    @Route("GET", "/console/api/plan", _KIND, right=WATCH)
    async def plan(self, request: HttpRequest) -> Response:
        """Return the dataflow graph of the application."""
        return _json_response(self._plan)

    @Route("GET", "/console/api/surface", _KIND)
    async def surface(self, request: HttpRequest) -> Response:
        """Return the requests from outside with their scopes, as `penstock explain --format scopes` lists them."""
        return _json_response(self._surface)

    @Route("GET", "/console/api/status", _KIND, right=WATCH)
    async def status(self, request: HttpRequest) -> Response:
        """Return the state of the application now."""
        return await self._answer(self._observation.now)

    @Route("GET", "/console/api/health", _KIND, right=WATCH)
    async def health(self, request: HttpRequest) -> Response:
        """Return the figures by which the Overview says whether the application is well."""
        return await self._answer(self._health.now)

    @Route("GET", "/console/api/hosts", _KIND, right=WATCH)
    async def hosts(self, request: HttpRequest) -> Response:
        """Return the hosts of an application in an object store."""
        return await self._answer(self._hosts.seen)

    @Route("GET", "/console/api/epochs", _KIND, right=WATCH, fields=("after",))
    async def epochs(self, request: HttpRequest) -> Response:
        """Return the reports of epochs."""
        text = request.field("after", str(BEFORE_FIRST))
        after = BEFORE_FIRST if text == str(BEFORE_FIRST) else Epoch(parse_epoch("after", text))
        return await self._answer(self._observation.epochs, after)

    @Route("GET", "/console/api/scheduled", _KIND, right=WATCH)
    async def scheduled(self, request: HttpRequest) -> Response:
        """Return the scheduled requests."""
        return await self._answer(scheduled_in, self._data)

    async def _answer(self, read: Callable[P, object], *args: P.args, **more: P.kwargs) -> Response:
        return _json_response(_encode(with_times(await asyncio.to_thread(read, *args, **more))))


class KillHandler:
    """Kills the driver for the console's own page."""

    def __init__(self, observation: Observation) -> None:
        self._observation = observation

    @Route("POST", f"/console/api/{_KILL}", _KIND, right=ADMIN)
    async def kill(self, request: HttpRequest) -> Response:
        """Kill the driver."""
        site = request.headers.get("sec-fetch-site", "same-origin")
        origin = request.headers.get("origin")
        same = origin is None or origin.partition("://")[2] == request.headers.get("host")
        if request.headers.get(CONSOLE.lower()) != _KILL or not same or site != "same-origin":
            raise Forbidden(
                f"only the console's own page may do this, with the header {CONSOLE}: {_KILL}"
            )
        killed = await asyncio.to_thread(self._observation.kill_driver)
        return _json_response(_encode(with_times(killed)))


def _json_response(body: bytes) -> Response:
    """Return encoded JSON that no cache keeps."""
    return Response(body, 200, {"Cache-Control": "no-store"}, JSON)
