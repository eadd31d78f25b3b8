"""`@route`: the application's own paths, and the methods and functions that serve them.

A pattern is a verb and a path: `"POST /stock/add/{item_id}/{amount}"`. A name in braces is the key of
the entity (by the name of its attribute) or a parameter. Parameters that the path does not name come
from the query string or, by name, from a JSON body. On a class, a pattern without a verb is the prefix
under which all its methods are served. `POST` creates an entity, `GET` shows it, `DELETE` deletes it; a
path without a leading slash follows the prefix. The answer is the result of the method: a string as
text, other results as JSON.

This module checks patterns when the application is built. The gateway serves them.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar, get_args

import msgspec

from penstock.base.webhook_signature import Form
from penstock.model.declaration import CREATIONS, caller_place
from penstock.model.entity_type import EntityType
from penstock.model.handler import check_marked
from penstock.model.signature import Signature

VERBS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
SHOW: Final = "show"
"""The method of a route that shows the attributes of an entity; it reads, and makes no request."""

_OF_CLASS: Final = {
    "POST": "create",
    "PUT": "upsert",
    "PATCH": "update_or_create",
    "GET": SHOW,
    "DELETE": "delete",
}
_SEGMENT: Final = re.compile(r"\{([A-Za-z_]\w*)\}|[A-Za-z0-9._~!$&'()*+,;=:@-]+")
_TAKEN: Final = frozenset(
    {
        *("call", "send", "streams", "requests", "entities", "sql"),
        *("healthz", "readyz", "metrics", "openapi.json", "docs", "console"),
    }
)
_OF_TABLES: Final = "GET /tables/{}"
_OWN: Final = frozenset(
    {
        *(
            "GET /deployments",
            "GET /failed",
            "POST /at",
            "POST /at/{}",
            "DELETE /at/{}",
            "POST /read",
            "GET /search/{}",
            _OF_TABLES,
        ),
        *("GET /export/{}", "GET /export/streams/{}", "POST /failed", "POST /resume"),
        *("POST /deployments", "GET /deployments/{}", "POST /imports", "POST /flow", "GET /flow"),
        *(
            "POST /views",
            "GET /views",
            "POST /captures",
            "GET /captures",
            "POST /effects",
            "GET /effects",
        ),
        *("POST /schedules", "GET /schedules", "POST /erasures", "GET /erasures"),
        *("POST /partitions", "GET /partitions"),
    }
)
"""The gateway's other paths, with their verbs; a name in them is `{}`. An application may have these paths with other verbs."""

_TOLERANCE_MAX_S: Final = 86_400.0
_ANYTHING: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

M = TypeVar("M", bound=Callable[..., Any])


class SignedBy(msgspec.Struct, frozen=True):
    """Who signs the requests of a path; see `signed_by`.

    Attributes:
        secrets: The names of the secrets, one of which has signed.
        tolerance_s: The longest difference between the time of a request and the clock, in seconds.
    """

    secrets: tuple[str, ...]
    form: Form
    tolerance_s: float


def signed_by(
    *secrets: str, form: Form = "standard", tolerance: timedelta = timedelta(minutes=5)
) -> SignedBy:
    """Take webhooks of a sender at a path: requests that are signed with one of the secrets.

    ```python
    @route("POST /hooks/crm", signed=signed_by("CRM_KEY", "CRM_KEY_OLD"))
    def changed(event: CrmEvent) -> None: ...
    ```

    Such a path needs no API key, and it is the only way from outside to its handler. The whole body is the one argument
    that the path does not name. The id that the sender has given to the event is the request id: a second delivery takes
    effect once and gets the first reply.

    Args:
        secrets: The names of the secrets, in the file of `gateway.secrets` or in the environment. While a secret is
            exchanged there are two.
        form: `standard`: Standard Webhooks; `github`: `X-Hub-Signature-256`, which signs no time; `stripe`:
            `Stripe-Signature`.
        tolerance: The longest difference between the time of a request and the clock of the gateway.
    """
    return SignedBy(secrets, form, tolerance.total_seconds())


