"""Request ids that nobody can guess: 128 random bits, as the caller of a request may choose none.

Who knows an id may ask for its reply, so the bits are the operating system's; they are fetched for
many ids at once, because each fetch lets go of the interpreter, and waiting for it again costs ten
times as much as all else that an id takes.
"""

import os
from typing import Final

_BYTES: Final = 16
_AT_ONCE: Final = 512


class RequestIds:
    """Draws request ids; for one thread."""

    def __init__(self) -> None:
        self._drawn: list[str] = []

    def draw(self) -> str:
        """Return an id: 32 hexadecimal digits."""
        if not self._drawn:
            text = os.urandom(_BYTES * _AT_ONCE).hex()
            width = 2 * _BYTES
            self._drawn = [text[at : at + width] for at in range(0, len(text), width)]
        return self._drawn.pop()
