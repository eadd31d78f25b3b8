"""Tickets: each opens one event stream for its asker, because an `EventSource` of a browser cannot send a header.

A ticket stands in the query string, as `ticket`. Promises that it opens only the path for which it was asked, for at most
`OPENS_S` seconds, and that it gives no more than its asker has: the ticket of an API key names the key, which must still be
there, and the ticket of a token ends with the token. It is signed with a secret of the journal, so each gateway of the data
directory takes it. It is not encrypted: its holder can read the scopes and claims of a token in it.
"""

import binascii
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from penstock.errors import RequestError, Unauthenticated
from penstock.gateway.auth.principal import Principal, Scope

FIELD: Final = "ticket"
"""The field of the query string that has a ticket."""

OPENS_S: Final = 60
"""The seconds for which a ticket opens its stream."""

BYTES_MAX: Final = 6_000
"""The longest ticket; the head of a request must hold it."""

_PURPOSE: Final = b"penstock tickets"
_FIELDS_MAX: Final = 100


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """The content of a ticket.

    Attributes:
        target: The digest of path and query string.
        opens_until_s: When it opens no stream any more, in seconds since the Unix epoch.
        key: The id of the API key of its asker; empty for a token, and on a gateway without keys.
        name: The name of the token's principal; what follows is empty for a key.
        ends_s: When the token ends.
    """

    target: str
    opens_until_s: float
    key: str = ""
    name: str = ""
    namespace: str = ""
    scopes: list[str] = []
    claims: dict[str, Any] = {}
    ends_s: float = 0.0

    def principal(self, now_s: float) -> Principal:
        """Return the principal of the token, unless the token has ended."""
        if now_s >= self.ends_s:
            raise Unauthenticated("the token with which the ticket was asked for has expired")
        scopes = frozenset(Scope(each) for each in self.scopes)
        return Principal(self.name, scopes, self.namespace, self.claims)


_decode: Final = msgspec.json.Decoder(Ticket).decode


class TicketSigner:
    """Makes and reads tickets.

    Args:
        secret: The secret of the journal.
    """

    def __init__(self, secret: bytes) -> None:
        self._key = blake2b(_PURPOSE, key=secret).digest()

    def sign(self, ticket: Ticket) -> str:
        """Return a ticket as text of letters, digits, `-`, `_` and one dot."""
        body = urlsafe_b64encode(msgspec.json.encode(ticket)).rstrip(b"=")
        text = body + b"." + self._signature(body)
        if len(text) > BYTES_MAX:
            raise RequestError(
                f"a ticket takes at most {BYTES_MAX} bytes, and this one has {len(text)}: the scopes and claims of the token are long"
            )
        return text.decode()

    def read(self, text: str, path: bytes, query: bytes) -> Ticket:
        """Return the content of a ticket that came with a request.

        Args:
            path: The path of the request, encoded.
            query: Its query string; the ticket in it is left out.

        Raises:
            Unauthenticated: The ticket is not of a gateway of this data directory, or is for another path.
        """
        body, _, signature = text.encode(errors="replace").partition(b".")
        # In constant time, and before anything in the ticket is read.
        if not hmac.compare_digest(self._signature(body), signature):
            raise Unauthenticated(
                "the ticket is not valid: its signature is not of this application"
            )
        try:
            ticket = _decode(urlsafe_b64decode(body + b"=" * (-len(body) % 4)))
        except (msgspec.MsgspecError, binascii.Error) as error:
            raise Unauthenticated("the ticket is not valid: another version has made it") from error
        if not hmac.compare_digest(ticket.target, target_of(path, query)):
            raise Unauthenticated("the ticket is for another path or another query string")
        return ticket

    def _signature(self, body: bytes) -> bytes:
        digest = hmac.digest(self._key, body, "sha256")
        return urlsafe_b64encode(digest).rstrip(b"=")


def ticket_in(query: bytes) -> str | None:
    """Return the ticket in a query string; None without one."""
    if FIELD.encode() not in query:  # of nearly all requests
        return None
    return _fields(query).get(FIELD)


def target_of(path: bytes, query: bytes) -> str:
    """Return a digest of a path and its query string without a ticket; browsers may encode both in other ways."""
    segments = [unquote_to_bytes(each).hex() for each in path.strip(b"/").split(b"/")]
    fields = sorted((name, text) for name, text in _fields(query).items() if name != FIELD)
    return blake2b(msgspec.json.encode((segments, fields)), digest_size=16).hexdigest()


def _fields(query: bytes) -> Mapping[str, str]:
    """Return the fields of a query string; the gateway refuses one that stands twice, or cannot be read."""
    try:
        return dict(
            parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS_MAX)
        )
    except ValueError as error:  # also UnicodeDecodeError
        raise RequestError(f"the query string cannot be read: {error}") from error
