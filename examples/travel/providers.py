"""The effects: calls of the providers over HTTP. Each has an idempotency key, so a call that is made again books once."""

from datetime import timedelta

import httpx

from penstock import Final, effect, effect_id, limit, secret

_REFUSED = frozenset({402, 404, 409})
"""The answers that no further try changes: the card is declined, the hotel is full."""


def _posted(what: str, **facts: str | int) -> str:
    """Post to a provider, and return the id of the booking."""
    answer = httpx.post(
        f"{secret('TRAVEL_URL')}/{what}", json=facts, headers={"Idempotency-Key": effect_id()}
    )
    if answer.status_code in _REFUSED:
        raise Final(answer.text)
    return str(answer.raise_for_status().json()["id"])


@effect(tries=5, timeout=timedelta(seconds=5))
@limit("10 at once")
def book(what: str, place: str, day: str) -> str:
    """Book a flight or a hotel, and return the id of the booking."""
    return _posted(what, place=place, day=day)


@effect(until=timedelta(days=7), timeout=timedelta(seconds=5))
def cancel(booking: str) -> None:
    """Cancel a booking. It must succeed in the end, so it is tried for a week."""
    _posted("cancel", booking=booking)


@effect(tries=5, timeout=timedelta(seconds=5))
@limit("5 at once", "20/s")
def charge(card: str, cents: int) -> str:
    """Charge a card, and return the id of the charge."""
    return _posted("charge", card=card, cents=cents)


@effect(until=timedelta(days=7), timeout=timedelta(seconds=5))
def refund(payment: str) -> None:
    """Give the money of a charge back."""
    _posted("refund", payment=payment)
