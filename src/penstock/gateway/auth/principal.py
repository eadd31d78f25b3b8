"""Principals and their scopes.

A scope is a word of this grammar:

```
scope  =  "*"                                         everything
       |  "admin"                                     metrics, console, orders of an operator
       |  "watch"                                     metrics, console, requests of others; it changes nothing
       |  "sql"                                       SQL over the whole state
       |  "call" | "call:" Entity | "call:" Entity "." method | "call:" function
       |  "read" | "read:" Entity                     attributes of entities
       |  "append" | "append:" stream                 appends to streams
       |  "follow" | "follow:" stream                 atoms of streams
```

`call`, `read`, `append` and `follow` without a name cover all methods, classes and streams. `call:Order` covers what
`Order` has, except for `delete`, which `call:Order.delete` covers. No scope covers what is `@internal`. A scope covers requests from
outside only: a caller of `Order.checkout` needs no scope for the methods that it calls. A path of the
application's own needs the scope of its method.

Promises that a check takes less than a microsecond, and that a principal without the scope, or a
wider one, is refused. `authentication` finds the principal.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NewType

from penstock.base.near_names import did_you_mean
from penstock.errors import Forbidden, RequestError
from penstock.model import principal as model

if TYPE_CHECKING:
    from penstock.model.application import App

Scope = NewType("Scope", str)
"""A scope in the grammar above."""

EVERYTHING: Final = Scope("*")
ADMIN: Final = Scope("admin")
WATCH: Final = Scope("watch")
SQL: Final = Scope("sql")
CALL: Final = Scope("call")
READ: Final = Scope("read")
APPEND: Final = Scope("append")
FOLLOW: Final = Scope("follow")

DELETE: Final = "delete"
"""The method of every entity that the scope of its class does not cover."""

_NAME: Final = r"[^\W\d]\w*"
_STREAM: Final = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
_GRAMMAR: Final = re.compile(
    rf"\*|admin|watch|sql|call(:{_NAME}(\.{_NAME})?)?|read(:{_NAME})?|(append|follow)(:{_STREAM})?",
    re.UNICODE,
)


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request.

    Attributes:
        name: The name of the key or the subject of the token; at most 128 printable characters.
        scopes: The granted scopes.
        namespace: The prefix of the principal's stored request ids, without `~`; unique. Empty for
            the anonymous principal, whose ids are stored without a prefix.
        claims: The claims of its token that handlers see.
        rights: Scopes and claims, as each of its requests holds them; empty for the anonymous principal.
    """

    name: str
    scopes: frozenset[Scope]
    namespace: str = ""
    claims: Mapping[str, Any] = field(default_factory=dict)
    rights: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shown = model.Principal(self.namespace, self.scopes, self.claims)
        object.__setattr__(self, "rights", model.encode_rights(shown) if self.namespace else b"")

    def __hash__(self) -> int:
        return self.name.__hash__()  # never stored, never sent

    @property
    def is_admin(self) -> bool:
        """Whether the principal has the scope `admin`."""
        return ADMIN in self.scopes or EVERYTHING in self.scopes

    @property
    def may_watch(self) -> bool:
        """Whether the principal may see what an operator sees."""
        return self.is_admin or WATCH in self.scopes

    def require_call(self, entity: str, method: str, former: str = "") -> None:
        """Check that the principal may call a method, or a function if `entity` is empty.

        Args:
            former: A former name of the class; a scope with this name is as good.
        """
        if EVERYTHING in self.scopes:  # of nearly all requests without keys
            return
        wanted = f"call:{entity}.{method}" if entity else f"call:{method}"
        names = (entity, former) if former else (entity,)
        wider = [f"call:{name}.{method}" for name in names]
        if method != DELETE:  # who may use the class may not destroy its records
            wider += [f"call:{name}" for name in names]
        self._require(wanted, CALL, *wider)

    def require_read(self, entity: str, former: str = "") -> None:
        """Check that the principal may read the entities of a class; arguments and errors as in `require_call`."""
        self._require(f"read:{entity}", READ, f"read:{former or entity}")

    def require_append(self, stream: str) -> None:
        """Check that the principal may append to a stream; raises as `require_call`."""
        self._require(f"append:{stream}", APPEND)

    def require_follow(self, stream: str) -> None:
        """Check that the principal may follow a stream; raises as `require_call`."""
        self._require(f"follow:{stream}", FOLLOW)

    def may_follow(self, stream: str) -> bool:
        """Say whether the principal may follow a stream."""
        return not self.scopes.isdisjoint({EVERYTHING, FOLLOW, f"follow:{stream}"})

    @property
    def may_query(self) -> bool:
        """Whether the principal may send SQL queries, and so may read everything."""
        return SQL in self.scopes or EVERYTHING in self.scopes

    def require_sql(self) -> None:
        """Check that the principal may send SQL queries; raises as `require_call`."""
        self._require(SQL)

    def require_admin(self) -> None:
        """Check that the principal is an operator; raises as `require_call`."""
        self._require(ADMIN)

    def require_watch(self) -> None:
        """Check that the principal may see what an operator sees; raises as `require_call`."""
        self._require(WATCH, ADMIN)

    def require_admin_key(self, order: str) -> None:
        """Check that a key or token makes the principal an operator: an open gateway refuses such orders.

        Args:
            order: The order, for the message.
        """
        self.require_admin()
        if self == ANONYMOUS:
            raise Forbidden(
                f"{order} needs a key or token with the scope admin; make a key with "
                "penstock keys add NAME --scope admin APP"
            )

    def _require(self, wanted: str, *wider: str) -> None:
        scopes = self.scopes
        if EVERYTHING not in scopes and wanted not in scopes and scopes.isdisjoint(wider):
            raise Forbidden(f"{self.name} lacks the scope {wanted}")


