"""A gateway without keys hears its own pages, and those of the origins allowed."""

from pathlib import Path

import pytest

from penstock import App, entity, key
from penstock.errors import Forbidden
from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.auth.principal import ANONYMOUS
from penstock.process.config import Config, GatewayConfig

Headers = list[tuple[bytes, bytes]]


@entity
class Item:
    item_id: str = key()


APP = App("sites", Item)


def authenticator(data: Path, **settings: object) -> Authenticator:
    return Authenticator.of(Config(data, gateway=GatewayConfig(**settings)), APP)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        (b"127.0.0.1:8000", b""),
        (b"localhost:8000", b"http://localhost:8000"),
        (b"[::1]:8000", b"http://[::1]:8000"),
        (b"shop.localhost", b""),
        (b"127.0.0.1:8000", b"https://shop.example"),
    ],
)
def test_own_pages_are_anonymous(tmp_path: Path, host: bytes, origin: bytes) -> None:
    """Without keys the gateway's own pages, and those of the origins allowed, are heard."""
    door = authenticator(tmp_path, cors_origins="https://shop.example")
    assert door.identify([(b"host", host), (b"origin", origin)]) == ANONYMOUS


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        (b"127.0.0.1:8000", b"http://evil.example"),
        (b"127.0.0.1:8000", b"http://127.0.0.1:3000"),
        (b"127.0.0.1:8000", b"null"),
        (b"evil.example:8000", b"http://evil.example:8000"),
        (b"localhost.evil.example", b""),
        (b"127.0.0.1.evil.example", b""),
        (b"\xff", b""),
    ],
)
def test_pages_of_other_sites_are_not_anonymous(tmp_path: Path, host: bytes, origin: bytes) -> None:
    """A page that a browser on this machine shows cannot use a gateway that has no keys."""
    door = authenticator(tmp_path, cors_origins="https://shop.example")
    with pytest.raises(Forbidden, match="without keys"):
        door.identify([(b"host", host), (b"origin", origin)])


def fetch(site: bytes, mode: bytes, shown_in: bytes, origin: bytes = b"") -> Headers:
    """Return the headers that a browser adds on its own."""
    return [
        (b"host", b"127.0.0.1:8000"),
        (b"sec-fetch-site", site),
        (b"sec-fetch-mode", mode),
        (b"sec-fetch-dest", shown_in),
        *([(b"origin", origin)] if origin else []),
    ]


@pytest.mark.parametrize(
    ("verb", "headers"),
    [
        ("GET", fetch(b"cross-site", b"no-cors", b"image")),
        ("GET", fetch(b"cross-site", b"no-cors", b"script")),
        ("GET", fetch(b"same-site", b"no-cors", b"image")),
        ("GET", fetch(b"cross-site", b"navigate", b"iframe")),
        ("GET", fetch(b"cross-site", b"cors", b"empty", b"http://127.0.0.1:8000")),
        ("HEAD", fetch(b"cross-site", b"no-cors", b"empty")),
        ("POST", fetch(b"cross-site", b"navigate", b"document")),
        ("POST", fetch(b"cross-site", b"navigate", b"document", b"null")),
        ("GET", fetch(b"anything else", b"no-cors", b"image")),
    ],
)
def test_cross_site_requests_are_refused(tmp_path: Path, verb: str, headers: Headers) -> None:
    """A request that a browser marks as another site's is refused, also without an origin."""
    for settings in ({}, {"host": "0.0.0.0", "open": 1}):
        with pytest.raises(Forbidden, match="no pages of other sites"):
            authenticator(tmp_path, **settings).identify(headers, verb)


@pytest.mark.parametrize(
    "headers",
    [
        fetch(b"cross-site", b"navigate", b"document"),
        fetch(b"same-origin", b"cors", b"empty"),
        fetch(b"none", b"navigate", b"document"),
        fetch(b"cross-site", b"cors", b"empty", b"https://shop.example"),
    ],
)
def test_links_and_own_pages_are_heard(tmp_path: Path, headers: Headers) -> None:
    """A link on any page leads here, as do own pages, typed addresses, and origins allowed."""
    door = authenticator(tmp_path, cors_origins="https://shop.example")
    assert door.identify(headers, "GET") == ANONYMOUS
