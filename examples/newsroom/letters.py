"""Digests of an issue by topic, and the letters to the readers of the topic."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock import Emit, clear, flow, states

from .articles import Article, Publication, publications
from .subscriptions import readers_of


@dataclass
class Headline:
    """An article under one of its topics: its section, or an author."""

    topic: str
    article: Article
    title: str


@dataclass
class Digest:
    """The articles of a topic in one issue."""

    topic: str
    articles: list[Article]
    titles: list[str]


@dataclass
class Letter:
    reader: str
    topic: str
    articles: list[Article]
    titles: list[str]


def headlines(publication: Publication) -> Iterator[Headline]:
    topics = [f"section/{publication.section.section_id}"]
    topics += [f"person/{author.person_id}" for author in publication.authors]
    for topic in topics:
        yield Headline(topic, publication.article, publication.title)


def topic_of(headline: Headline) -> str:
    return headline.topic


class Desk:
    """Collects the headlines of an issue, and empties its desk at the end of the issue."""

    articles: list[Article] = []
    titles: list[str] = []

    def on_event(self, headline: Headline) -> None:
        self.articles.append(headline.article)
        self.titles.append(headline.title)

    def on_atom_complete(self, out: Emit[Digest]) -> None:
        for topic, desk in states(self):
            out(Digest(topic, desk.articles, desk.titles))
        clear(self)


class Delivery:
    async def on_event(self, digest: Digest, out: Emit[Letter]) -> None:
        for reader in await readers_of.ask(digest.topic):
            out(Letter(reader, digest.topic, digest.articles, digest.titles))


digests = flow("desk", publications).flat_map(headlines).key(topic_of).task(Desk).sink("digests")
letters = flow("delivery", digests).task(Delivery).sink("letters")
