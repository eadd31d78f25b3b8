"""`OrderDesk`: it carries out the orders of operators, and answers them. Each order is a line of the log output.

Each order and each report of the folder `orders` has a path without further code here: `order_routes` makes it. An
order whose path does more has a handler of its own, such as a deployment.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final, TypeVar, cast

import msgspec
from starlette.responses import Response

from penstock import orders
from penstock.base.http import JSON, STATUS
from penstock.errors import PenstockError, RequestError, TimedOut, UserError
from penstock.exchange import import_order
from penstock.gateway.errors import error_response, failure_of
from penstock.gateway.flow import orders as pauses
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.responses import json_of
from penstock.gateway.route import (
    ADMIN,
    AN_OBJECT,
    ORDER_TIMEOUT,
    WATCH,
    Answer,
    Handler,
    Route,
    admin_key,
    json_content,
    texts_of,
    waits,
)
from penstock.model.application import App
from penstock.orders.order import WAIT_S, Order, Place, Report, Way
from penstock.process.config import Config

_log: Final = logging.getLogger(__name__)

_OF_RECORDS: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
"""The names that a fact of a line in the log output cannot have."""

_PREFIX: Final = f"{orders.__name__}."

T = TypeVar("T")


Turns = defaultdict[str, asyncio.Lock]
"""A lock for each path of orders."""


def order_routes() -> Iterator[tuple[Route, type[Order[Any]] | Report[Any]]]:
    """Yield the path of each order and report, in the folder `orders`, in `gateway.flow.orders` and in `exchange`."""
    modules = [import_module(each.name) for each in iter_modules(orders.__path__, _PREFIX)]
    # The order of pauses knows the limits of the gateway, and that of imports the code in force.
    for module in (*modules, pauses, import_order):
        for member in vars(module).values():
            if isinstance(member, Report):
                yield _report_route(member), member
            elif isinstance(getattr(member, "way", None), Way):
                yield _order_route(member), member


def _order_route(order_type: type[Order[Any]]) -> Route:
    way, (summary, description) = order_type.way, texts_of(order_type)
    fields = msgspec.structs.fields(cast("type[msgspec.Struct]", order_type))
    right = admin_key(way.noun) if way.needs_key else ADMIN
    answers = [Answer(way.text, json_content(way.result))]
    if way.is_awaited:
        # A late order has only a message, unless its result can say that the driver has not executed it.
        answers.append(waits(AN_OBJECT if way.waits is None else json_content(way.result)))
    return Route(
        "POST",
        way.path,
        way.path.strip("/"),
        name=way.name,
        right=right,
        parameters=(ORDER_TIMEOUT,) if way.is_awaited else (),
        body=json_content(order_type),
        is_body_required=any(field.required for field in fields),
        answers=tuple(answers),
        summary=summary,
        description=f"{description} {right.text}".strip(),
    )


def _report_route(report: Report[Any]) -> Route:
    return Route(
        "GET",
        report.path,
        report.path.strip("/"),
        name=report.name,
        right=WATCH,
        answers=(Answer(report.text, json_content(report.answer)),),
        summary=texts_of(report.at)[0],
        description=WATCH.text,
    )


class OrderDesk:
    """Takes orders: of each path, one after the other, because an order may hold a thread for as long as it waits.

    Args:
        app: The application; None for orders that need only the data directory.
        turns: Shared by the desks of all versions of an application: an order may be under way when a deployment
            takes effect. None for a desk that is alone.
    """

    def __init__(self, config: Config, app: App | None = None, turns: Turns | None = None) -> None:
        self._config = config
        self._app = app
        self._turns = defaultdict(asyncio.Lock) if turns is None else turns

    def routes(self) -> Iterator[tuple[Route, Handler]]:
        """Yield the paths of all orders and reports with their handlers."""
        for route, served in order_routes():
            if isinstance(served, Report):
                yield route, partial(self._report, served)
            else:
                yield route, partial(self._take, served)

    async def _report(self, report: Report[Any], request: HttpRequest) -> Response:
        return ok(await asyncio.to_thread(report.at, Place(self._config, self._app)))

    async def _take(self, order_type: type[Order[Any]], request: HttpRequest) -> Response:
        body = await request.json() or b"{}"  # an order may need no field
        order = order_in(body, order_type, order_type.way.example)
        return await self.give(request, order)

    async def give(
        self, request: HttpRequest, order: Order[Any], facts: dict[str, object] | None = None
    ) -> Response:
        """Carry out an order of a principal, who has the right for it.

        Args:
            facts: The facts for the log output; None: the fields of the order.
        """
        way, by = order.way, request.principal.name
        place = Place(self._config, self._app, by)
        told = {**(_facts_of(order) if facts is None else facts), "principal": by}
        timeout_s = request.wait_s("timeout", WAIT_S, WAIT_S)
        try:
            async with self._turns[way.path]:
                made = await asyncio.to_thread(order.carry_out, place, timeout_s)
        except PenstockError as error:
            if isinstance(error, TimedOut) and way.is_awaited:
                _log.warning("%s waits for the driver", way.noun, extra=told)
                return _accepted({"message": str(error)}, way.path)
            facts = told | {"code": error.code, "error": str(error)}
            _log.warning("%s was refused", way.noun, extra=facts)
            if way.conflicts and isinstance(error, UserError) and STATUS[error.code] >= 500:
                return error_response(409, failure_of(error))
            raise
        _log.info("%s was ordered", way.noun, extra=told)
        return ok(made) if way.waits is None or not way.waits(made) else _accepted(made, way.path)


def _facts_of(order: Order[Any]) -> dict[str, object]:
    """Return the fields of an order for the log output, which has names of its own, such as `name`."""
    fields: dict[str, object] = msgspec.to_builtins(order)
    return {f"order_{name}" if name in _OF_RECORDS else name: fields[name] for name in fields}


def _accepted(answer: object, path: str) -> Response:
    return Response(json_of(answer), 202, {"Location": path}, JSON)


def ok(answer: object) -> Response:
    """Return the response with an answer."""
    return Response(json_of(answer), 200, None, JSON)


def order_in(body: bytes, order_type: type[T], example: str) -> T:
    """Return the order in a body; the example is for the message."""
    try:
        return msgspec.json.decode(body, type=order_type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"the body is not an order such as {example}: {error}") from error