class Declared(msgspec.Struct, frozen=True):
    """The arguments of one `@route`."""

    patterns: tuple[str, ...]
    status: int
    refused: int
    content_type: str
    shows: tuple[str, ...]
    signed: SignedBy | None


class Route(msgspec.Struct, frozen=True):
    """A path of an application.

    Attributes:
        path: The path; a name in braces is a whole segment.
        entity: The name of the class; empty for a function.
        method: The method or function; `show` reads attributes.
        status: The HTTP status if the transaction took effect.
        refused: The HTTP status if the application aborted the transaction.
        content_type: The content type of the result; empty if the type of the result decides.
        shows: The attributes, or the key, that `show` returns; empty for all.
        key: The name in the path that stands for the key; empty for a function or a derived key.
        names: All names in the path, in order.
        where: `file:line` of the definition.
        signed: Who signs its requests; None if they need an API key.
        body: The parameter that the whole body of a signed request is for; else empty.
    """

    verb: str
    path: str
    entity: str
    method: str
    status: int
    refused: int
    content_type: str
    shows: tuple[str, ...]
    key: str
    names: tuple[str, ...]
    where: str
    signed: SignedBy | None = None
    body: str = ""

    @property
    def segments(self) -> list[str]:
        """The segments of the path; names keep their braces."""
        return self.path.strip("/").split("/")


def route(
    *patterns: str,
    status: int = 200,
    refused: int = 400,
    content_type: str = "",
    shows: Sequence[str] = (),
    signed: SignedBy | None = None,
) -> Callable[[M], M]:
    """Serve a method, a function or a class at paths of its own.

    ```python
    @route("POST /stock/batch_init/{n}/{price}")
    def batch_init(n: int, price: int) -> dict[str, str]: ...


    @entity
    @route("/stock", "POST item/create/{price}", "GET find/{item_id}", shows=("stock", "price"))
    class Item: ...
    ```

    A function with `@route` needs no `@transactional`. `GET` takes only a method or function that
    is `@readonly`. `App` reports mistakes in patterns.

    Args:
        patterns: Verb and path. On a class also a path alone: its methods are served below that path
            at `/{method}/{key}/{parameters…}`, by GET if they are `@readonly`, else by POST.
        status: The HTTP status if the transaction took effect.
        refused: The HTTP status if the transaction was undone.
        content_type: The content type of a result. By default it is `text/plain` for a string,
            `application/octet-stream` for bytes, and JSON for other results.
        shows: The attributes that the GET of a class returns; empty for all.
        signed: The sender of webhooks whose requests the path takes: `signed_by(…)`.
    """
    declared = Declared(patterns, status, refused, content_type, tuple(shows), signed)
    where = caller_place()

    def mark(member: M) -> M:
        if not isinstance(member, type):
            check_marked(member, "@route", where)
        known: tuple[Declared, ...] = vars(member).get("__routes__", ())
        member.__routes__ = (declared, *known)  # type: ignore[attr-defined]
        member.__transactional__ = True  # type: ignore[attr-defined]
        if signed is not None and not isinstance(member, type):
            # Who could call it at /call, too, would need no signature.
            member.__internal__ = True  # type: ignore[attr-defined]
        return member

    return mark


class _Target(msgspec.Struct, frozen=True):
    """The method or function of a route, with the facts that its patterns are checked against."""

    entity: str
    method: str
    key: str  # the name of the key's attribute; empty for a function
    names: tuple[str, ...]  # the parameters that a path may name
    shown: tuple[str, ...]  # the attributes that an answer may show
    readonly: bool
    where: str
    internal: bool = False


