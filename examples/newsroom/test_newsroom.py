"""The newsroom without Spark: rules of editors, letters of readers, and the rows of its views."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock import Aborted
from penstock.testing import Kit

from . import app
from .articles import Article, publish_issue
from .assets import Image, Person, Section
from .letters import Letter, letters
from .subscriptions import Subscription, subscriptions
from .views import article_parts


def flat(atoms: list[list[Any]]) -> list[Any]:
    return [event for atom in atoms for event in atom]


@pytest.fixture
def press() -> Kit:
    """A newsroom with three drafts; bob reads sports, and ann reads arts and what eve writes."""
    kit = Kit(app)
    kit.call(Section.create, "sports", title="Sports")
    kit.call(Section.create, "arts", title="Arts")
    kit.call(Person.create, "eve", name="Eve")
    kit.call(Image.create, "goal", url="/goal.jpg", caption="The goal")
    for number, section in enumerate(["sports", "arts", "sports"]):
        kit.call(
            Article.create,
            f"a{number}",
            section=Section(section),
            title=f"title {number}",
            authors=[Person("eve")] if number == 1 else [],
            related=[Article("a0")] if number == 2 else [],
            image=Image("goal") if number == 0 else None,
        )
    wanted = [("bob", "section/sports"), ("ann", "section/arts"), ("ann", "person/eve")]
    kit.append(subscriptions, [Subscription(*each) for each in wanted])
    return kit


def test_an_issue_is_one_letter_for_reader_and_topic(press: Kit) -> None:
    """The articles of a topic are together, and the next issue does not repeat them."""
    press.call.publish_issue([Article("a0"), Article("a1"), Article("a2")])
    assert flat(press.atoms(letters)) == [
        Letter("ann", "person/eve", [Article("a1")], ["title 1"]),
        Letter("ann", "section/arts", [Article("a1")], ["title 1"]),
        Letter("bob", "section/sports", [Article("a0"), Article("a2")], ["title 0", "title 2"]),
    ]
    press.call(Article.create, "a3", section=Section("arts"), title="title 3")
    press.append(subscriptions, [Subscription("ann", "section/arts", is_active=False)])
    press.call(publish_issue, [Article("a3")])
    assert len(flat(press.atoms(letters))) == 3


def test_an_issue_is_published_whole_or_not(press: Kit) -> None:
    """An issue with an article that is published already, or that names a draft, sends no letter."""
    for issue, code in ((["a1", "a0", "a0"], "already-published"), (["a1", "a2"], "not-published")):
        with pytest.raises(Aborted) as caught:
            press.call.publish_issue([Article(each) for each in issue])
        assert caught.value.code == code
    assert press.atoms(letters) == []
    assert press.call(Article("a1").publish) is None


def test_what_an_article_shows_stays(press: Kit) -> None:
    """An image is withdrawn when no published article shows it any more; links to an article go with it."""
    press.call.publish_issue([Article("a0"), Article("a2")])
    with pytest.raises(Aborted, match="published articles that show it: 1"):
        press.call.Image("goal").withdraw()
    press.call.Article("a0").illustrate(None)
    press.call.Image("goal").withdraw()
    press.call.Article("a0").withdraw()
    assert press.entities("Article")["a2"]["related"] == []
    press.call.Article("a2").withdraw()
    assert press.entities("Section")["sports"]["articles"] == 0


def test_the_page_of_an_article_includes_its_parts() -> None:
    """A row function is a plain function; texts of editors are no markup."""
    article: Any = SimpleNamespace(
        article_id="a1",
        title="Rain & wind",
        text="Take <care>.",
        state="published",
        section=Section("weather"),
        authors=[],
        image=Image("sky"),
        related=[],
    )
    page, line = article_parts(article)
    assert page.path == "/articles/a1"
    assert page.html == (
        '<h1>Rain &amp; wind</h1><!--#include virtual="/sections/weather" -->'
        '<!--#include virtual="/images/sky" --><p>Take &lt;care&gt;.</p>'
    )
    assert line.html == '<a href="/articles/a1">Rain &amp; wind</a>'
