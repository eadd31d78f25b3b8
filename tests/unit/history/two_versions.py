"""An application of three modules that changes between two deployments, with epochs of both versions."""

import os
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import msgspec

from penstock.deployment.archives import Archives, pack
from penstock.files.sealed import seal
from penstock.journal.deployments import NAME, Deployments
from tests.history import Call, journal_of

APP = """
from penstock import App, Entity, key
import {name}_rule

class Item(Entity):
    name: str = key()
    price: int = 0
    total: int = 0

    def order(self, count: int) -> int:
        from {name}_discount import discount
        self.total = {name}_rule.total(self.price, count) - discount(count)
        return self.total

app = App("kiosk", Item)
"""
RULE = "def total(price: int, count: int) -> int:\n    return price * count + {version}\n"
DISCOUNT = "def discount(count: int) -> int:\n    return {version} * 100\n"
CREATED: list[list[Call]] = [[("Item", "tea", "create", {"price": 3})]]
ORDERED: list[list[Call]] = [[("Item", "tea", "order", (2,))]]
_numbers = count()
_seconds = count(1_000_000_000)


@dataclass(frozen=True)
class Kiosk:
    """The application, and its data directory."""

    spec: str
    data: Path

    def change(self, before: str, after: str) -> None:
        """Change a line of the application's source; the next load sees it."""
        path = Path(self.spec)
        text = path.read_text()
        assert before in text
        _put(path, text.replace(before, after))

    def redeploy(self, files: dict[str, bytes], python: str) -> None:
        """Replace the code of the first deployment, as if it had run with it."""
        first, *others = Deployments(self.data / "journal").every()
        archive = Archives(self.data).put(pack(files))
        code = msgspec.structs.replace(first.code, archive=archive, python=python)
        every = [msgspec.structs.replace(first, code=code), *others]
        (self.data / "journal" / NAME).write_bytes(seal("deployments", every))


def fresh(folder: Path) -> Kiosk:
    """Run two epochs with each of two versions; each call has modules of its own names."""
    name = f"kiosk{next(_numbers)}"
    kiosk = Kiosk(str(folder / f"{name}.py"), folder / "data")
    for version, epochs in ((1, [*CREATED, *ORDERED]), (2, [*ORDERED, *ORDERED])):
        _write(folder, name, version)
        journal_of(kiosk.spec, kiosk.data, epochs, deploys=True)
    return kiosk


def _write(folder: Path, name: str, version: int) -> None:
    """Write a version of the application, and let the process forget an earlier one."""
    texts = {name: APP, f"{name}_rule": RULE, f"{name}_discount": DISCOUNT}
    for module, text in texts.items():
        _put(folder / f"{module}.py", text.format(name=name, version=version))


def _put(path: Path, text: str) -> None:
    """Write a module, and let the process forget an earlier one.

    Python takes compiled code for that of a source with the same size and the same second, so each version has a second
    of its own.
    """
    path.write_text(text)
    second = next(_seconds)
    os.utime(path, (second, second))
    sys.modules.pop(path.stem, None)
