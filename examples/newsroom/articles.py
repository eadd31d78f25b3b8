"""Articles, and the issues in which they are published."""

from dataclasses import dataclass
from typing import Literal

from penstock import Aborted, Entity, emit, key, stream, transactional

from .assets import Image, Person, Section


class AlreadyPublished(Aborted):
    """An article is published once."""

    code = "already-published"


class NotPublished(Aborted):
    """A published article names published articles only."""

    code = "not-published"


class Article(Entity):
    article_id: str = key()
    section: Section
    title: str
    text: str = ""
    authors: list[Person] = []
    image: Image | None = None
    related: list["Article"] = []
    named_by: list["Article"] = []
    state: Literal["draft", "published", "withdrawn"] = "draft"

    def publish(self) -> None:
        if self.state != "draft":
            raise AlreadyPublished(self.title)
        self.state = "published"
        for asset in self._assets():
            asset.appear()
        for other in self.related:
            other.gain_link(self)
        emit(publications, Publication(self, self.title, self.section, self.authors))

    def withdraw(self) -> None:
        """Take it back: articles that name it lose the link in the same transaction."""
        self._must_be_published()
        self.state = "withdrawn"
        for asset in self._assets():
            asset.disappear()
        for other in self.related:
            other.lose_link(self)
        for other in self.named_by:
            other.forget(self)
        self.related, self.named_by = [], []

    def illustrate(self, image: Image | None) -> None:
        """Show another image, or none."""
        if self.state == "published":
            if image is not None:
                image.appear()
            if self.image is not None:
                self.image.disappear()
        self.image = image

    def gain_link(self, by: "Article") -> None:
        self._must_be_published()
        self.named_by.append(by)

    def lose_link(self, by: "Article") -> None:
        self.named_by.remove(by)

    def forget(self, other: "Article") -> None:
        self.related.remove(other)

    def _must_be_published(self) -> None:
        if self.state != "published":
            raise NotPublished(self.title)

    def _assets(self) -> list[Section | Person | Image]:
        return [self.section, *self.authors, *([self.image] if self.image else [])]


@dataclass
class Publication:
    article: Article
    title: str
    section: Section
    authors: list[Person]


publications = stream("publications", Publication)


@transactional
def publish_issue(articles: list[Article]) -> int:
    """Publish all of the articles, or none of them; an article stands behind those that it names."""
    for article in articles:
        article.publish()
    return len(articles)
