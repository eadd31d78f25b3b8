"""Decides which web pages may send anonymous requests.

Every page in a browser on this machine can send requests to a port of this machine, and a page whose
host name resolves to a loopback address can also read the responses. A gateway without keys must
refuse both: it accepts a page only from itself or from an origin in `gateway.cors_origins`, and a
gateway on loopback accepts only host names of this machine. The header `Origin` reveals a page of
another site, and so does `Sec-Fetch-Site` (Fetch Metadata, W3C), which browsers also send for images
and scripts. A link to the gateway may be on any site: a `GET` changes nothing, and the page with the
link cannot read the response. Programs send neither header. With keys or tokens these checks are not
needed, because a foreign page has no credential.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, Self

from penstock.errors import Forbidden
from penstock.gateway.auth.exposure import is_loopback
from penstock.process.config import GatewayConfig

_LOCALHOST: Final = "localhost"
_HOSTS_MAX: Final = 64
"""The host names whose check is remembered; most requests have the same one."""

_OWN_SITE: Final = (b"same-origin", b"none")
"""`Sec-Fetch-Site` of the gateway's own pages, and of addresses that the user typed."""


class OriginPolicy:
    """The origins and host names that are accepted without credentials."""

    def __init__(self, origins: Iterable[str], hosts: Iterable[str] | None) -> None:
        """Accept the gateway's own pages and those of other origins.

        Args:
            origins: The origins in the form of browsers, `https://shop.example`, without wildcards.
            hosts: Host names of this machine, apart from loopback addresses; None accepts any.
        """
        self._origins = frozenset(origin.encode() for origin in origins)
        self._hosts = None if hosts is None else frozenset(hosts)

    @classmethod
    def of(cls, settings: GatewayConfig) -> Self | None:
        """Return the policy of the settings; None if no request is accepted without credentials."""
        origins = allowed_origins(settings)
        if settings.open:
            return cls(origins, None)
        if is_loopback(settings.host):
            return cls(origins, [_LOCALHOST, settings.host.lower()])
        return None

    def check(self, verb: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Check the origin and the host name of a request."""
        sent = dict(headers)
        host, origin = sent.get(b"host", b""), sent.get(b"origin", b"")
        if self._hosts is not None and host and not _is_local(host, self._hosts):
            raise Forbidden(
                "without keys this gateway accepts only host names of its own machine, such as "
                "localhost; make a key, or set gateway.open = 1"
            )
        if origin in self._origins:
            return
        is_foreign = sent.get(b"sec-fetch-site", b"none") not in _OWN_SITE
        if is_foreign and not origin and _is_link(verb, sent):
            return
        if is_foreign or (origin and origin.partition(b"://")[2] != host):
            raise Forbidden(
                "without keys this gateway accepts no pages of other sites; make a key, or add the "
                "page's origin to gateway.cors_origins"
            )


def allowed_origins(settings: GatewayConfig) -> list[str]:
    """Return the origins in `gateway.cors_origins`."""
    return [origin.strip() for origin in settings.cors_origins.split(",") if origin.strip()]


def _is_link(verb: str, sent: Mapping[bytes, bytes]) -> bool:
    """Say whether a browser sent a request because its user followed a link."""
    shown = sent.get(b"sec-fetch-mode"), sent.get(b"sec-fetch-dest")
    return verb == "GET" and shown == (b"navigate", b"document")


@lru_cache(_HOSTS_MAX)
def _is_local(host: bytes, names: frozenset[str]) -> bool:
    text = host.decode("latin-1").lower()
    name = text[1:].partition("]")[0] if text[:1] == "[" else text.partition(":")[0]
    if name in names or name.endswith(f".{_LOCALHOST}"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
