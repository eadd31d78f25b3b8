"""An application with open streams: of texts, of records, of a class with code of its own, and limited ones."""

import os
import threading
from dataclasses import dataclass

import msgspec

from penstock import App, Entity, flow, key, stream, transactional


@dataclass(frozen=True)
class Sale:
    title: str
    copies: int = 1


class Fussy(msgspec.Struct):
    """A Struct whose check raises, ends its process, or never returns."""

    way: str

    def __post_init__(self) -> None:
        if self.way == "raise":
            raise SystemExit
        if self.way == "exit":
            os._exit(1)
        if self.way == "wait":
            threading.Event().wait()


class Reader(Entity):
    name: str = key()


@transactional
def append(text: str) -> str:
    """Return its argument; the function has the name of an operation of clients."""
    return text


headlines = stream("headlines", str)
sales = stream("sales", Sale)
readers = stream("readers", Reader)
fussy = stream("fussy", Fussy)
scarce = stream("scarce", int, limits="2/d per principal")
words = flow("split", headlines).flat_map(str.split).sink("words", str)
app = App("newsstand", append, Reader, words, sales, readers, fussy, scarce)
