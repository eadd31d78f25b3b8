"""What articles show: sections, persons and images. They are published with their creation."""

from penstock import Aborted, Entity, key


class StillShown(Aborted):
    """A published article shows it."""

    code = "still-shown"


class Asset:
    """Counts the published articles that show it."""

    articles: int = 0

    def appear(self) -> None:
        self.articles += 1

    def disappear(self) -> None:
        self.articles -= 1

    def _must_be_unused(self) -> None:
        if self.articles:
            raise StillShown(f"published articles that show it: {self.articles}")


class Section(Asset, Entity):
    section_id: str = key()
    title: str

    def withdraw(self) -> None:
        self._must_be_unused()
        self.delete()


class Person(Asset, Entity):
    person_id: str = key()
    name: str

    def withdraw(self) -> None:
        self._must_be_unused()
        self.delete()


class Image(Asset, Entity):
    image_id: str = key()
    url: str
    caption: str

    def withdraw(self) -> None:
        self._must_be_unused()
        self.delete()
