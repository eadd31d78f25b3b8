"""Which web pages may speak for the anonymous.

Every page in a browser on this machine can send requests to a port of this machine, and one whose
name resolves to a loopback address can read the answers too. A gateway without keys must take
neither for its user: it hears a page only if it comes from the gateway itself, or from an origin in
`gateway.cors_origins`; and a gateway for this machine alone answers only to names of this machine.
A page of another site is known by `Origin`, or by the browser's word in `Sec-Fetch-Site` (Fetch
Metadata, W3C), which comes with images and scripts too. A link may be followed from anywhere: a
`GET` changes nothing, and the page that holds the link cannot read the answer. Programs send none
of these headers and are not concerned. With keys or tokens none of this is needed, because a page
of strangers has none.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final, Self

from penstock.errors import Forbidden
from penstock.gateway.auth.exposure import is_loopback
from penstock.process.config import GatewayConfig

_LOCALHOST: Final = "localhost"
_OWN_SITE: Final = (b"same-origin", b"none")
"""What a browser says of the gateway's own pages, and of addresses that its user typed."""


class OriginPolicy:
    """The origins that are heard without credentials."""

    def __init__(self, origins: Iterable[str], hosts: Iterable[str] | None) -> None:
        """Hear pages of these origins beside the gateway's own.

        Args:
            origins: As browsers send them: `https://shop.example`. There is no wildcard.
            hosts: Names of this machine beside loopback addresses; None where any name will do.
        """
        self._origins = frozenset(one.encode() for one in origins)
        self._hosts = None if hosts is None else frozenset(hosts)

    @classmethod
    def of(cls, settings: GatewayConfig) -> Self | None:
        """Return what the settings allow; None where nobody is heard without credentials.

        Raises:
            ConfigError: The gateway's address is none.
        """
        origins = [one.strip() for one in settings.cors_origins.split(",") if one.strip()]
        if settings.open:
            return cls(origins, None)
        if is_loopback(settings.host):
            return cls(origins, [_LOCALHOST, settings.host.lower()])
        return None

    def check(self, verb: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Check where a request comes from.

        Raises:
            Forbidden: A page of another site sent it, or it was sent to a name of another machine.
        """
        sent = dict(headers)
        host, origin = sent.get(b"host", b""), sent.get(b"origin", b"")
        if self._hosts is not None and host and not _is_local(host, self._hosts):
            raise Forbidden(
                "without keys this gateway answers only to names of its own machine, such as "
                "localhost; make a key, or set gateway.open = 1"
            )
        if origin in self._origins:
            return
        is_foreign = sent.get(b"sec-fetch-site", b"none") not in _OWN_SITE
        if is_foreign and not origin and _is_link(verb, sent):
            return
        if is_foreign or (origin and origin.partition(b"://")[2] != host):
            raise Forbidden(
                "without keys this gateway hears no pages of other sites; make a key, or name the "
                "page's origin in gateway.cors_origins"
            )


def _is_link(verb: str, sent: Mapping[bytes, bytes]) -> bool:
    """Say whether a browser sent a request to show its answer in a window of its own."""
    shown = sent.get(b"sec-fetch-mode"), sent.get(b"sec-fetch-dest")
    return verb == "GET" and shown == (b"navigate", b"document")


def _is_local(host: bytes, names: frozenset[str]) -> bool:
    text = host.decode("latin-1").lower()
    name = text[1:].partition("]")[0] if text[:1] == "[" else text.partition(":")[0]
    if name in names or name.endswith(f".{_LOCALHOST}"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
