"""`/failed` and the attempts of failed requests, for operators: the list, another attempt, or none."""

import asyncio
import logging
from typing import Final, Literal

from starlette.responses import Response

from penstock.errors import BY_CODE
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.order_desk import ok
from penstock.gateway.route import ADMIN, NAMED, REQUESTS, WATCH, Answer, Route, json_content
from penstock.model.reply import raised_by
from penstock.model.request import Failure
from penstock.orders.attempts import Attempt, AttemptOrder
from penstock.orders.order import Place
from penstock.process.config import Config
from penstock.sql_view.failed_requests import FailedRequests, failed_in

_log = logging.getLogger(__name__)

PATH: Final = "/failed"


def _attempt(order: str) -> Route:
    """Return the route that orders an attempt of one request."""
    return Route(
        "POST",
        f"/requests/{{id}}/{order}",
        "failed",
        name=f"requests.{order}",
        tag=REQUESTS,
        right=ADMIN,
        parameters=(NAMED,),
        answers=(Answer("The attempt is in the log.", json_content(Attempt)),),
        errors=(409, 503),
    )


class FailedHandler:
    """Lists the failed requests of the background, and appends the attempts of failed requests."""

    def __init__(self, config: Config) -> None:
        self._config = config

    @Route(
        "GET",
        PATH,
        "failed",
        name="failed.list",
        right=WATCH,
        answers=(
            Answer("The failed requests that no caller waits for.", json_content(FailedRequests)),
        ),
        errors=(503, 504),
    )
    async def index(self, request: HttpRequest) -> Response:
        """List failed requests."""
        failed = await asyncio.to_thread(failed_in, self._config.data)
        return ok(failed)

    @_attempt("retry")
    async def retry(self, request: HttpRequest) -> Response:
        """Run a failed request again.

        Runs a failed request again, once, as the next attempt of its id. An answer that the application has
        declared is final.
        """
        return await self._order_one(request, "retry")

    @_attempt("discard")
    async def discard(self, request: HttpRequest) -> Response:
        """Discard a failed request.

        Ends the attempts of a failed request: its result is the error `cancelled`.
        """
        return await self._order_one(request, "discard")

    async def _order_one(
        self, request: HttpRequest, order: Literal["retry", "discard"]
    ) -> Response:
        attempt = AttemptOrder(order, [request.named_id()])
        place = Place(self._config, by=request.principal.name)
        done = await asyncio.to_thread(attempt.carry_out, place)
        for refused in done.refused:
            raise raised_by(Failure(refused.code, BY_CODE[refused.code].__name__, refused.message))
        _log.info("%s were ordered", attempt.way.noun, extra={"principal": place.by})
        return ok(done.attempts[0])
