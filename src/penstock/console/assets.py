"""The console's own files: read once, served with an ETag and a strict content policy.

The policy makes the browser refuse files from other sites. The files hold no data of the application,
so they are public.
"""

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Final

from starlette.responses import Response

from penstock.gateway.http_request import HttpRequest

PAGE: Final = "index.html"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)


@dataclass(frozen=True, slots=True)
class Asset:
    """One file."""

    content: bytes
    headers: dict[str, str]

    def answer(self, request: HttpRequest) -> Response:
        """Return the file, or 304 to a browser that has it."""
        known = {tag.strip() for tag in request.headers.get("if-none-match", "").split(",")}
        if self.headers["ETag"] in known:
            return Response(status_code=304, headers=self.headers)
        return Response(self.content, headers=self.headers)


def load_assets() -> dict[str, Asset]:
    """Return every file of the console by its name."""
    files = resources.files("penstock.console").joinpath("static").iterdir()
    return {file.name: _asset(file.name, file.read_bytes()) for file in files if file.is_file()}


def _asset(name: str, content: bytes) -> Asset:
    headers = {
        "Content-Type": _TYPES[name.rpartition(".")[2]],
        "Content-Security-Policy": _POLICY,
        "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        "Cache-Control": "no-cache",  # the browser asks again each time, so that it sees an upgrade at once
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return Asset(content, headers)
