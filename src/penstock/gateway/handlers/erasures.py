"""`GET /erasures` and `POST /erasures`: the erasures of persons, for operators."""

import asyncio
from typing import Final

from starlette.responses import Response

from penstock.gateway.http_request import HttpRequest
from penstock.gateway.order_desk import OrderDesk, ok
from penstock.gateway.route import (
    ADMIN,
    AN_OBJECT,
    ORDER_TIMEOUT,
    Answer,
    Route,
    admin_key,
    json_content,
    list_content,
    waits,
)
from penstock.model.application import App
from penstock.orders.erasure_order import ErasureOrder, certificates
from penstock.process.config import Config

PATH: Final = "/erasures"


class ErasureHandler:
    """Lists certificates, and erases persons of the running application."""

    def __init__(self, app: App, config: Config) -> None:
        self._config = config
        self._desk = OrderDesk(config, app)

    @Route(
        "GET",
        PATH,
        "erasures",
        name="erasures.list",
        right=ADMIN,
        answers=(Answer("All certificates, in order.", list_content("PenstockCertificate")),),
    )
    async def index(self, request: HttpRequest) -> Response:
        """List the certificates of erasures."""
        every = await asyncio.to_thread(certificates, self._config)
        return ok(every)

    @Route(
        "POST",
        PATH,
        "erasures",
        name="erasures.order",
        right=admin_key("an erasure"),
        parameters=(ORDER_TIMEOUT,),
        body=json_content("PenstockErasureOrder"),
        answers=(
            Answer("The key is destroyed; the certificate.", json_content("PenstockCertificate")),
            waits(AN_OBJECT),
        ),
    )
    async def order(self, request: HttpRequest) -> Response:
        """Erase a person.

        Deletes an entity of a personal class, and destroys the key of its data. This cannot be undone.
        """
        return await self._desk.take(request, ErasureOrder)
