"""Who asks, and what they may do: scopes, and the principal that holds them.

A scope is a word of this grammar:

```
scope  =  "*"                                         everything
       |  "admin"                                     metrics, console, operations
       |  "sql"                                       SQL over the whole state
       |  "call" | "call:" Entity | "call:" Entity "." method | "call:" function
       |  "read" | "read:" Entity                     attributes of entities
```

Without a name, `call` and `read` are for everything of their kind. A scope is about what is asked
from outside: whoever may call `Order.checkout` may have it take stock. An application's own paths
need the scope of what they call.

Promises that a check costs less than a microsecond, and that a scope which is not granted word for
word, or by one of the wider words above, is refused. Finding out who asks is left to
`authentication`.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NewType

from penstock.errors import Forbidden, RequestError
from penstock.model.application import App

Scope = NewType("Scope", str)
"""A right, as the grammar above writes it."""

EVERYTHING: Final = Scope("*")
ADMIN: Final = Scope("admin")
SQL: Final = Scope("sql")
CALL: Final = Scope("call")
READ: Final = Scope("read")

_NAME: Final = r"[^\W\d]\w*"
_GRAMMAR: Final = re.compile(
    rf"\*|admin|sql|call(:{_NAME}(\.{_NAME})?)?|read(:{_NAME})?", re.UNICODE
)


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever a request comes from.

    Attributes:
        name: For people: the key's name, or the token's subject. Printable, at most 128 characters.
        scopes: All that it may do.
        namespace: What its request ids are stored under, without `~`; no two principals share one.
            Empty for the anonymous, whose ids are stored as they are.
    """

    name: str
    scopes: frozenset[Scope]
    namespace: str = ""

    @property
    def is_admin(self) -> bool:
        """Whether it may see and do what is for operators."""
        return ADMIN in self.scopes or EVERYTHING in self.scopes

    def require_call(self, entity: str, method: str) -> None:
        """Check that it may call a method, or a function where `entity` is empty.

        Raises:
            Forbidden: It may not; names the scope.
        """
        wanted = f"call:{entity}.{method}" if entity else f"call:{method}"
        self._require(wanted, CALL, f"call:{entity}")

    def require_read(self, entity: str) -> None:
        """Check that it may see the attributes of a class's entities.

        Raises:
            Forbidden: It may not; names the scope.
        """
        self._require(f"read:{entity}", READ)

    def require_sql(self) -> None:
        """Check that it may ask in SQL.

        Raises:
            Forbidden: It may not; names the scope.
        """
        self._require(SQL)

    def require_admin(self) -> None:
        """Check that it may see and do what is for operators.

        Raises:
            Forbidden: It may not; names the scope.
        """
        self._require(ADMIN)

    def _require(self, wanted: str, *wider: str) -> None:
        scopes = self.scopes
        if EVERYTHING not in scopes and wanted not in scopes and scopes.isdisjoint(wider):
            raise Forbidden(f"{self.name} lacks the scope {wanted}")


ANONYMOUS: Final = Principal("anonymous", frozenset({EVERYTHING}))
"""Everybody, where neither keys nor tokens are configured."""


def parse_scope(text: str) -> Scope:
    """Check that a word is a scope, whatever it names.

    Raises:
        RequestError: It is none; says what there is.
    """
    if not _GRAMMAR.fullmatch(text):
        raise RequestError(
            f"{text!r} is no scope; there are *, admin, sql, call, call:Entity, "
            "call:Entity.method, call:function, read, read:Entity"
        )
    return Scope(text)


def granted(words: Iterable[str]) -> frozenset[Scope]:
    """Return those words that are scopes; a token may hold rights at other services beside them."""
    return frozenset(Scope(one) for one in words if _GRAMMAR.fullmatch(one))


def check_scope(scope: Scope, app: App) -> None:
    """Check that a scope names something of an application.

    Raises:
        RequestError: It does not; near misses are named.
    """
    right, _, target = scope.partition(":")
    name, _, method = target.partition(".")
    if not name:
        return
    known = list(app.entities) if right == READ else [*app.entities, *app.functions]
    if name not in known or (method and name not in app.entities):
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
        what = "entity class" if method or right == READ else "entity class or function"
        raise RequestError(f"scope {scope}: there is no {what} {name!r}; {hint}")
    if method:
        try:
            app.signature(name, method)
        except RequestError as error:
            raise RequestError(f"scope {scope}: {error}") from error
