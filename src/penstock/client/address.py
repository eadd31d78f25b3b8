"""The URL of a gateway and the key to it: both are checked before anything is sent.

The key appears in no message and no `repr`. Neither the key nor the URL can smuggle anything else
into a request.
"""

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from penstock.errors import ConfigError

_KEY: Final = re.compile(r"[\x21-\x7e]+")
_SCHEMES: Final = ("http", "https")


@dataclass(frozen=True, slots=True)
class Address:
    """A gateway's URL and the key to it.

    Attributes:
        url: The URL without a slash at its end.
        key: An API key or a token; None if the gateway needs neither.
    """

    url: str
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check both.

        Raises:
            ConfigError: The URL has a wrong form, or the key cannot be sent.
        """
        object.__setattr__(self, "url", _checked(self.url))
        if self.key is not None and not _KEY.fullmatch(self.key):
            raise ConfigError("the key cannot be sent: a key is printable ASCII without spaces")

    @property
    def is_encrypted(self) -> bool:
        """Whether its connections use TLS."""
        return urlsplit(self.url).scheme == "https"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}


def _checked(url: str) -> str:
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError("the URL of a gateway is ASCII without spaces")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"the URL of the gateway cannot be read: {error}") from error
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the URL of a gateway must not hold a user or password; give a key")
    if parts.scheme not in _SCHEMES or not parts.hostname or port == 0:
        raise ConfigError(
            f"{url!r} is not the URL of a gateway; an example is http://127.0.0.1:8000"
        )
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ConfigError(f"{url!r}: the URL of a gateway must not have a query or a fragment")
    return url.rstrip("/")
