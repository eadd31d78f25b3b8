"""Editors of `examples/newsroom` who publish and withdraw at random, and what the views of the newsroom show."""

import random
import re
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from examples.newsroom import app
from examples.newsroom.articles import Article
from examples.newsroom.assets import Image, Person, Section
from examples.newsroom.subscriptions import Subscription
from penstock.base.ids import RequestId
from penstock.log.api import Entry
from penstock.model.call import Call, Preparing, encoded
from penstock.views.search_index import SearchIndex, SearchQuery
from tests.differential.inline import Inline

SPEC = "examples.newsroom"
_FEW = 4
_ASSETS = ("Section", "Person", "Image")
_PARTS = ("article_parts", "section_parts", "person_parts", "image_parts")


class Editors:
    """Sends the requests of editors; many are refused, because an asset is still shown or not there."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.newsroom = Inline(folder, 1, SPEC, "newsroom")
        self._draw = random.Random(seed)
        self._articles = 0
        self._requests = 0
        wanted = [Subscription("ann", f"section/{n}") for n in range(_FEW)]
        self.send([prepared(call.append("subscriptions", wanted))])
        self.send(self._created(kind, f"{n}") for kind in _ASSETS for n in range(_FEW))

    def work(self, requests: int) -> None:
        """Send requests, and process them as one epoch."""
        self.send(self._request() for _ in range(requests))

    def send(self, calls: Iterable[Call[Any]]) -> None:
        entries = []
        for each in calls:
            self._requests += 1
            body, hint = encoded(app, each)
            entries.append(Entry(RequestId(f"r{self._requests}"), body, hint, 0))
        self.newsroom.log.append(entries)
        self.newsroom.advance(self.newsroom.log.end())

    def _request(self) -> Call[Any]:
        return self._draw.choice(
            [self._draft] * 3
            + [self._publish] * 4
            + [self._asset] * 2
            + [self._withdraw_article, self._withdraw_asset, self._illustrate]
        )()

    def _asset(self) -> Call[Any]:
        return self._created(self._draw.choice(_ASSETS), self._few())

    def _created(self, kind: str, name: str) -> Call[Any]:
        title = f"{kind} {name}"
        values = {
            "Section": {"title": title},
            "Person": {"name": title},
            "Image": {"url": f"/{name}.jpg", "caption": title},
        }
        return prepared(getattr(call, kind).create(name, **values[kind]))

    def _draft(self) -> Call[Any]:
        draw = self._draw
        related = {self._article() for _ in range(draw.choice([0, 0, 1, 2]))}
        self._articles += 1
        return prepared(
            call.Article.create(
                f"a{self._articles}",
                section=Section(self._few()),
                title=f"article {self._articles}",
                authors=[Person(self._few())],
                image=Image(self._few()) if draw.random() < 0.5 else None,
                related=[Article(name) for name in sorted(related)],
            )
        )

    def _publish(self) -> Call[Any]:
        names = {self._article() for _ in range(self._draw.choice([1, 1, 2]))}
        return prepared(call.publish_issue([Article(name) for name in sorted(names)]))

    def _withdraw_article(self) -> Call[Any]:
        return prepared(call.Article(self._article()).withdraw())

    def _withdraw_asset(self) -> Call[Any]:
        return prepared(getattr(call, self._draw.choice(_ASSETS))(self._few()).withdraw())

    def _illustrate(self) -> Call[Any]:
        image = self._draw.choice([None, Image(self._few())])
        return prepared(call.Article(self._article()).illustrate(image))

    def _few(self) -> str:
        return f"{self._draw.randrange(_FEW)}"

    def _article(self) -> str:
        """Return one of the newest articles."""
        return f"a{max(0, self._articles - self._draw.randrange(8))}"


call: Any = Preparing(app, lambda made: made)


def prepared(made: Any) -> Call[Any]:
    assert isinstance(made, Call)
    return made


class Shown(NamedTuple):
    """What one state of a view shows.

    Attributes:
        has: The names of what is there.
        names: What the rows name.
    """

    epoch: int
    has: set[str]
    names: set[str]

    @property
    def dangling(self) -> set[str]:
        """What is named and is not there."""
        return self.names - self.has


def named_in(html: str) -> list[str]:
    """Return the paths that a part of a page includes or links to."""
    return re.findall(r'(?:virtual|href)="([^"]+)"', html)


def pages(folder: Path) -> Shown:
    every = " UNION ALL ".join(f'SELECT path, html FROM "{name}"' for name in _PARTS)
    epoch, rows = _read(folder, every)
    return Shown(
        epoch, {path for path, _ in rows}, {name for _, html in rows for name in named_in(html)}
    )


def inbox(folder: Path) -> Shown:
    every = "SELECT article_id, NULL FROM lines UNION ALL SELECT NULL, articles FROM letters"
    epoch, rows = _read(folder, every)
    named = {name for _, names in rows if names for name in msgspec.json.decode(names)}
    return Shown(epoch, {name for name, _ in rows if name is not None}, named)


def site_search(folder: Path) -> Shown:
    answer = SearchIndex(folder).search(SearchQuery(limit=1_000))
    assert answer.total == len(answer.hits)
    has, names = set(), set()
    for hit in answer.hits:
        row = msgspec.json.decode(hit.row)
        has.add(f"{hit.table}/{row['_key']}")
        if hit.table == "stories":
            names.add(f"Section/{row['section']}")
            names.update(f"Person/{name}" for name in row["authors"])
            names.update(f"stories/{name}" for name in row["related"])
            names.update([f"Image/{row['image']}"] if row["image"] is not None else [])
    return Shown(answer.epoch, has, names)


VIEWS: dict[str, Callable[[Path], Shown]] = {
    "pages": pages,
    "search": site_search,
    "inbox": inbox,
}
"""Reads one state of each view of the newsroom, given its folder."""


def _read(folder: Path, query: str) -> tuple[int, list[tuple[Any, ...]]]:
    """Return the epoch of an SQLite view and the rows of a query, read in one transaction."""
    with closing(sqlite3.connect(folder / "view.sqlite", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        (epoch,) = connection.execute("SELECT epoch FROM _penstock_view").fetchone()
        return epoch, connection.execute(query).fetchall()
