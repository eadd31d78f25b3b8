"""The console's own files: read once, served with an ETag and a strict content policy.

Nothing is loaded from elsewhere: the policy tells the browser to refuse it. The files hold no data
of the application, so anybody may have them.
"""

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

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

    def answer(self, request: Request) -> Response:
        """Return the file, or 304 to a browser that has it."""
        known = {one.strip() for one in request.headers.get("if-none-match", "").split(",")}
        if self.headers["ETag"] in known:
            return Response(status_code=304, headers=self.headers)
        return Response(self.content, headers=self.headers)


def load_assets() -> dict[str, Asset]:
    """Return every file of the console by its name."""
    files = resources.files("penstock.console").joinpath("static").iterdir()
    return {one.name: _asset(one.name, one.read_bytes()) for one in files if one.is_file()}


def _asset(name: str, content: bytes) -> Asset:
    headers = {
        "Content-Type": _TYPES[name.rpartition(".")[2]],
        "Content-Security-Policy": _POLICY,
        "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        "Cache-Control": "no-cache",  # kept, but asked for again: an upgrade is seen at once
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return Asset(content, headers)
