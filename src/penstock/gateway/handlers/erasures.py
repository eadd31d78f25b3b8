"""`GET /erasures` and `POST /erasures`: the erasures of persons, for operators. Each order is a line of the log output."""

import asyncio
import logging
from typing import Final

from starlette.responses import Response

from penstock.base.http import JSON
from penstock.errors import PenstockError, TimedOut
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.order_body import order_in
from penstock.gateway.responses import json_of
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
from penstock.orders.erasure_order import ErasureOrder, certificates, erase, subject_named
from penstock.process.config import Config
from penstock.process.erasures import Certificate, Erasures

_log = logging.getLogger(__name__)

PATH: Final = "/erasures"
WAIT_S: Final = 60.0


class ErasureHandler:
    """Lists certificates, and erases persons of the running application."""

    def __init__(self, app: App, config: Config) -> None:
        """Create the handler.

        Args:
            app: The application.
            config: The settings, which name the data directory.
        """
        self._app = app
        self._config = config
        self._erasing = asyncio.Lock()  # each order may hold a thread for as long as it waits

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
        return Response(json_of(every), 200, None, JSON)

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
        timeout_s = request.wait_s("timeout", WAIT_S, WAIT_S)
        expected = 'an order such as {"subject": "User/ada"}'
        text = order_in(await request.json(), ErasureOrder, expected).subject
        facts = {"subject": text, "principal": request.principal.name}
        try:
            async with self._erasing:
                made = await asyncio.to_thread(self._erase, text, timeout_s)
        except TimedOut as error:
            _log.warning("an erasure waits for the driver", extra=facts)
            return Response(json_of({"message": str(error)}), 202, {"Location": PATH}, JSON)
        except PenstockError as error:
            _log.warning("an erasure was refused", extra=facts | {"code": error.code})
            raise
        _log.warning("a person was erased", extra=facts | {"certificate": made.hash})
        return Response(json_of(made), 200, None, JSON)

    def _erase(self, text: str, timeout_s: float) -> Certificate:
        subject = subject_named(self._app, text)
        generation = Erasures(self._config.data).generation(subject)
        return erase(self._config, self._app, subject, generation, timeout_s)
