"""An application of two modules whose rule changes, with epochs of both versions."""

from pathlib import Path

from tests.history import Call, journal_of

APP = """
from penstock import App, Entity, key
import {name}_rule

class Item(Entity):
    name: str = key()
    price: int = 0
{more}
    def order(self, count: int) -> int:
        from {name}_discount import discount
        return {name}_rule.total(self.price, count) - discount(count)

app = App("kiosk", Item)
"""
RULE = "def total(price: int, count: int) -> int:\n    return price * count + {fee}\n"
DISCOUNT = "def discount(count: int) -> int:\n    return {discount}\n"


def write_version(folder: Path, name: str, version: int, more: str = "") -> str:
    """Write a version of the application; return its path. Versions of one name replace each other."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(APP.format(name=name, more=more))
    (folder / f"{name}_rule.py").write_text(RULE.format(fee=version))
    (folder / f"{name}_discount.py").write_text(DISCOUNT.format(discount=version * 100))
    return str(folder / f"{name}.py")


def run_epochs(spec: str, data: Path, epochs: list[list[Call]]) -> None:
    """Process epochs with a version, as a driver does that starts."""
    journal_of(spec, data, epochs, deploys=True)
