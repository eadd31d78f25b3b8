"""The application's own paths, as `@route` maps them.

Each path becomes one handler, which is prepared when the gateway starts. The arguments that are not
in the path come from the query string and, by name, from a JSON body.
"""

from typing import Final

from starlette.responses import Response

from penstock.base.http import STATUS
from penstock.errors import (
    BY_CODE,
    Aborted,
    Cancelled,
    Internal,
    NoSuchEntity,
)
from penstock.gateway.auth.webhooks import WebhookSecrets, WebhookSender
from penstock.gateway.errors import error_response, failure_of
from penstock.gateway.handlers.calls import CallHandler
from penstock.gateway.handlers.entity_read import EntityReadHandler
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.intake import require_right, target_in
from penstock.gateway.responses import failure_response, route_response, value_of
from penstock.gateway.route import READ, SIGNED, Handler, Route
from penstock.model.application import App
from penstock.model.declaration import CREATIONS
from penstock.model.route import SHOW
from penstock.model.route import Route as AppRoute
from penstock.runtime.reads.arguments import CallTarget, RouteArguments, WebhookArguments

KIND: Final = "route"
"""The kind of the routes in metrics."""

_REFUSALS: Final = frozenset(
    code
    for code, error_type in BY_CODE.items()
    if issubclass(error_type, Aborted) and error_type not in (Internal, Cancelled)
)
"""Codes for which the response has the route's own status of a refusal."""


def endpoint_of(
    app: App,
    route: AppRoute,
    calls: CallHandler,
    entity_reads: EntityReadHandler,
    secrets: WebhookSecrets,
) -> tuple[Route, Handler]:
    """Return a route of the application as the gateway serves it, and its handler."""
    if route.signed is not None:
        handler = _SignedRoute(app, route, calls, WebhookSender(route, secrets)).serve
        return Route(route.verb, route.path, KIND, right=SIGNED), handler
    if route.method == SHOW:
        return Route(route.verb, route.path, KIND, fields=READ), _EntityRoute(
            route, entity_reads
        ).serve
    return Route(route.verb, route.path, KIND, fields=None), _CallRoute(app, route, calls).serve


class _EntityRoute:
    """A path that returns the attributes of an entity."""

    def __init__(self, route: AppRoute, entity_reads: EntityReadHandler) -> None:
        self._route = route
        self._entity_reads = entity_reads

    async def serve(self, request: HttpRequest) -> Response:
        route = self._route
        key = request.path[route.key]
        try:
            return await self._entity_reads.show(
                request, route.entity, key, route.shows, route.status
            )
        except NoSuchEntity as error:
            return error_response(route.refused, failure_of(error))


class _CallRoute:
    """A path that calls a method or a function."""

    def __init__(self, app: App, route: AppRoute, calls: CallHandler) -> None:
        self._app = app
        self._route = route
        self._calls = calls
        self._created = app.entities[route.entity].key_name if route.method in CREATIONS else ""
        self._names = [name for name in route.names if name != route.key]

    async def serve(self, request: HttpRequest) -> Response:
        route, path = self._route, request.path
        target = target_in(self._app, route.entity, path.get(route.key), route.method)
        require_right(request.principal, target)
        in_path = {name: path[name] for name in self._names}
        source = RouteArguments(in_path, request.query(), await request.json())
        return await self._answer(request, target, source)

    async def _answer(
        self, request: HttpRequest, target: CallTarget, source: RouteArguments | WebhookArguments
    ) -> Response:
        route = self._route
        reply = await self._calls.process(request, target, source)
        if reply.error is not None:
            # A code that Penstock does not know is the application's own.
            refused = reply.error in _REFUSALS or reply.error not in STATUS
            status = route.refused if refused else STATUS[reply.error]
            return failure_response(reply, request.request_id, status)
        value = value_of(reply)
        if self._created:
            value = {self._created: value}
        return route_response(reply, value, request.request_id, route.status, route.content_type)


class _SignedRoute(_CallRoute):
    """A path that takes webhooks: the sender signs, and names the event; the whole body is one argument."""

    def __init__(
        self, app: App, route: AppRoute, calls: CallHandler, sender: WebhookSender
    ) -> None:
        super().__init__(app, route, calls)
        self._sender = sender
        stored = app.stored_name(route.entity)
        self._former = "" if stored == route.entity else stored

    async def serve(self, request: HttpRequest) -> Response:
        route, path = self._route, request.path
        body = await request.body()
        request.principal, event_id = self._sender.identify(path, request.headers, body)
        request.choose_id(event_id)
        request.check_json_depth(body)
        target = CallTarget(route.entity, path.get(route.key), route.method, self._former)
        in_path = {name: path[name] for name in self._names}
        return await self._answer(request, target, WebhookArguments(in_path, route.body, body))
