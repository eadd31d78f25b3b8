"""Subscriptions: the readers of each topic, which other tasks can ask for."""

from dataclasses import dataclass

from penstock import flow, portal, stream


@dataclass
class Subscription:
    """A reader begins to read a topic, such as `section/arts` or `person/ann`, or ends it."""

    reader: str
    topic: str
    is_active: bool = True


def topic_of(subscription: Subscription) -> str:
    return subscription.topic


subscriptions = stream("subscriptions", Subscription)
readers_of = portal("readers_of", str, list[str], key=str)


class Readers:
    names: set[str] = set()

    def on_event(self, subscription: Subscription) -> None:
        if subscription.is_active:
            self.names.add(subscription.reader)
        else:
            self.names.discard(subscription.reader)

    @readers_of.reply
    def of_topic(self, topic: str) -> list[str]:
        return sorted(self.names)


readers = flow("subscribing", subscriptions).key(topic_of).task(Readers).sink("subscribed")
