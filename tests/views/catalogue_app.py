"""An application with a search index of its items, and one view without."""

from dataclasses import dataclass
from decimal import Decimal

from penstock import App, Entity, key, rows, search, sqlite, view


class Item(Entity):
    item_id: str = key()
    name: str = ""
    brand: str = ""
    price: Decimal = Decimal(0)

    def rename(self, name: str) -> None:
        self.name = name


@dataclass
class Offer:
    name: str
    price: Decimal


@rows(Item)
def offers(item: Item) -> Offer | None:
    if item.name == "broken":
        raise ValueError("no offer")
    return Offer(f"offer of {item.name}", item.price) if item.price < 2 else None


catalogue = view("catalogue", search(text=["name"], facets=["brand"]), Item, offers)
copies = view("copies", sqlite(), Item)

app = App("shop", Item, catalogue, copies)
