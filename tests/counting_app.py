"""An application with streams of every kind, for tests of their followers."""

from dataclasses import dataclass
from datetime import date, datetime

from penstock import App, flow, sequencer, splitter, stream


@dataclass
class Sale:
    item: str
    day: date
    at: datetime


def double(number: int) -> int:
    return 2 * number


lines = stream("lines", str)
sales = stream("sales", Sale)
numbers = stream("numbers", int)
doubled = flow("double", numbers).map(double).sink("doubled")
parity = splitter("parity", numbers, even=lambda number: number % 2 == 0)
joined = sequencer("joined", int, doubled)
app = App("counting", lines, sales, doubled, parity, joined)
