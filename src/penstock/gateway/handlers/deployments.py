"""`GET /deployments` and `POST /deployments`: the deployments of an application, for its operators.

Uploaded code never runs in the gateway's own process: child processes import it. Each order is a line of the log output.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from starlette.responses import Response

from penstock.base.deployment_answers import DeploymentReport, DeploymentResult, Rollback
from penstock.base.http import JSON, STATUS
from penstock.errors import Forbidden, PenstockError, RequestError, TimedOut, UserError
from penstock.files.layout import JOURNAL
from penstock.gateway.auth.principal import ANONYMOUS, Principal
from penstock.gateway.errors import HttpError, error_response
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.responses import json_of
from penstock.journal.deployments import Deployments
from penstock.process.config import Config
from penstock.process.deployment_list import list_deployments
from penstock.process.dropped_classes import dropped
from penstock.process.live_deployment import deployed_code, former_code, put_in_force, store_code
from penstock.process.uploads import UPLOAD_BYTES_MAX, check_upload, unpacked_upload

_log = logging.getLogger(__name__)

ZIP: Final = "application/zip"
PATH: Final = "/deployments"
WAIT_S: Final = 60.0
EPOCHS: Final = 100
_EPOCHS_MAX: Final = 10_000


class DeploymentHandler:
    """Lists deployments, and deploys code into the running application."""

    def __init__(self, config: Config) -> None:
        """Create the handler.

        Args:
            config: The settings, which name the data directory.
        """
        self._config = config
        self._ordering = asyncio.Lock()  # an archive is large, and a check imports an application

    async def index(self, request: HttpRequest) -> Response:
        """Serve `GET /deployments`: all deployments."""
        request.principal.require_admin()
        every = await asyncio.to_thread(list_deployments, self._config.data)
        return Response(json_of(every), 200, None, JSON)

    async def order(self, request: HttpRequest) -> Response:
        """Serve `POST /deployments`: deploy an archive, check it, or deploy a former one again."""
        _require_key(request.principal)
        async with self._ordering:
            work, facts = await self._work(request)
            facts |= {"principal": request.principal.name}
            try:
                answer = await asyncio.to_thread(work)
            except TimedOut as error:
                if "check" in facts:
                    raise
                _log.info("a deployment waits for the driver", extra=facts)
                location = {"Location": PATH}
                return Response(json_of({"message": str(error)}), 202, location, JSON)
            except PenstockError as error:
                _log.warning("a deployment was refused", extra=facts | {"code": error.code})
                return _refusal(error)
        return _answered(answer, facts)

    async def _work(
        self, request: HttpRequest
    ) -> tuple[Callable[[], DeploymentResult | DeploymentReport], dict[str, object]]:
        """Return the function that a thread runs, and the facts of its line of the log output."""
        timeout_s = request.seconds("timeout", WAIT_S, WAIT_S)
        if request.media_type != ZIP:
            rollback = _rollback_of(await request.json())
            return lambda: self._roll_back(rollback, timeout_s), {"rollback": rollback.number}
        fields = request.query()
        app = fields.get("app", "")
        if not app:
            raise RequestError("?app= names the application in the archive: module:name")
        drop = [name for name in fields.get("drop", "").split(",") if name]
        archive = await request.body(UPLOAD_BYTES_MAX)
        if fields.get("check", "false") == "true":
            epochs = _epochs(fields)
            return lambda: self._check(archive, app, epochs, drop), {"app": app, "check": True}
        return lambda: self._deploy(archive, app, timeout_s, drop), {"app": app, "drop": drop}

    def _deploy(
        self, archive: bytes, app: str, timeout_s: float, drop: Sequence[str]
    ) -> DeploymentResult:
        data = self._config.data
        replaced = deployed_code(data)
        with unpacked_upload(archive, app) as spec:
            code = store_code(data, spec)
        return put_in_force(self._config, code, timeout_s, replaced, dropped(drop))

    def _check(
        self, archive: bytes, app: str, epochs: int, drop: Sequence[str]
    ) -> DeploymentReport:
        with unpacked_upload(archive, app) as spec:
            return check_upload(self._config.data, spec, epochs, drop)

    def _roll_back(self, rollback: Rollback, timeout_s: float) -> DeploymentResult:
        every = Deployments(self._config.data / JOURNAL).every()
        code = former_code(every, rollback.number)
        return put_in_force(self._config, code, timeout_s, drop=dropped(rollback.drop))


def _require_key(principal: Principal) -> None:
    """Check that a key or token allows to run code here: an open gateway must not let every caller do this.

    Raises:
        Forbidden: The principal is anonymous, or lacks the scope `admin`.
    """
    principal.require_admin()
    if principal == ANONYMOUS:
        raise Forbidden(
            "a deployment needs a key or token with the scope admin; make a key with "
            "penstock keys add NAME --scope admin APP"
        )


def _answered(answer: DeploymentResult | DeploymentReport, facts: dict[str, object]) -> Response:
    """Write the line of an order that succeeded, and return its response."""
    if isinstance(answer, DeploymentReport):
        _log.info("a deployment was checked", extra=facts | {"verdict": answer.verdict})
        return Response(json_of(answer), 200, None, JSON)
    facts |= {"archive": answer.archive, "number": answer.number, "changed": answer.changed}
    _log.info("a deployment was ordered", extra=facts)
    if answer.changed and answer.number is None:  # no driver runs
        return Response(json_of(answer), 202, {"Location": PATH}, JSON)
    return Response(json_of(answer), 200, None, JSON)


def _refusal(error: PenstockError) -> Response:
    """Return the response to an order whose code does not fit; other errors have their usual one."""
    status = STATUS[error.code]
    if not isinstance(error, UserError) or status < 500:
        raise error
    return error_response(409, error.code, error.kind or type(error).__name__, str(error))


def _rollback_of(body: bytes) -> Rollback:
    try:
        return msgspec.json.decode(body, type=Rollback)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestError(
            f'the body is neither an archive ({ZIP}) nor an order as {{"number": 2}}: {error}'
        ) from error


def _epochs(fields: dict[str, str]) -> int:
    text = fields.get("epochs", str(EPOCHS))
    if not (text.isdecimal() and text.isascii()) or len(text) > 5 or int(text) > _EPOCHS_MAX:
        raise HttpError(400, "request", f"epochs={text} is not a number from 0 to {_EPOCHS_MAX}")
    return int(text)
