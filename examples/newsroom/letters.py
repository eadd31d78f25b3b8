"""Digests of an issue by topic, and the letters to the readers of the topic."""

from dataclasses import dataclass

from penstock import Emit, clear, flow, states

from .stories import Article, articles
from .subscriptions import readers_of


@dataclass
class Digest:
    """The titles of a topic in one issue."""

    topic: str
    titles: list[str]


@dataclass
class Letter:
    reader: str
    digest: Digest


def topic_of(article: Article) -> str:
    return article.topic


class Desk:
    """Collects the titles of an issue, and empties its desk at the end of the issue."""

    titles: list[str] = []

    def on_event(self, article: Article) -> None:
        self.titles.append(article.title)

    def on_atom_complete(self, out: Emit[Digest]) -> None:
        for topic, desk in states(self):
            out(Digest(topic, desk.titles))
        clear(self)


class Delivery:
    async def on_event(self, digest: Digest, out: Emit[Letter]) -> None:
        for reader in await readers_of.ask(digest.topic):
            out(Letter(reader, digest))


digests = flow("desk", articles).key(topic_of).task(Desk).sink("digests")
letters = flow("delivery", digests).task(Delivery).sink("letters")
