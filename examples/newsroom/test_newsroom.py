"""The newsroom without Spark: an issue becomes one letter for each reader and topic."""

from typing import Any

import pytest

from penstock import Aborted
from penstock.testing import Kit

from . import app
from .letters import Digest, Letter, digests, letters
from .stories import Story
from .subscriptions import Subscription, subscriptions


def flat(atoms: list[list[Any]]) -> list[Any]:
    return [event for atom in atoms for event in atom]


@pytest.fixture
def press() -> Kit:
    """A newsroom with three stories; ann reads both topics, bob reads sports."""
    kit = Kit(app)
    for number, topic in enumerate(["sports", "arts", "sports"]):
        kit.call(Story.create, f"s{number}", topic=topic, title=f"title {number}")
    kit.append(
        subscriptions,
        [
            Subscription("bob", "sports"),
            Subscription("ann", "sports"),
            Subscription("ann", "arts"),
        ],
    )
    return kit


def test_an_issue_is_one_letter_for_reader_and_topic(press: Kit) -> None:
    """The titles of a topic are together, and the next issue does not repeat them."""
    press.call.publish_issue([Story("s0"), Story("s1"), Story("s2")])
    arts, sports = Digest("arts", ["title 1"]), Digest("sports", ["title 0", "title 2"])
    assert press.atoms(digests) == [[arts, sports]]
    assert flat(press.atoms(letters)) == [
        Letter("ann", arts),
        Letter("ann", sports),
        Letter("bob", sports),
    ]
    press.call(Story.create, "s3", topic="arts", title="title 3")
    press.append(subscriptions, [Subscription("ann", "arts", is_active=False)])
    press.call.publish_issue([Story("s3")])
    assert press.atoms(digests)[1:] == [[Digest("arts", ["title 3"])]]
    assert len(flat(press.atoms(letters))) == 3


def test_an_issue_is_published_whole_or_not(press: Kit) -> None:
    """An issue with a story that is published already sends no letter."""
    with pytest.raises(Aborted, match="title 0") as caught:
        press.call.publish_issue([Story("s1"), Story("s0"), Story("s0")])
    assert caught.value.code == "already-published"
    assert press.atoms(digests) == []
    assert press.call(Story.publish, Story("s1")) is None
