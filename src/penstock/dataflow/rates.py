"""The measured rates of a plan: events and calls along its edges in a running application."""

from typing import Final

import msgspec

from penstock.dataflow.graph import Action
from penstock.dataflow.summary import Link

_WHOLE: Final = 10.0
"""A rate below this one is shown with a decimal."""


class Rates(msgspec.Struct, frozen=True):
    """Averages over some seconds. A name without events or calls is left out.

    Attributes:
        calls: Calls in a second by `Order.checkout>Item.subtract`; a call from outside has nothing before the `>`.
        lags: The atoms of its source that each workflow has still to take.
    """

    over_s: float = 0.0
    events: dict[str, float] = {}
    calls: dict[str, float] = {}
    lags: dict[str, int] = {}

    def of_stream(self, name: str) -> str:
        """Return the rate of a stream as text; empty for none."""
        return _text(self.events.get(name, 0.0), "events")

    def of_workflow(self, name: str) -> str:
        """Return the lag of a workflow as text; empty for none."""
        lag = self.lags.get(name, 0)
        return f"{lag:,} {'atom' if lag == 1 else 'atoms'} behind" if lag else ""

    def of_method(self, name: str) -> str:
        """Return the rate of the calls of a method from outside as text; empty for none."""
        return _text(self.calls.get(f">{name}", 0.0), "calls from outside")

    def of_link(self, link: Link) -> str:
        """Return the rate of a link as text; empty for none."""
        if link.action is Action.FEED:
            return self.of_stream(link.source.member.partition("/")[2])
        return _text(self.calls.get(f"{link.source.text}>{link.target.text}", 0.0), "calls")


NO_RATES: Final = Rates()


def _text(per_second: float, noun: str) -> str:
    if not per_second:
        return ""
    shown = f"{per_second:,.0f}" if per_second >= _WHOLE else f"{per_second:.1f}"
    return f"{shown} {noun}/s"
