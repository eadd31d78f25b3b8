"""A newsroom: editors publish articles; pages, a search index and letters to readers follow from one log.

An article refers to its section, its authors, its picture and other articles. A transaction keeps what a published article
shows from being withdrawn, so no view ever shows an article without it. Workflows write the letters; a portal knows the readers.
"""

from penstock import App

from .articles import Article, publish_issue
from .assets import Image, Person, Section
from .letters import letters
from .subscriptions import readers
from .views import inbox, pages, site_search

app = App(
    "newsroom",
    Section,
    Person,
    Image,
    Article,
    publish_issue,
    readers,
    letters,
    pages,
    site_search,
    inbox,
)
