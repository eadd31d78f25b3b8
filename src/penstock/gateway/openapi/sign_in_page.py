"""The page that a browser gets in place of the API reference without a credential: it says so, and takes a key.

A browser sends no API key with an address that its user opens. So the page asks for the key, loads the reference with it,
and shows it in its place. It uses the key of the console if the user has signed in there, and keeps a key as the console does: until
the tab is closed.
"""

import base64
import hashlib
from html import escape
from typing import Final

from penstock.gateway.openapi.docs_page import PAGE_HEADERS

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:3em auto;padding:0 1em}"
)
_SCRIPT: Final = """
const form = document.forms[0], reason = document.getElementById("reason");
const open = async (key) => {
  const headers = { Authorization: `Bearer ${key}` };
  const answer = await fetch(location.href, { headers, cache: "no-store" });
  const text = await answer.text();
  if (!answer.ok) {
    reason.textContent = JSON.parse(text).error.message;
    return;
  }
  sessionStorage.setItem("penstock-key", key);
  if (!answer.headers.get("content-type").startsWith("text/html")) {
    const shown = document.createElement("pre");
    shown.textContent = text;
    document.body.replaceChildren(shown);
    return;
  }
  const page = new DOMParser().parseFromString(text, "text/html");
  document.replaceChild(document.adoptNode(page.documentElement), document.documentElement);
};
form.addEventListener("submit", (event) => {
  event.preventDefault();
  open(form.elements.key.value.trim());
});
const known = sessionStorage.getItem("penstock-key");
if (known) open(known);
"""
_HASHES: Final = [
    base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (_STYLE, _SCRIPT)
]
_POLICY: Final = PAGE_HEADERS["Content-Security-Policy"]
SIGN_IN_HEADERS: Final = {
    **PAGE_HEADERS,
    "Content-Security-Policy": _POLICY.replace("style-src ", f"style-src 'sha256-{_HASHES[0]}' ")
    + f"; script-src 'sha256-{_HASHES[1]}'; connect-src 'self'",
    "Cache-Control": "no-store",
}
"""The headers of the page; its policy also allows the style of the reference, which comes in its place."""


def sign_in_page(reason: str) -> str:
    """Return the page with the reason why the reference was refused, as HTML."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<title>A key is needed</title><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head><body><main><h1>A key is needed</h1>"
        f'<p id="reason" role="alert">{escape(reason)}</p>'
        '<form><label>API key or token <input name="key" type="password" autocomplete="off" required></label> '
        "<button>Show the page</button></form>"
        f"</main><script>{_SCRIPT}</script></body></html>"
    )
