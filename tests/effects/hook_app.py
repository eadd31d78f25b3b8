"""A shop that takes webhooks, and that calls other systems with ready-made effects."""

from dataclasses import dataclass
from typing import Any

from penstock import (
    Answer,
    App,
    Entity,
    Mailed,
    Outcome,
    http,
    key,
    mail,
    route,
    send,
    signed_by,
    webhook,
)


@dataclass
class Change:
    """An event of another system."""

    id: str
    cents: int


@route("POST /hooks/stripe", signed=signed_by("STRIPE_KEY", form="stripe"))
def paid(event: Change) -> int:
    """Take an event of Stripe."""
    return event.cents


@route("POST /hooks/github", signed=signed_by("GITHUB_KEY", form="github"))
def pushed(event: dict[str, Any]) -> str:
    """Take an event of GitHub."""
    return str(event["ref"])


card = http(
    "card",
    "{SIDE}/v1",
    headers={"Authorization": "Bearer {CARD_KEY}"},
    accepts=(402,),
    keeps=("content-type", "etag"),
    answer_bytes=10_000,
    tries=3,
)
anywhere = http("anywhere", "{SIDE}", headers={"X-Key": "{CARD_KEY}"}, redirects="any", tries=2)
crm = webhook("crm", "{SIDE}/hooks", keys=("CRM_KEY", "CRM_KEY_OLD"), tries=2)
post = mail("post", "smtp://shop:{SMTP_PASSWORD}@{SMTP}", sender="Shop <shop@shop.example>")
plain = mail("plain", "smtp+plain://{PLAIN}", sender="shop@shop.example", tries=2)


class Order(Entity):
    """An order."""

    order_id: str = key()
    cents: int = 0
    told: list[str] = []

    @route("POST /hooks/crm/{order_id}", signed=signed_by("CRM_KEY", "CRM_KEY_OLD"), status=202)
    def change(self, event: Change) -> int:
        """Take an event of the other system."""
        self.cents += event.cents
        return self.cents

    def check_out(self) -> None:
        """Call each other system."""
        send(card, "POST", "/charges", json={"order": self.order_id}).then(self.charged)
        send(crm, "order.paid", {"order": self.order_id}).then(self.posted)
        send(plain, ["ann@example.org"], "Order", "It is on its way.").then(self.mailed)

    def charged(self, outcome: Outcome[Answer]) -> None:
        """Note an outcome."""
        assert outcome.value is not None, outcome.error
        self.told.append(f"card {outcome.value.json()['id']}")

    def posted(self, outcome: Outcome[int]) -> None:
        """Note an outcome."""
        self.told.append(f"crm {outcome.value}")

    def mailed(self, outcome: Outcome[Mailed]) -> None:
        """Note an outcome."""
        self.told.append(f"mail {outcome.status}")


app = App("hooks", Order, paid, pushed, card, anywhere, crm, post, plain)
