"""`Principal`: the caller of a request, as handlers see it.

The id is a part of the request id, and the rights are a part of the request, so the log keeps both: each run of the request
sees the same caller, even if the key or the token has changed since.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from penstock.base.encoder import Encoder
from penstock.base.ids import DERIVED_MARK, PRINCIPAL_SEPARATOR, RequestId


@dataclass(frozen=True, slots=True, eq=False)
class Principal:
    """The caller of a request: an API key, the subject of a token, or the sender of a webhook.

    Attributes:
        id: The name of the API key, or `@` and the subject of the token. Empty for a request of the application itself, for
            a command on the machine of the data directory, and without keys and tokens.
        scopes: The scopes that the key or the token had when the request came.
        claims: The claims of the token that `gateway.jwt_claims` names, as plain JSON values.
    """

    id: str
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):  # it would be false for each caller, without a word
            raise TypeError(
                "a principal has an id, and a text is compared with it: principal.id == …"
            )
        if not isinstance(other, Principal):
            return NotImplemented
        mine, theirs = (self.id, self.scopes, self.claims), (other.id, other.scopes, other.claims)
        return mine == theirs

    def __hash__(self) -> int:
        return self.id.__hash__()  # never stored, never sent


class _Rights(msgspec.Struct, frozen=True, array_like=True):
    scopes: list[str]
    claims: dict[str, Any]


_ENCODER: Final = Encoder()
_decode: Final = msgspec.msgpack.Decoder(_Rights).decode


def encode_rights(principal: Principal) -> bytes:
    """Return the rights of a principal for `with_caller`: equal rights have equal bytes."""
    claims = {name: principal.claims[name] for name in sorted(principal.claims)}
    return _ENCODER.encode(_Rights(sorted(principal.scopes), claims))


def principal_of(request_id: RequestId, rights: bytes) -> Principal:
    """Return the caller of a request.

    Args:
        rights: The result of `rights_in` for the body of the request; empty if they are unknown.
    """
    name = principal_id(request_id)
    if not name or not rights:
        return Principal(name)
    known = _decode(rights)
    return Principal(name, frozenset(known.scopes), known.claims)


def principal_id(request_id: RequestId) -> str:
    """Return the id of the principal that sent a request; empty if the application itself has sent it."""
    # A sent request runs with the rights of the application, not with those of a caller who has caused it long ago.
    return "" if DERIVED_MARK in request_id else request_id.rpartition(PRINCIPAL_SEPARATOR)[0]
