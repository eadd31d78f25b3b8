"""An application whose stream and class the tests of feeds read."""

from dataclasses import dataclass
from datetime import time, timedelta

from penstock import App, Entity, key, stream


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
app = App("feeds", sales, words, Item)
