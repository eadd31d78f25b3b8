"""`/deployments` and `/partitions`: the deployments and the partitions of an application, for its operators.

Uploaded code never runs in the gateway's own process: child processes import it, and another copies the state for a
new number of partitions. Each order is a line of the log output.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

import msgspec
from starlette.responses import Response

from penstock.base.deployment_answers import (
    DeploymentReport,
    DeploymentResult,
    PartitionMove,
    PartitionOrder,
    PartitionProposal,
    Removal,
    Rollback,
)
from penstock.base.http import JSON, STATUS
from penstock.base.ids import BUCKETS
from penstock.deployment.archives import without_folder
from penstock.deployment.deploy_order import (
    deployed_code,
    former_code,
    put_in_force,
    store_code,
    store_without,
)
from penstock.deployment.deployment_list import list_deployments
from penstock.deployment.dropped_classes import classes_in_force, dropped
from penstock.deployment.loading import locate
from penstock.deployment.uploads import UPLOAD_BYTES_MAX, unpacked_upload
from penstock.errors import PenstockError, RequestError, TimedOut, UserError
from penstock.files.layout import JOURNAL
from penstock.gateway.errors import HttpError, error_response, failure_of
from penstock.gateway.http_request import HttpRequest, whole_number
from penstock.gateway.order_body import order_in
from penstock.gateway.responses import json_of
from penstock.gateway.route import (
    ADMIN,
    AN_OBJECT,
    ORDER_TIMEOUT,
    Answer,
    Parameter,
    Route,
    admin_key,
    any_of,
    json_content,
    list_content,
    seconds,
    waits,
)
from penstock.history.code_report import report_on
from penstock.history.deployment_difference import deployment_difference
from penstock.journal.deployments import Deployments
from penstock.orders.command_answer import ask_command
from penstock.orders.partition_proposal import proposal_for
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory

_log = logging.getLogger(__name__)

ZIP: Final = "application/zip"
PATH: Final = "/deployments"
WAIT_S: Final = 60.0
MOVE_S: Final = 3_600.0
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
        """Create the handler.

        Args:
            config: The settings, which name the data directory.
        """
        self._config = config
        self._ordering = asyncio.Lock()  # an archive is large, and a check imports an application
        self._comparing = asyncio.Lock()
        self._moving = (
            asyncio.Lock()
        )  # a move of large state takes long; a rollback must not wait for it

    @Route(
        "GET",
        PATH,
        "deployments",
        name="deployments.list",
        right=ADMIN,
        answers=(Answer("All deployments, in order.", list_content("PenstockDeployment")),),
    )
    async def index(self, request: HttpRequest) -> Response:
        """List the deployments."""
        every = await asyncio.to_thread(list_deployments, self._config.data)
        return Response(json_of(every), 200, None, JSON)

    @Route(
        "GET",
        "/deployments/{number}",
        "deployments",
        name="deployments.difference",
        right=ADMIN,
        parameters=(
            Parameter("number", "path", "", {"type": "integer", "minimum": 1}, is_required=True),
        ),
        answers=(Answer("The report.", json_content("PenstockDeploymentReport")),),
        errors=(404, 410, 504),
    )
    async def difference(self, request: HttpRequest) -> Response:
        """Show the changes that a deployment has made.

        The report compares it with the deployment before; the first one has no changes.
        """
        text = request.path["number"]
        every = await asyncio.to_thread(Deployments(self._config.data / JOURNAL).every)
        if not any(text == str(each.number) for each in every):
            raise HttpError(404, "not-found", f"there is no deployment {text!r}")
        async with self._comparing:
            report = await asyncio.to_thread(deployment_difference, self._config.data, int(text))
        return Response(json_of(report), 200, None, JSON)

    @Route(
        "GET",
        "/partitions",
        "deployments",
        name="partitions.get",
        right=ADMIN,
        answers=(Answer("The proposal.", json_content("PenstockPartitions")),),
    )
    async def partitions(self, request: HttpRequest) -> Response:
        """Return the number of partitions, and a proposal."""
        return Response(json_of(await asyncio.to_thread(self._proposal)), 200, None, JSON)

    @Route(
        "POST",
        "/partitions",
        "deployments",
        name="partitions.move",
        right=admin_key("a move of buckets"),
        parameters=(seconds("timeout", "Seconds to wait after the copy; at most 60."),),
        body=json_content("PenstockPartitionOrder"),
        answers=(
            Answer("The number is in force.", json_content("PenstockPartitionMove")),
            waits(json_content("PenstockPartitionMove")),
        ),
        errors=(504,),
    )
    async def move(self, request: HttpRequest) -> Response:
        """Change the number of partitions.

        The state is copied while requests continue, and the change takes effect between two epochs.
        """
        number = _number_of(await request.json())
        timeout_s = request.wait_s("timeout", WAIT_S, WAIT_S)
        async with self._moving:
            moved = await asyncio.to_thread(self._move, number, timeout_s)
        facts = {"before": moved.before, "partitions": moved.partitions}
        _log.info("a move was ordered", extra=facts | {"principal": request.principal.name})
        waits = moved.before != moved.partitions and moved.epoch is None  # no driver runs
        headers = {"Location": "/partitions"} if waits else None
        return Response(json_of(moved), 202 if waits else 200, headers, JSON)

    def _proposal(self) -> PartitionProposal:
        directory = DataDirectory(self._config.data)
        with closing(directory.open_journal_of(directory.app_name or "")) as journal:
            return proposal_for(self._config, journal.last())

    def _move(self, number: int, timeout_s: float) -> PartitionMove:
        words = ["penstock", "rebalance", "--data", str(self._config.data.absolute()), "--json"]
        words += ["--partitions", str(number), "--timeout", str(timeout_s)]
        words += ["--set", f"partitions={self._config.partitions}"]  # before the first commit
        try:
            return ask_command(words, PartitionMove, MOVE_S)
        except TimeoutError as error:
            raise TimedOut(f"the copy of the state has taken more than {MOVE_S:g} s") from error

    @Route(
        "POST",
        PATH,
        "deployments",
        name="deployments.order",
        right=admin_key("a deployment"),  # it runs code here
        parameters=(*_OF_ARCHIVE, ORDER_TIMEOUT),
        body={
            ZIP: {"schema": {"type": "string", "format": "binary"}},
            JSON: any_of("PenstockRollback", "PenstockRemoval"),
        },
        answers=(
            Answer(
                "The code is in force, or the report.",
                {JSON: any_of("PenstockDeploymentResult", "PenstockDeploymentReport")},
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
                _log.warning(
                    "a deployment was refused",
                    extra=facts | {"code": error.code, "error": str(error)},
                )
                return _refusal(error)
        return _answered(answer, facts)

    async def _work(
        self, request: HttpRequest
    ) -> tuple[Callable[[], DeploymentResult | DeploymentReport], dict[str, object]]:
        """Return the function that a thread runs, and the facts of its line of the log output."""
        timeout_s, by = request.wait_s("timeout", WAIT_S, WAIT_S), request.principal.name
        if request.media_type != ZIP:
            names = [each.name for each in _OF_ARCHIVE]
            request.refuse_fields(
                names, f"it belongs to an archive ({ZIP}), and the body is an order"
            )
            ordered = _order_in(await request.json())
            if isinstance(ordered, Removal):
                return lambda: self._remove(ordered, timeout_s, by), {"remove": ordered.remove}
            return lambda: self._roll_back(ordered, timeout_s, by), {"rollback": ordered.number}
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
        archive = await request.body(UPLOAD_BYTES_MAX)
        if checks:
            return lambda: self._check(archive, app, epochs, drop), {"app": app, "check": True}
        return lambda: self._deploy(archive, app, timeout_s, drop, by), {"app": app, "drop": drop}

    def _deploy(
        self, archive: bytes, app: str, timeout_s: float, drop: Sequence[str], by: str
    ) -> DeploymentResult:
        data = self._config.data
        replaced = deployed_code(data)
        with unpacked_upload(archive, app) as spec:
            code = store_code(data, spec)
        return put_in_force(self._config, code, timeout_s, replaced, dropped(drop), by)

    def _check(
        self, archive: bytes, app: str, epochs: int, drop: Sequence[str]
    ) -> DeploymentReport:
        with unpacked_upload(archive, app) as spec:
            report = report_on(replace(self._config, app=spec), epochs, drop, work_s=CHECK_S)
            folder = locate(spec).folder
        findings = [  # the sender knows other paths
            msgspec.structs.replace(finding, what=without_folder(finding.what, folder))
            for finding in report.findings
        ]
        return msgspec.structs.replace(report, findings=findings)

    def _roll_back(self, rollback: Rollback, timeout_s: float, by: str) -> DeploymentResult:
        every = Deployments(self._config.data / JOURNAL).every()
        code = former_code(every, rollback.number)
        return put_in_force(self._config, code, timeout_s, drop=dropped(rollback.drop), by=by)

    def _remove(self, removal: Removal, timeout_s: float, by: str) -> DeploymentResult:
        data = self._config.data
        replaced = deployed_code(data)
        code = store_without(data, removal.remove)
        return put_in_force(self._config, code, timeout_s, replaced, classes_in_force(data), by)


def _order_in(body: bytes) -> Rollback | Removal:
    expected = f'an archive ({ZIP}) or an order such as {{"number": 2}} or {{"remove": "stock"}}'
    fields = order_in(body, dict[str, msgspec.Raw], expected)
    if "remove" in fields:
        return order_in(body, Removal, expected)
    return order_in(body, Rollback, expected)


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
    if not isinstance(error, UserError) or STATUS[error.code] < 500:
        raise error
    return error_response(409, failure_of(error))


def _number_of(body: bytes) -> int:
    number = order_in(body, PartitionOrder, 'an order such as {"partitions": 8}').partitions
    if not 1 <= number <= BUCKETS:
        raise RequestError(f"partitions={number} is not a number from 1 to {BUCKETS}")
    return number
