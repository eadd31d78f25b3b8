"""An application whose stream and class the tests of feeds read."""

from dataclasses import dataclass
from datetime import time, timedelta

from penstock import App, Emit, Entity, flow, key, stream


@dataclass
class Sale:
    item: str
    pieces: int
    hour: time = time(12)
    waited: list[timedelta] | None = None


class Item(Entity):
    name: str = key()
    stock: int = 0


sales = stream("sales", Sale)
words = stream("words", str)


class Count:
    total: int = 0

    def on_event(self, word: str, out: Emit[int]) -> None:
        self.total += 1
        out(self.total)


counts = flow("count", words).key(str).task(Count).sink("counts")
app = App("feeds", sales, words, counts, Item)
