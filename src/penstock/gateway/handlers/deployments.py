"""`/deployments`: the deployments of an application, for its operators.

Uploaded code never runs in the gateway's own process: child processes import it.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import msgspec
from starlette.responses import Response

from penstock.base.deployment_answers import (
    DeploymentReport,
    DeploymentResult,
    ListedDeployment,
)
from penstock.base.http import JSON
from penstock.deployment.archives import without_folder
from penstock.deployment.deploy_order import DeployOrder, Removal, Rollback
from penstock.deployment.deployment_list import list_deployments
from penstock.deployment.loading import locate
from penstock.deployment.uploads import UPLOAD_BYTES_MAX, unpacked_upload
from penstock.errors import RequestError
from penstock.files.roots import journal_root
from penstock.gateway.errors import HttpError
from penstock.gateway.http_request import HttpRequest, whole_number
from penstock.gateway.order_desk import OrderDesk, ok, order_in
from penstock.gateway.route import (
    AN_OBJECT,
    ORDER_TIMEOUT,
    WATCH,
    Answer,
    Parameter,
    Route,
    admin_key,
    any_of,
    json_content,
    waits,
)
from penstock.history.code_report import report_on
from penstock.history.deployment_difference import deployment_difference
from penstock.journal.deployments import Deployments
from penstock.orders.order import Place, Way
from penstock.process.config import Config
from penstock.views.deployment_check import CHILD

ZIP: Final = "application/zip"
PATH: Final = "/deployments"
CHECK_S: Final = 120.0
EPOCHS: Final = 100
_EPOCHS_MAX: Final = 10_000
_OF_ARCHIVE: Final = (
    Parameter("app", "query", "With an archive: the application in it.", {"type": "string"}),
    Parameter(
        "check",
        "query",
        "With an archive: only return the report.",
        {"type": "boolean", "default": False},
    ),
    Parameter(
        "drop",
        "query",
        "With an archive: the stored classes that the code lacks, separated by commas. Their entities stay stored.",
        {"type": "string"},
    ),
    Parameter(
        "epochs",
        "query",
        "With `check`: the most epochs that run again.",
        {"type": "integer", "minimum": 0, "maximum": _EPOCHS_MAX, "default": EPOCHS},
    ),
)
"""The fields of the query string that belong to an archive."""


class DeploymentHandler:
    """Lists deployments, and deploys code into the running application."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._desk = OrderDesk(config)
        self._uploading = asyncio.Lock()  # an archive is large, and a check imports an application
        self._comparing = asyncio.Lock()

    @Route(
        "GET",
        PATH,
        "deployments",
        name="deployments.list",
        right=WATCH,
        answers=(Answer("All deployments, in order.", json_content(list[ListedDeployment])),),
    )
    async def index(self, request: HttpRequest) -> Response:
        """List the deployments."""
        every = await asyncio.to_thread(list_deployments, self._config.data)
        return ok(every)

    @Route(
        "GET",
        "/deployments/{number}",
        "deployments",
        name="deployments.difference",
        right=WATCH,
        parameters=(
            Parameter("number", "path", "", {"type": "integer", "minimum": 1}, is_required=True),
        ),
        answers=(Answer("The report.", json_content(DeploymentReport)),),
        errors=(404, 410, 504),
    )
    async def difference(self, request: HttpRequest) -> Response:
        """Show the changes that a deployment has made.

        The report compares it with the deployment before; the first one has no changes.
        """
        text = request.path["number"]
        every = await asyncio.to_thread(Deployments(journal_root(self._config.data)).every)
        if not any(text == str(each.number) for each in every):
            raise HttpError(404, "not-found", f"there is no deployment {text!r}")
        async with self._comparing:
            report = await asyncio.to_thread(deployment_difference, self._config.data, int(text))
        return ok(report)

    @Route(
        "POST",
        PATH,
        "deployments",
        name="deployments.order",
        right=admin_key("a deployment"),  # it runs code here
        parameters=(*_OF_ARCHIVE, ORDER_TIMEOUT),
        body={
            ZIP: {"schema": {"type": "string", "format": "binary"}},
            JSON: any_of(Rollback, Removal),
        },
        answers=(
            Answer(
                "The code is in force, or the report.",
                {JSON: any_of(DeploymentResult, DeploymentReport)},
            ),
            waits(AN_OBJECT),
        ),
        errors=(409, 504),
    )
    async def order(self, request: HttpRequest) -> Response:
        """Deploy code.

        The body is the archive of a source, or JSON: the number of a former deployment, whose code is
        deployed again, or the application to remove from a set of applications. The response comes when all
        gateways serve the code. Code that does not fit is refused with 409, and nothing changes.
        """
        if request.media_type != ZIP:
            names = [each.name for each in _OF_ARCHIVE]
            request.refuse_fields(
                names, f"it belongs to an archive ({ZIP}), and the body is an order"
            )
            return await self._desk.give(request, _order_in(await request.json()))
        app, dropped_names = request.field("app", ""), request.field("drop", "")
        if not app:
            raise RequestError("?app= names the application in the archive: module:name")
        if not (app + dropped_names).isprintable():
            raise RequestError("a name in ?app= or ?drop= has a control character")
        drop = [name for name in dropped_names.split(",") if name]
        checks = request.flag("check")
        if not checks:
            request.refuse_fields(("epochs",), "only a check runs epochs again; add check=true")
        text = request.field("epochs", str(EPOCHS))
        epochs = whole_number("epochs", text, "is not a number of epochs", 0, _EPOCHS_MAX)
        facts: dict[str, object] = {"app": app, "drop": drop}
        async with self._uploading:
            archive = await request.body(UPLOAD_BYTES_MAX)
            order = _Check(archive, app, drop, epochs) if checks else _Upload(archive, app, drop)
            return await self._desk.give(request, order, facts)


@dataclass(frozen=True, slots=True)
class _Upload:
    """An order to deploy the code of an archive."""

    archive: bytes
    app: str
    drop: list[str]

    way: ClassVar[Way] = DeployOrder.way

    def carry_out(self, place: Place, timeout_s: float) -> DeploymentResult:
        with unpacked_upload(self.archive, self.app) as spec:
            return DeployOrder(spec, self.drop).carry_out(place, timeout_s)


@dataclass(frozen=True, slots=True)
class _Check:
    """An order to report on the code of an archive; it appends nothing."""

    archive: bytes
    app: str
    drop: list[str]
    epochs: int

    way: ClassVar[Way] = replace(
        DeployOrder.way, noun="a check of a deployment", waits=None, is_awaited=False
    )

    def carry_out(self, place: Place, _timeout_s: float) -> DeploymentReport:
        with unpacked_upload(self.archive, self.app) as spec:
            settings = replace(place.settings, app=spec)
            report = report_on(settings, self.epochs, self.drop, work_s=CHECK_S, child=CHILD)
            folder = locate(spec).folder
        findings = [  # the sender knows other paths
            msgspec.structs.replace(finding, what=without_folder(finding.what, folder))
            for finding in report.findings
        ]
        return msgspec.structs.replace(report, findings=findings)


def _order_in(body: bytes) -> Rollback | Removal:
    expected = f"{Rollback.way.example}, or an archive ({ZIP})"
    fields = order_in(body, dict[str, msgspec.Raw], expected)
    if "remove" in fields:
        return order_in(body, Removal, expected)
    return order_in(body, Rollback, expected)
