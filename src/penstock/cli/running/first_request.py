"""A first request to an application: the `curl` command that `penstock run` prints."""

import logging
from typing import Final

from penstock.gateway.openapi.document import openapi_document
from penstock.gateway.openapi.examples import curl_of
from penstock.model.application import App
from penstock.model.declaration import CREATIONS
from penstock.model.route import Route

_log: Final = logging.getLogger(__name__)


def first_request(app: App, url: str) -> str:
    """Return a command that sends an application a first request.

    The request uses a route of the application that creates an entity or needs none; otherwise it
    creates an entity of the first class, calls the first function, or appends to the first stream that takes
    appends. An application without any of them is asked for its streams, or whether it is ready.
    """
    try:
        path, verb = _operation(app)
        return curl_of(openapi_document(app, server_url=url), path, verb)
    except Exception:  # noqa: BLE001 -- an application runs even if its interface cannot be described
        _log.exception("the interface of %s could not be described", app.name)
        return f"curl -sS {url}/readyz"


def _operation(app: App) -> tuple[str, str]:
    routes = sorted(app.routes, key=_rank)
    if routes and _rank(routes[0]) < 2:
        return "/" + "/".join(routes[0].segments), routes[0].verb.lower()
    if app.entities:
        return f"/call/{next(iter(app.entities))}/{{key}}/create", "post"
    if app.functions:
        return f"/call/{next(iter(app.functions))}", "post"
    for stream in app.topology.streams.values():
        if stream.is_open:
            return f"/streams/{stream.name}", "post"
    return ("/streams" if app.topology.streams else "/readyz"), "get"


def _rank(route: Route) -> int:
    if route.method in CREATIONS:
        return 0
    return 1 if not route.entity else 2