def routes_of(
    entities: Mapping[str, EntityType],
    functions: Mapping[str, Signature],
    complaints: list[str],
    *,
    has_tables: bool,
) -> tuple[Route, ...]:
    """Return the routes of an application's members, and add mistakes to the complaints.

    Args:
        has_tables: Whether the application publishes tables; else it may have their path.
    """
    routes: list[Route] = []
    for target, verb, path, declared in _declarations(entities, functions):
        wrong = list(_complaints_of(target, verb, path, declared))
        complaints += [f"{target.where}: {verb} {path}: {complaint}" for complaint in wrong]
        if not wrong:
            routes.append(_route(target, verb, path, declared))
    taken: dict[str, Route] = {}
    own = _OWN if has_tables else _OWN - {_OF_TABLES}
    for route in routes:
        parts = ("{}" if part[0] == "{" else part for part in route.segments)
        shape = f"{route.verb} /{'/'.join(parts)}"
        if shape in own:
            complaints.append(
                f"{route.where}: {route.verb} {route.path} is the gateway's own; choose another path"
            )
        other = taken.setdefault(shape, route)
        if other is not route:
            complaints.append(f"{route.where}: {route.verb} {route.path} is taken by {other.where}")
    return tuple(routes)


_Pattern = tuple[_Target, str, str, Declared]


def _declarations(
    entities: Mapping[str, EntityType], functions: Mapping[str, Signature]
) -> Iterator[_Pattern]:
    for entity_type in entities.values():
        for declared in vars(entity_type.cls).get("__routes__", ()):
            yield from _of_class(entity_type, declared)
        for name, signature in entity_type.methods.items():
            target = _target_of(entity_type.name, name, entity_type.key_name, signature)
            internal = name in entity_type.internal
            yield from _of_function(msgspec.structs.replace(target, internal=internal), signature)
    for name, signature in functions.items():
        yield from _of_function(_target_of("", name, "", signature), signature)


def _of_function(target: _Target, signature: Signature) -> Iterator[_Pattern]:
    for declared in getattr(signature.function, "__routes__", ()):
        for pattern in declared.patterns:
            verb, _, path = pattern.rpartition(" ")
            yield target, verb, path, declared


def _of_class(entity_type: EntityType, declared: Declared) -> Iterator[_Pattern]:
    place = ""
    for pattern in declared.patterns:
        verb, space, path = pattern.rpartition(" ")
        if not space:
            place = path.rstrip("/")
            yield from _placed(entity_type, place, declared)
        else:
            target = _target_of_class(entity_type, _OF_CLASS.get(verb, ""))
            yield target, verb, path if path[:1] == "/" else f"{place}/{path}", declared


def _placed(entity_type: EntityType, place: str, declared: Declared) -> Iterator[_Pattern]:
    """Serve below a prefix each method that has no route of its own, and is not internal."""
    for name, signature in entity_type.methods.items():
        if not hasattr(signature.function, "__routes__") and name not in entity_type.internal:
            target = _target_of(entity_type.name, name, entity_type.key_name, signature)
            path = "/".join(
                [place, name, *(f"{{{part}}}" for part in [entity_type.key_name, *target.names])]
            )
            yield target, "GET" if signature.readonly else "POST", path, declared


def _target_of(entity: str, method: str, key: str, signature: Signature) -> _Target:
    names = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind not in _ANYTHING
    ]
    return _Target(
        entity,
        method,
        key,
        tuple(names),
        (),
        signature.readonly,
        signature.where,
        signature.internal,
    )


def _target_of_class(entity_type: EntityType, method: str) -> _Target:
    everything = (entity_type.key_name, *entity_type.attributes)
    if method in CREATIONS:
        parameters = entity_type.creations[method].parameters
        names = tuple(name for name in parameters if name != entity_type.key_name)
        return _Target(
            entity_type.name,
            method,
            entity_type.key_name,
            names,
            (),
            readonly=False,
            where=entity_type.where,
            internal=method in entity_type.internal,
        )
    return _Target(
        entity_type.name,
        method,
        entity_type.key_name,
        (),
        everything,
        readonly=method == SHOW,
        where=entity_type.where,
        internal=method in entity_type.internal,
    )


