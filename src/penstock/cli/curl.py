"""A first request to try: the `curl` line that a command prints when an application runs."""

import inspect
import json
import shlex
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.model.application import App
from penstock.model.declaration import CREATIONS
from penstock.model.route import Route
from penstock.model.signature import Signature

_SAMPLES: Final[Mapping[Any, Any]] = {
    int: 3,
    float: 1.5,
    bool: True,
    bytes: "",
    list: [],
    tuple: [],
    set: [],
    frozenset: [],
    dict: {},
}
_ANYTHING: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def curl_of(app: App, url: str) -> str:
    """Return a command line that sends an application a first request.

    It is a path of the application's own where there is one that creates something, or any that
    needs no entity; else the creation of an entity, or a call of a function.
    """
    routes = sorted(app.routes, key=_rank)
    if routes and _rank(routes[0]) < 2:
        return _of_route(app, routes[0], url)
    for name, kind in app.entities.items():
        assert kind.creation is not None, "a built application has bound it"
        values = _values(kind.creation, without=[kind.key_name])
        return _line("POST", f"{url}/call/{name}/{name.lower()}-1/create", values)
    name, signature = next(iter(app.functions.items()))
    return _line("POST", f"{url}/call/{name}", _values(signature))


def _rank(route: Route) -> int:
    if route.method in CREATIONS:
        return 0
    return 1 if not route.entity else 2


def _of_route(app: App, route: Route, url: str) -> str:
    signature = app.signature(route.entity, route.method)
    parameters = signature.parameters
    path = "/".join(
        _text_of(parameters[part[1:-1]].annotation, part[1:-1])
        if part[0] == "{" and part[1:-1] in parameters
        else part.strip("{}")
        for part in route.segments
    )
    key = app.entities[route.entity].key_name if route.entity else ""
    return _line(route.verb, f"{url}/{path}", _values(signature, [*route.names, key]))


def _values(signature: Signature, without: Iterable[str] = ()) -> dict[str, Any]:
    """Return a value for each parameter that must be given."""
    return {
        name: _sample(parameter.annotation, name)
        for name, parameter in signature.parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in _ANYTHING
        and name not in set(without)
    }


def _text_of(annotation: Any, name: str) -> str:
    sample = _sample(annotation, name)
    return sample if isinstance(sample, str) else json.dumps(sample)


def _sample(annotation: Any, name: str) -> Any:
    kind = typing.get_origin(annotation) or annotation
    return _SAMPLES.get(kind, f"{name.replace('_', '-')}-1")


def _line(verb: str, url: str, values: dict[str, Any]) -> str:
    words = ["curl", "-X", verb, url]
    if values:
        words += ["-H", "Content-Type: application/json", "-d", json.dumps(values)]
    return shlex.join(words)