ANONYMOUS: Final = Principal("anonymous", frozenset({EVERYTHING}))
"""Every caller, if neither keys nor tokens are configured."""

GENERATOR: Final = Principal("generator", frozenset({APPEND}))
"""A process of generators that has the data directory, if neither keys nor tokens are configured. It shares the ids of
the anonymous principal, so that its appends keep their ids."""


def parse_scope(text: str) -> Scope:
    """Return a text as a scope, if the grammar allows it; the names in it are not checked.

    Raises:
        RequestError: The text is not a scope; the message lists the forms.
    """
    if not _GRAMMAR.fullmatch(text):
        raise RequestError(
            f"{text!r} is not a scope; the forms are *, admin, sql, watch, call, call:Entity, "
            "call:Entity.method, call:function, read, read:Entity, append, append:stream, follow, "
            "follow:stream"
        )
    return Scope(text)


def granted(words: Iterable[str]) -> frozenset[Scope]:
    """Return the scopes among the words; a token may also hold rights of other services."""
    return frozenset(Scope(word) for word in words if _GRAMMAR.fullmatch(word))


def check_scope(scope: Scope, app: "App") -> None:
    """Check that an application has the class and method, or the stream, that a scope names.

    Raises:
        RequestError: It does not; the message lists similar names.
    """
    right, _, target = scope.partition(":")
    name, _, method = target.partition(".")
    if not name:
        return
    if right in (APPEND, FOLLOW):
        _check(scope, lambda: (app.open_stream if right == APPEND else app.stream)(name))
        return
    known = list(app.entities) if right == READ else [*app.entities, *app.functions]
    present = app.present_name(name)
    if present not in known or (method and present not in app.entities):
        hint = did_you_mean(name, known) or f"; choose from {', '.join(known)}"
        what = "entity class" if method or right == READ else "entity class or function"
        raise RequestError(f"scope {scope}: the application has no {what} {name!r}{hint}")
    if method:
        _check(scope, lambda: app.signature(name, method))
    if right == CALL and app.is_internal(*((present, method) if method else ("", name))):
        raise RequestError(
            f"scope {scope}: {target} is internal: only the application itself calls it"
        )


def _check(scope: Scope, look_up: Callable[[], object]) -> None:
    try:
        look_up()
    except RequestError as error:
        raise RequestError(f"scope {scope}: {error}") from error
