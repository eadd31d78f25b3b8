"""The carts of users. A user's actions happen in order: a checkout waits for the reply of an earlier `take`."""

from dataclasses import dataclass

from penstock import Emit, flow, stream

from .inventory import take


@dataclass
class Action:
    """A user wants a piece of an item; without an item, the user checks out."""

    user: str
    item: str | None = None


@dataclass
class Checkout:
    user: str
    items: list[str]


def user_of(action: Action) -> str:
    return action.user


actions = stream("actions", Action)


class Cart:
    items: list[str] = []

    async def on_event(self, action: Action, out: Emit[Checkout]) -> None:
        if action.item is None:
            out(Checkout(action.user, self.items))
            self.items = []
        elif await take.ask(action.item):
            self.items.append(action.item)


checkouts = flow("carts", actions).key(user_of).task(Cart, exclusive=True).sink("checkouts")
