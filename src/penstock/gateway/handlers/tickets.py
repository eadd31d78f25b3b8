"""`POST /streams/-/tickets`: a ticket, with which a page in a browser opens one event stream; see `gateway.auth.tickets`."""

from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from penstock.base.http import JSON
from penstock.errors import RequestError
from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.auth.tickets import FIELD, ticket_in
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.responses import json_of
from penstock.gateway.route import STREAMS, Answer, Route, Router, json_content

TICKETS: Final = "/streams/-/tickets"
"""No stream has the name `-`, and no application has a path below `/streams`."""


class TicketQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    """A question for a ticket."""

    path: Annotated[
        str,
        Meta(
            max_length=8_192,
            description="The path of the event stream, encoded, with its query string.",
        ),
    ]


class TicketBody(Struct, frozen=True):
    """A ticket."""

    ticket: Annotated[str, Meta(description="The field `ticket` of the query string.")]
    path: Annotated[str, Meta(description="The path with its query string and the ticket.")]
    expires: Annotated[datetime, Meta(description="The end of the time for opening the stream.")]


_decode: Final = msgspec.json.Decoder(TicketQuestion).decode


class TicketHandler:
    """Makes tickets for the event streams of one version of the application.

    Args:
        authenticator: Makes the tickets, and takes them.
        routing: Finds the path that a ticket is for.
    """

    def __init__(self, authenticator: Authenticator, routing: Router) -> None:
        self._authenticator = authenticator
        self._routing = routing

    @Route(
        "POST",
        TICKETS,
        "tickets",
        name="streams.ticket",
        tag=STREAMS,
        body=json_content(TicketQuestion),
        answers=(Answer("The ticket.", json_content(TicketBody)),),
    )
    async def ticket(self, request: HttpRequest) -> Response:
        """Make a ticket for an event stream.

        A ticket opens one path within 60 seconds, with the rights of its asker and without a header, which an `EventSource` in a browser
        cannot send. The stream ends with the key or the token of the asker.
        """
        try:
            path = _decode(await request.json()).path
            target, mark, query = path.encode("ascii").partition(b"?")
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise RequestError(f"this is no question for a ticket: {error}") from error
        place = self._routing.find("GET", target) if target.startswith(b"/") else None
        if place is None or not place[0].takes_ticket or ticket_in(query) is not None:
            raise RequestError(
                f"{path[:200]!r} is not the path of an event stream without a ticket: /entities/{{class}}/{{key}}/changes, "
                "/streams/{stream} or /tables/{table}"
            )
        ticket, until_s = self._authenticator.ticket(request.scope["headers"], target, query)
        whole = f"{path}{'&' if query else '' if mark else '?'}{FIELD}={ticket}"
        body = TicketBody(ticket, whole, datetime.fromtimestamp(until_s, UTC))
        return Response(json_of(body), 200, {"Cache-Control": "no-store"}, JSON)