def _complaints_of(target: _Target, verb: str, path: str, declared: Declared) -> Iterator[str]:
    yield from _complaints_of_verb(target, verb, is_signed=declared.signed is not None)
    if not path.startswith("/"):
        yield "a path starts with a slash"
        return
    yield from _complaints_of_path(path)
    if target.method:
        yield from _complaints_of_names(target, _names_in(path))
    if declared.signed is not None:
        yield from _complaints_of_signed(target, verb, path, declared.signed)
    for name in declared.shows if target.method == SHOW else ():
        if name not in target.shown:
            yield f"there is no attribute {name} to show; there are {', '.join(target.shown)}"
    if not all(200 <= status <= 499 for status in (declared.status, declared.refused)):
        yield "an answer's status is 200 to 499"


def _complaints_of_verb(target: _Target, verb: str, *, is_signed: bool) -> Iterator[str]:
    if not target.method:
        yield f"a class answers {', '.join(_OF_CLASS)}"
    elif target.internal and not is_signed:
        yield f"{_label(target)} is internal, so no path leads to it; remove the path or the mark"
    elif verb not in VERBS:
        yield f"the verb is one of {', '.join(VERBS)}"
    elif verb == "GET" and not target.readonly:
        yield (
            f"browsers and crawlers send GET at any time, and {_label(target)} may change "
            "something; mark it @readonly, or use POST"
        )


def _complaints_of_path(path: str) -> Iterator[str]:
    segments = path.strip("/").split("/")
    for segment in segments:
        if not _SEGMENT.fullmatch(segment):
            yield f"{segment!r} is neither a name in braces nor plain text"
    if segments[0] in _TAKEN or segments[0][:1] == "{":
        yield f"/{segments[0]} is the gateway's own"


def _complaints_of_names(target: _Target, names: list[str]) -> Iterator[str]:
    known = [target.key, *target.names] if target.key else list(target.names)
    for name in sorted(set(names)):
        if name not in known:
            yield f"{_label(target)} has no {name}; there are {', '.join(known) or 'no parameters'}"
        if names.count(name) > 1:
            yield f"{name} is named twice"
    if target.key and target.method not in CREATIONS and target.key not in names:
        yield f"it does not say which {target.entity}: name {{{target.key}}} in it"


def _complaints_of_signed(target: _Target, verb: str, path: str, signed: SignedBy) -> Iterator[str]:
    """Yield the mistakes in the declaration of a path for webhooks."""
    if target.method in (*CREATIONS, SHOW) or target.readonly or verb in ("GET", "DELETE"):
        yield "a webhook is sent with POST to a method or function that may change something; remove signed"
    if len(_beyond(target, path)) != 1:
        yield (
            f"the body of a webhook is one argument, and {_label(target)} has "
            f"{', '.join(_beyond(target, path)) or 'none'} beside the path"
        )
    if not signed.secrets or not all(str(name).isidentifier() for name in signed.secrets):
        yield "signed_by takes names of secrets, and at least one"
    if signed.form not in get_args(Form):
        yield f"form={signed.form!r} must be one of {', '.join(get_args(Form))}"
    if not 0 < signed.tolerance_s <= _TOLERANCE_MAX_S:
        yield f"the tolerance is more than 0 s and at most {_TOLERANCE_MAX_S:g} s"


def _beyond(target: _Target, path: str) -> list[str]:
    """Return the parameters that a path does not name."""
    return [name for name in target.names if name not in _names_in(path)]


def _route(target: _Target, verb: str, path: str, declared: Declared) -> Route:
    names = _names_in(path)
    return Route(
        verb=verb,
        path=path,
        entity=target.entity,
        method=target.method,
        status=declared.status,
        refused=declared.refused,
        content_type=declared.content_type,
        shows=declared.shows if target.method == SHOW else (),
        key=target.key if target.key in names else "",
        names=tuple(names),
        where=target.where,
        signed=declared.signed,
        body=_beyond(target, path)[0] if declared.signed else "",
    )


def _label(target: _Target) -> str:
    return f"{target.entity}.{target.method}" if target.entity else target.method


def _names_in(path: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", path)
