"""Request ids: chosen by callers, drawn at random, and as the log stores them.

A request id belongs to its principal: the same id of two principals names two requests, and neither
principal can use the other's id, ask for its status or get its reply. So the log stores
`principal~id`. SQL, the commands, traces and `penstock.request_id()` show that form. Without keys and
tokens there is one principal, and its ids are stored unchanged.
"""

import os
import re
from typing import Final

from penstock.base.ids import PRINCIPAL_SEPARATOR, RequestId
from penstock.engine.streams.derived_ids import MARK
from penstock.engine.streams.generator_positions import generated_id
from penstock.errors import Forbidden, RequestError
from penstock.gateway.auth.principal import ANONYMOUS, Principal
from penstock.model.application import App

_BYTES: Final = 16
_AT_ONCE: Final = 4_096
_CHOSEN: Final = re.compile(r"[!-}]+")  # printable ASCII without space and `~`
_REST: Final = re.compile(r"[!-~]+")
_STORED: Final = re.compile(r"(?:[!-}]*~)?[!-}]+")


def check_chosen(text: str, bytes_max: int) -> str:
    """Return the id that a caller chose for a request."""
    if len(text) > bytes_max or not _CHOSEN.fullmatch(text):
        raise RequestError(
            f"a request id takes 1 to {bytes_max} printable ASCII characters without spaces and "
            f"without {PRINCIPAL_SEPARATOR}, which separates it from its principal"
        )
    return text


def check_free(app: App, principal: Principal, chosen: str) -> None:
    """Refuse an id of a generator that an anonymous caller has chosen: it would move the generator's position.

    Args:
        principal: The caller; another principal has ids, and so positions, of its own.
    """
    generators = app.topology.generators
    if principal is not ANONYMOUS or not generators:
        return
    generated = generated_id(app.name, chosen)
    if generated is not None and generated.generator in generators:
        raise Forbidden(
            f"the request id {chosen} belongs to generator {generated.generator}: without keys, only penstock "
            "generate with the data directory of the application (--data) may use it; choose another id"
        )


def check_stored(text: str) -> RequestId:
    """Return an id as the log stores it."""
    if not _STORED.fullmatch(text):
        raise RequestError(
            f"{text!r} is not a request id: use printable ASCII characters without spaces, and at most "
            f"one {PRINCIPAL_SEPARATOR}, after the name of the principal"
        )
    return RequestId(text)


def check_cancels(principal: Principal, text: str) -> None:
    """Check that a principal may cancel the request with an id of its own, as a path names it.

    Requests that a cascade has sent or scheduled, and the time limits of its questions, belong to the application: only
    an operator cancels them. Their callers may read them.
    """
    if MARK in text and not principal.is_admin:
        raise Forbidden(
            f"{principal.name} lacks the scope admin: request {text} was sent by the application, not by its caller"
        )


def stored_id(principal: Principal, chosen: str) -> RequestId:
    """Return the form in which the log stores an id that a principal has chosen."""
    if not principal.namespace:
        return RequestId(chosen)
    return RequestId(f"{principal.namespace}{PRINCIPAL_SEPARATOR}{chosen}")


def named_id(
    principal: Principal, text: str, bytes_max: int, *, is_read: bool = False
) -> RequestId:
    """Return the stored id that a principal names in a path.

    Args:
        text: One of the principal's own ids, or `principal~id` in full; `~id` is a request that
            was made without a principal. Behind `~~` is the rest of an id that was derived from one of
            these, such as `order-7~~1` for a request that `order-7` has sent.
        bytes_max: The longest id that a caller may choose.
        is_read: Whether the caller only looks at the request.

    Raises:
        RequestError: No request can have such an id.
    """
    root, mark, rest = text.partition(MARK)
    if mark and not _REST.fullmatch(rest):
        raise RequestError(
            f"{text!r} is not a request id: nothing, or no printable ASCII, follows {MARK}"
        )
    # Neither an id nor the name of a principal holds a `~`, so a stored id is unambiguous.
    namespace, separator, chosen = root.rpartition(PRINCIPAL_SEPARATOR)
    check_chosen(chosen, bytes_max)
    if not separator:
        stored = stored_id(principal, chosen)
    else:
        if namespace != principal.namespace:
            (principal.require_watch if is_read else principal.require_admin)()
        stored = check_stored(root if namespace else chosen)
    return RequestId(f"{stored}{mark}{rest}")


class RequestIds:
    """Draws request ids; for one thread."""

    def __init__(self) -> None:
        self._drawn: list[str] = []

    def draw(self) -> str:
        """Return an id: 32 hexadecimal digits."""
        if not self._drawn:
            # Random bits of the operating system, because callers must not guess the ids of others. Each
            # fetch releases the interpreter lock, and to get the lock back takes ten times as long as the
            # rest: so the bits for many ids are fetched together.
            text = os.urandom(_BYTES * _AT_ONCE).hex()
            width = 2 * _BYTES
            self._drawn = [text[at : at + width] for at in range(0, len(text), width)]
        return self._drawn.pop()
