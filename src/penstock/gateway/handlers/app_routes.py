"""The application's own paths, as `@route` maps them.

Each becomes one handler that is prepared when the gateway starts. What the path does not name comes
from the query string and, by name, from a JSON body.
"""

from typing import Any, Final

from starlette.responses import Response

from penstock.errors import BY_CODE, Aborted, Internal, NoSuchEntity, RequestError
from penstock.gateway.errors import STATUS, error_response
from penstock.gateway.handlers.calls import CallHandler, read_arguments
from penstock.gateway.handlers.entity_read import EntityReadHandler
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.responses import failure_response, reply_headers, route_response, value_of
from penstock.gateway.routing import Handler
from penstock.model.application import App
from penstock.model.declaration import CREATIONS
from penstock.model.route import SHOW, Route

_REFUSALS: Final = frozenset(
    code for code, one in BY_CODE.items() if issubclass(one, Aborted) and one is not Internal
)


def _is_refusal(code: str) -> bool:
    """Say whether the application refused; a code that Penstock does not know is its own."""
    return code in _REFUSALS or code not in STATUS


"""What the application itself refuses; answered with the route's own status."""


def handler_of(
    app: App, route: Route, calls: CallHandler, entity_reads: EntityReadHandler
) -> Handler:
    """Return what serves a route."""
    if route.method == SHOW:
        return _Shown(route, entity_reads).serve
    return _Called(app, route, calls).serve


class _Shown:
    """A path that shows an entity."""

    def __init__(self, route: Route, entity_reads: EntityReadHandler) -> None:
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
            return error_response(route.refused, error.code, type(error).__name__, str(error))


class _Called:
    """A path that calls a method or a function."""

    def __init__(self, app: App, route: Route, calls: CallHandler) -> None:
        self._route = route
        self._calls = calls
        self._signature = app.signature(route.entity, route.method)
        self._created = app.entities[route.entity].key_name if route.method in CREATIONS else ""
        self._names = [name for name in route.names if name != route.key]

    async def serve(self, request: HttpRequest) -> Response:
        route, path = self._route, request.path
        request.principal.require_call(route.entity, route.method)
        given = {
            name: read_arguments(self._signature.of_text, name, path[name]) for name in self._names
        }
        given |= await self._more(request)
        reply = await self._calls.process(
            request, route.entity, path.get(route.key), route.method, ((), given)
        )
        if reply.error is not None:
            status = route.refused if _is_refusal(reply.error) else STATUS[reply.error]
            return failure_response(reply, request.request_id, status)
        value = value_of(reply)
        if self._created:
            value = {self._created: value}
        headers = reply_headers(reply.epoch, request.request_id)
        return route_response(value, route.status, route.content_type, headers)

    async def _more(self, request: HttpRequest) -> dict[str, Any]:
        """Return the arguments that query string and body name beyond the path."""
        more = {
            name: read_arguments(self._signature.of_text, name, text)
            for name, text in request.query().items()
        }
        positional, by_name = read_arguments(self._signature.of_json, await request.json())
        if positional:
            raise RequestError("the body of this path is a JSON object of arguments by name")
        more |= by_name
        for name in self._names:
            if name in more:
                raise RequestError(f"{name} is in the path already")
        return more
