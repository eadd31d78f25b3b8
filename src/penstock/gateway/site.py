"""Which web pages may speak for the anonymous.

Every page in a browser on this machine can send requests to a port of this machine, and one whose
name resolves to a loopback address can read the answers too. A gateway without keys must take
neither for its user: it hears a page only if it comes from the gateway itself, or from an origin in
`gateway.cors_origins`; and a gateway for this machine alone answers only to names of this machine.
Programs send no `Origin` and are not concerned. With keys or tokens none of this is needed, because
a page of strangers has none.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final, Self

from penstock.errors import Forbidden
from penstock.gateway.exposure import is_loopback
from penstock.runtime.config import GatewayConfig

_LOCALHOST: Final = "localhost"


class Site:
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

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Check where a request comes from.

        Raises:
            Forbidden: A page of another site sent it, or it was sent to a name of another machine.
        """
        host = origin = b""
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        if self._hosts is not None and host and not _is_local(host, self._hosts):
            raise Forbidden(
                "without keys this gateway answers only to names of its own machine, such as "
                "localhost; make a key, or set gateway.open = 1"
            )
        if origin and origin.partition(b"://")[2] != host and origin not in self._origins:
            raise Forbidden(
                "without keys this gateway hears no pages of other sites; make a key, or name the "
                "page's origin in gateway.cors_origins"
            )


def _is_local(host: bytes, names: frozenset[str]) -> bool:
    text = host.decode("latin-1").lower()
    name = text[1:].partition("]")[0] if text[:1] == "[" else text.partition(":")[0]
    if name in names or name.endswith(f".{_LOCALHOST}"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
