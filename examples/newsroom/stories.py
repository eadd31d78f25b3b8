"""Stories, and the issues in which they are published."""

from dataclasses import dataclass

from penstock import Aborted, Entity, emit, key, stream, transactional


class AlreadyPublished(Aborted):
    """A story is published once."""

    code = "already-published"


@dataclass
class Article:
    topic: str
    title: str


articles = stream("articles", Article)


class Story(Entity):
    story_id: str = key()
    topic: str
    title: str
    is_published: bool = False

    def publish(self) -> None:
        if self.is_published:
            raise AlreadyPublished(self.title)
        self.is_published = True
        emit(articles, Article(self.topic, self.title))


@transactional
def publish_issue(stories: list[Story]) -> int:
    """Publish all of the stories, or none of them."""
    for story in stories:
        story.publish()
    return len(stories)
