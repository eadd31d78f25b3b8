"""What readers see: ready parts of pages, a search index, and letters. Each view is fed from the log."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from penstock import rows, search, sqlite, view

from .articles import Article
from .assets import Image, Person, Section
from .letters import letters


@dataclass
class Part:
    """A part of a page, which a web server with server-side includes puts together."""

    path: str
    html: str


def part(path: str, html: str) -> Part:
    return Part(f"/{path}", html)


def include(path: str) -> str:
    return f'<!--#include virtual="/{path}" -->'


@rows(Article)
def article_parts(article: Article) -> Iterator[Part]:
    """The page of an article, and its line in the pages of others."""
    if article.state != "published":
        return
    path, title = f"articles/{article.article_id}", escape(article.title)
    shown = [f"sections/{article.section.section_id}"]
    shown += [f"persons/{author.person_id}" for author in article.authors]
    if article.image is not None:
        shown.append(f"images/{article.image.image_id}")
    related = [f"articles/{other.article_id}/line" for other in article.related]
    head, foot = ("".join(map(include, paths)) for paths in (shown, related))
    yield part(path, f"<h1>{title}</h1>{head}<p>{escape(article.text)}</p>{foot}")
    yield part(f"{path}/line", f'<a href="/{path}">{title}</a>')


@rows(Section)
def section_parts(section: Section) -> Part:
    return part(f"sections/{section.section_id}", f"<h2>{escape(section.title)}</h2>")


@rows(Person)
def person_parts(person: Person) -> Part:
    return part(f"persons/{person.person_id}", f"<address>{escape(person.name)}</address>")


@rows(Image)
def image_parts(image: Image) -> Part:
    caption = escape(image.caption)
    return part(f"images/{image.image_id}", f'<img src="{escape(image.url)}" alt="{caption}">')


pages = view("pages", sqlite(), article_parts, section_parts, person_parts, image_parts)


@dataclass
class Story:
    title: str
    text: str
    section: Section
    authors: list[Person]
    image: Image | None
    related: list[Article]


@rows(Article)
def stories(article: Article) -> Story | None:
    if article.state != "published":
        return None
    return Story(
        article.title,
        article.text,
        article.section,
        article.authors,
        article.image,
        article.related,
    )


site_search = view(
    "search",
    search(text=["title", "text", "name", "caption"], facets=["section"]),
    stories,
    Section,
    Person,
    Image,
)


@dataclass
class Line:
    article_id: str
    title: str
    is_withdrawn: bool


@rows(Article)
def lines(article: Article) -> Line | None:
    """Every article that was ever published: a letter that names it cannot be taken back."""
    if article.state == "draft":
        return None
    return Line(article.article_id, article.title, article.state == "withdrawn")


inbox = view("inbox", sqlite(), lines, letters)
