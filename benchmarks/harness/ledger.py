"""Ledgers: whether money and stock are conserved, computed from the journal's changes alone.

A ledger gets every change of every epoch, and every request whose reply is a success. It decodes both
by itself, without the engine. From the workload it knows the amount that each entity was loaded with.
At the end of each epoch, the totals must agree: the money that users have spent equals the cost of the
orders, and the missing stock equals the sold items. At the end of the history, the amounts must agree
for every user, item, order and account, and with the replies.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from benchmarks.harness import shop, transfer
from penstock.model.application import App

_DECODE: Final = msgspec.msgpack.Decoder().decode
_EXAMPLES: Final = 3

Row = tuple[str, str, bytes | None]
"""A change: class name, key, the encoded attributes after the epoch."""


class Ledger(Protocol):
    """Adds up the amounts that a benchmark must conserve."""

    def changed(self, rows: Iterable[Row]) -> str | None:
        """Take all changes of an epoch; return the contradiction in the totals, if there is one."""

    def answered(self, key: str | None, method: str, arguments: Any) -> None:
        """Take a request whose reply is a success."""

    def complaints(self) -> list[str]:
        """Return the contradictions after the whole history."""


class ShopLedger:
    """Money and stock of the shop."""

    def __init__(self, app: App) -> None:
        self._place = {
            (entity, name): index
            for entity, kind in app.entities.items()
            for index, name in enumerate(kind.attributes, start=1)  # the shape's tag comes first
        }
        self._credits: dict[str, int] = {}
        self._stocks: dict[str, int] = {}
        self._orders: dict[str, tuple[str, int, list[tuple[str, int]], int]] = {}
        self._checkouts: Counter[str | None] = Counter()
        self._missing_money = self._missing_stock = 0  # the loaded amount minus the present amount
        self._earned = self._sold = 0

    def changed(self, rows: Iterable[Row]) -> str | None:
        """Compare the missing totals with the totals of the orders."""
        for entity, key, state in rows:
            if state is None:
                return f"{entity} {key} was deleted, which no request asks for"
            values = _DECODE(state)
            if entity == "User":
                self._user(key, values[self._place["User", "credit"]])
            elif entity == "Item":
                self._item(key, values[self._place["Item", "stock"]])
            else:
                self._order(key, values)
        if self._missing_money != self._earned:
            return f"users have spent {self._missing_money}, orders have cost {self._earned}"
        if self._missing_stock != self._sold:
            return f"{self._missing_stock} pieces are missing, {self._sold} were sold"
        return None

    def answered(self, key: str | None, method: str, arguments: Any) -> None:
        """Count the checkouts of each order."""
        if method == "reorder":
            self._checkouts[key] += 1

    def complaints(self) -> list[str]:
        """Compare every user, item and order with the replies."""
        spent: Counter[str] = Counter()
        sold: Counter[str] = Counter()
        found = []
        for number, (user, cost, basket, checkouts) in self._orders.items():
            spent[user] += cost * checkouts
            for item, quantity in basket:
                sold[item] += quantity * checkouts
            replies = self._checkouts[number]
            if replies != checkouts:
                found.append(f"order {number} was checked out {checkouts} times, {replies} replies")
        found += _differences("user has credit", shop.CREDIT, self._credits, spent)
        found += _differences("item has stock", shop.STOCK, self._stocks, sold)
        return _first(found)

    def _user(self, key: str, credit: int) -> None:
        self._missing_money += self._credits.get(key, shop.CREDIT) - credit
        self._credits[key] = credit

    def _item(self, key: str, stock: int) -> None:
        self._missing_stock += self._stocks.get(key, shop.STOCK) - stock
        self._stocks[key] = stock

    def _order(self, key: str, values: list[Any]) -> None:
        place = self._place
        checkouts = values[place["Order", "checkouts"]]
        known = self._orders.get(key)
        if known is None:
            basket = [(item, quantity) for item, quantity in values[place["Order", "items"]]]
            cost = values[place["Order", "total_cost"]]
            known = (values[place["Order", "user_id"]], cost, basket, 0)
        user, cost, basket, before = known
        more = checkouts - before
        self._earned += more * cost
        self._sold += more * sum(quantity for _, quantity in basket)
        self._orders[key] = (user, cost, basket, checkouts)


class TransferLedger:
    """Money of all accounts."""

    def __init__(self, app: App) -> None:
        self._place = 1 + list(app.entities["Account"].attributes).index("balance")
        self._balances: dict[str, int] = {}
        self._moved: Counter[str] = Counter()
        self._missing = 0

    def changed(self, rows: Iterable[Row]) -> str | None:
        """Check that no money is missing or new in total."""
        for _, key, state in rows:
            if state is None:
                return f"account {key} was deleted, which no request asks for"
            balance = _DECODE(state)[self._place]
            self._missing += self._balances.get(key, transfer.BALANCE) - balance
            self._balances[key] = balance
        return f"{self._missing} is missing in total" if self._missing else None

    def answered(self, key: str | None, method: str, arguments: Any) -> None:
        """Add the amount to both accounts of a transfer."""
        if method == "transfer":
            target, amount = arguments
            self._moved[str(key)] += amount
            self._moved[target] -= amount

    def complaints(self) -> list[str]:
        """Compare every account with the transfers that were acknowledged."""
        return _first(
            _differences("account has balance", transfer.BALANCE, self._balances, self._moved)
        )


def _differences(
    what: str, loaded: int, amounts: Mapping[str, int], gone: Mapping[str, int]
) -> list[str]:
    noun, _, rest = what.partition(" ")
    found = [
        f"{noun} {key} {rest} {amount}, replies leave {loaded - gone.get(key, 0)}"
        for key, amount in amounts.items()
        if amount != loaded - gone.get(key, 0)
    ]
    return found + [f"{noun} {key} does not exist" for key in sorted(gone.keys() - amounts.keys())]


def _first(complaints: list[str]) -> list[str]:
    rest = len(complaints) - _EXAMPLES
    return complaints if rest <= 0 else [*complaints[:_EXAMPLES], f"… and {rest} more"]
