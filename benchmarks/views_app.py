"""The application of `benchmarks.views`: items that are in a database and in a search index, with `VIEWS=on`."""

import os

from penstock import App, Entity, key, search, sqlite, view


class Item(Entity):
    """An item."""

    item_id: str = key()
    name: str = ""
    price: int = 0
    stock: int = 0

    def buy(self) -> int:
        """Take one from the stock."""
        self.stock -= 1
        return self.stock


VIEWS = (
    view("reporting", sqlite(), Item),
    view("catalogue", search(text=["name"], facets=["price"]), Item),
)

app = App("views", Item, *(VIEWS if os.environ.get("VIEWS") == "on" else ()))
