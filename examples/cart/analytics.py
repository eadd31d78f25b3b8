"""An analysis of all orders: how often each item was sold, and the revenue."""

from dataclasses import dataclass

from penstock import Emit, flow

from .orders import Order, orders


@dataclass
class Report:
    """The numbers after an atom of orders."""

    revenue: int
    sold: dict[str, int]


class Analytics:
    revenue: int = 0
    sold: dict[str, int] = {}

    def on_event(self, order: Order) -> None:
        self.revenue += order.total
        for item in order.items:
            self.sold[item] = self.sold.get(item, 0) + 1

    def on_atom_complete(self, out: Emit[Report]) -> None:
        out(Report(self.revenue, self.sold))


reports = flow("analytics", orders).task(Analytics).sink("reports")
