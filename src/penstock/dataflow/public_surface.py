"""The public surface of an application: each request that a gateway takes, with the scope that it needs.

Promises that the list is complete: with keys or tokens, a gateway refuses every other request to the application. The paths of
operators are the same for every application, so they are not in the list.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.model.application import App
from penstock.model.declaration import RESERVED
from penstock.model.entity_type import EntityType
from penstock.model.right import RIGHT
from penstock.model.route import SHOW, Route

_ASKED: Final = f"asks {RIGHT}"
_DELETE: Final = "delete"
_EXISTS: Final = "exists"
_SIGNATURE: Final = "(a signature)"


class PublicRequest(NamedTuple):
    """A kind of request.

    Attributes:
        scope: The narrowest scope that covers it.
        request: The verb and the path.
        asks_right: Whether the right per row of a class is asked, too.
        remark: A further scope that it needs, or a wider scope that does not cover it; empty for a usual request.
    """

    scope: str
    request: str
    asks_right: bool = False
    remark: str = ""


def public_surface(app: App) -> list[PublicRequest]:
    """Return each kind of request that a gateway takes for an application, in order."""
    entities = (
        row for _, entity in sorted(app.entities.items()) for row in _of_entity(app, entity)
    )
    functions = (
        PublicRequest(f"call:{name}", f"POST /call/{name}")
        for name in sorted(app.functions)
        if not app.is_internal("", name)
    )
    return [
        *entities,
        *functions,
        *_of_streams(app),
        *(_of_route(app, route) for route in app.routes),
    ]


def surface_text(app: App) -> str:
    """Return the list as a table, with a newline at its end."""
    rows = public_surface(app)
    scope = max((len(row.scope) for row in rows), default=0)
    request = max((len(row.request) for row in rows), default=0)
    lines = [
        f"{row.scope:<{scope}}  {row.request:<{request}}  {_remarks(row)}".rstrip() for row in rows
    ]
    return "\n".join(lines) + "\n"


def _remarks(row: PublicRequest) -> str:
    return "; ".join(filter(None, (_ASKED if row.asks_right else "", row.remark)))


def _asks(entity: EntityType, method: str = "") -> bool:
    return entity.allows is not None and method != _EXISTS


def _of_entity(app: App, entity: EntityType) -> Iterator[PublicRequest]:
    asks = _asks(entity)
    for method in sorted({*entity.methods, *RESERVED}):
        if app.is_internal(entity.name, method):
            continue
        remark = f"call:{entity.name} does not cover it" if method == _DELETE else ""
        path = f"POST /call/{entity.name}/{{key}}/{method}"
        yield PublicRequest(f"call:{entity.name}.{method}", path, _asks(entity, method), remark)
    read = f"read:{entity.name}"
    yield PublicRequest(read, f"GET /entities/{entity.name}", asks)
    yield PublicRequest(read, f"GET /entities/{entity.name}/{{key}}", asks)
    yield PublicRequest(read, f"GET /entities/{entity.name}/{{key}}/changes", asks)
    whole = "needs sql, too" if asks else ""
    yield PublicRequest(read, f"GET /entities/{entity.name}/changes", remark=whole)
    yield PublicRequest(read, f"GET /export/{entity.name}", remark=whole)


def _of_streams(app: App) -> Iterator[PublicRequest]:
    for name, stream in sorted(app.topology.streams.items()):
        if stream.is_open:
            yield PublicRequest(f"append:{name}", f"POST /streams/{name}")
        yield PublicRequest(f"follow:{name}", f"GET /streams/{name}")
        yield PublicRequest(f"follow:{name}", f"GET /export/streams/{name}")
    for name in sorted(app.topology.tables):
        yield PublicRequest(f"follow:{name}", f"GET /tables/{name}")


def _of_route(app: App, route: Route) -> PublicRequest:
    target = f"{route.entity}.{route.method}" if route.entity else route.method
    scope = f"read:{route.entity}" if route.method == SHOW else f"call:{target}"
    asks = route.entity != "" and _asks(app.entity(route.entity), route.method)
    request = f"{route.verb} {route.path}"
    if route.signed is not None:
        return PublicRequest(_SIGNATURE, request, asks, f"calls {target}")
    return PublicRequest(scope, request, asks)
