"""`OrderDesk`: it carries out the orders of operators, and answers them. Each order is a line of the log output."""

import asyncio
import logging
from collections import defaultdict
from typing import Any, Final, TypeVar

import msgspec
from starlette.responses import Response

from penstock.base.http import JSON, STATUS
from penstock.errors import PenstockError, RequestError, TimedOut, UserError
from penstock.gateway.errors import error_response, failure_of
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.responses import json_of
from penstock.model.application import App
from penstock.orders.order import WAIT_S, Order, Place
from penstock.process.config import Config

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


class OrderDesk:
    """Takes orders: of each path, one after the other, because an order may hold a thread for as long as it waits."""

    def __init__(self, config: Config, app: App | None = None) -> None:
        self._config = config
        self._app = app
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def take(self, request: HttpRequest, order_type: type[Order[Any]]) -> Response:
        """Carry out the order in the body of a request; raises as `give`, and `RequestError`."""
        order = order_in(await request.json(), order_type, order_type.way.example)
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
        told = {**(msgspec.to_builtins(order) if facts is None else facts), "principal": by}
        timeout_s = request.wait_s("timeout", WAIT_S, WAIT_S)
        try:
            async with self._turns[way.path]:
                made = await asyncio.to_thread(order.carry_out, place, timeout_s)
        except PenstockError as error:
            if isinstance(error, TimedOut) and way.is_durable:
                _log.warning("%s waits for the driver", way.noun, extra=told)
                return _accepted({"message": str(error)}, way.path)
            facts = told | {"code": error.code, "error": str(error)}
            _log.warning("%s was refused", way.noun, extra=facts)
            if way.conflicts and isinstance(error, UserError) and STATUS[error.code] >= 500:
                return error_response(409, failure_of(error))
            raise
        _log.info("%s was ordered", way.noun, extra=told)
        return _accepted(made, way.path) if way.waits(made) else ok(made)


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
