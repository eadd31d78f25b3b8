"""A small application: its requests load the classes that the class archive records."""

from typing import Final

from penstock.model.application import App
from penstock.model.entity import Entity, key

REQUESTS: Final = 20


class Counter(Entity):
    """A number."""

    name: str = key()
    value: int = 0

    def add(self, amount: int) -> int:
        """Add an amount, and return the new value."""
        self.value += amount
        return self.value


app = App("recorded", Counter)
