"""A kiosk in versions: every version answers with its number, and the journal alone shows whether all is right.

A purchase moves stock and money, counts itself, and returns the version of the code that ran it. So the journal shows
whether a purchase took effect once, and whether it ran with the code of its epoch. Versions differ in the attributes of
the class `Item`, and each can follow any other one.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.base.ids import BEFORE_FIRST
from penstock.deployment.archives import Archives
from penstock.deployment.loading import load_app
from penstock.journal.api import Commit, PartKind
from penstock.journal.delta import DeltaJournal
from penstock.journal.deployments import Deployment, Deployments, deployment_at
from penstock.model.application import App
from penstock.model.request import decode_request
from penstock.process.data_directory import DataDirectory

ITEMS: Final = 40
USERS: Final = 200
STOCK: Final = 10_000_000
CREDIT: Final = 10_000_000
PRICES: Final = 5

_ATTRIBUTES: Final = ("", 'shelf: str = "left"', "weight: float = 0.5")
_VERSION: Final = "VERSION = "
_SOURCE: Final = """
from penstock import App, Entity, key, transactional

VERSION = {version}


class Item(Entity):
    name: str = key()
    price: int
    stock: int
    {attribute}


class User(Entity):
    name: str = key()
    credit: int
    bought: int = 0

    def buy(self, item: Item, amount: int) -> tuple[int, int]:
        item.stock -= amount
        self.credit -= amount * item.price
        self.bought += amount
        return VERSION, self.bought


@transactional
def fill() -> None:
    for number in range({items}):
        Item.create(f"i{{number}}", price=1 + number % {prices}, stock={stock})
    for number in range({users}):
        User.create(f"u{{number}}", credit={credit})


app = App("kiosk", Item, User, fill)
"""


def write_version(folder: Path, version: int, *, broken: bool = False) -> None:
    """Replace the source in a folder by a version; a broken one raises an error when it is imported."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    attribute = _ATTRIBUTES[version % len(_ATTRIBUTES)]
    text = _SOURCE.format(
        version=version,
        attribute=attribute,
        items=ITEMS,
        users=USERS,
        stock=STOCK,
        credit=CREDIT,
        prices=PRICES,
    )
    (folder / "__init__.py").write_text(f"{text}\n1 / 0\n" if broken else text)


def complaints_of(
    source: Path, data: Path, replies: dict[str, Any]
) -> tuple[dict[int, int], list[str]]:
    """Compare the replies to clients with the journal, and the journal with itself.

    Args:
        source: The folder of the application.
        data: The data directory; the application is stopped.
        replies: The replies that clients got, by request id.

    Returns:
        How many purchases each version has run, and the contradictions.
    """
    app = load_app(str(source))
    with closing(DataDirectory(data).open_journal(app)) as journal:
        audit = _Audit(data, journal, app)
        for commit in journal.commits(BEFORE_FIRST):
            audit.take(commit)
    audit.compare(replies)
    return audit.versions, audit.complaints


class _Audit:
    """What the journal says."""

    def __init__(self, data: Path, journal: DeltaJournal, app: App) -> None:
        self._journal, self._app = journal, app
        self._deployments = Deployments(DataDirectory(data).journal_root).every()
        self._archives = Archives(data)
        self._state: dict[tuple[str, str], dict[str, Any]] = {}
        self._replies: dict[str, Any] = {}
        self._bought = 0
        self.versions: dict[int, int] = {}
        self.complaints: list[str] = []

    def take(self, commit: Commit) -> None:
        """Take the rows of an epoch."""
        deployment = deployment_at(self._deployments, commit.epoch)
        version = None if deployment is None else _version_of(self._archives, deployment)
        for row in self._rows(commit, PartKind.TRANSACTIONS):
            self._take_request(row, version)
        for row in self._rows(commit, PartKind.CHANGES):
            entity, key = row["entity"], row["key"]
            self._state[entity, key] = self._app.entities[entity].plain(key, row["state"])

    def _take_request(self, row: dict[str, Any], version: int | None) -> None:
        name = row["request_id"]
        if name in self._replies:
            self.complaints.append(f"{name} took effect twice")
        if row["error"] is not None or not name.startswith("buy"):
            self._replies[name] = row["error"]
            return
        reply = msgspec.msgpack.decode(row["reply"])
        self._replies[name] = reply
        self._bought += msgspec.msgpack.decode(decode_request(row["request"]).positional)[1]
        self.versions[reply[0]] = self.versions.get(reply[0], 0) + 1
        if reply[0] != version:
            self.complaints.append(f"{name} ran version {reply[0]}, its epoch has {version}")

    def _rows(self, commit: Commit, part_kind: PartKind) -> Iterator[dict[str, Any]]:
        for part in commit.parts_of(part_kind):
            yield from self._journal.read(part).to_pylist()

    def compare(self, replies: dict[str, Any]) -> None:
        """Compare the state with the purchases, and the replies of clients with those of the journal."""
        for name, reply in replies.items():
            if self._replies.get(name) != reply:
                self.complaints.append(
                    f"{name}: {reply} was told, the journal has {self._replies.get(name)}"
                )
        users = self._all("User")
        items = self._all("Item")
        facts = {
            "pieces are missing from stock": ITEMS * STOCK - sum(each["stock"] for each in items),
            "pieces are counted by users": sum(each["bought"] for each in users),
        }
        self.complaints += [
            f"{amount} {fact}, {self._bought} were bought"
            for fact, amount in facts.items()
            if amount != self._bought
        ]
        paid = USERS * CREDIT - sum(each["credit"] for each in users)
        cost = sum((STOCK - each["stock"]) * each["price"] for each in items)
        if paid != cost:
            self.complaints.append(f"users paid {paid}, and the items cost {cost}")

    def _all(self, entity: str) -> list[dict[str, Any]]:
        return [values for (name, _), values in self._state.items() if name == entity]


def _version_of(archives: Archives, deployment: Deployment) -> int:
    """Return the version in the archive of a deployment."""
    (text,) = archives.files(deployment.code.archive).values()
    line = next(each for each in text.decode().splitlines() if each.startswith(_VERSION))
    return int(line.removeprefix(_VERSION))
