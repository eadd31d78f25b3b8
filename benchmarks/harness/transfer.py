"""Accounts and transfers between two of them, after YCSB-T (Dey et al., 2014)."""

from penstock.model.application import App
from penstock.model.entity import entity, key
from penstock.model.handler import transactional

BALANCE = 1_000_000_000


class Overdrawn(Exception):
    """The account holds less than the amount of the transfer."""


@entity
class Account:
    """Money under a number."""

    number: str = key()
    balance: int = BALANCE

    def transfer(self, to: "Account", amount: int) -> int:
        """Move money to another account and return the remaining balance."""
        if self.balance < amount:
            raise Overdrawn(self.number)
        self.balance -= amount
        to.balance += amount
        return self.balance


@transactional
def load_accounts(first: int, count: int) -> None:
    """Create accounts with the same balance."""
    for number in range(first, first + count):
        Account.create(str(number))  # type: ignore[attr-defined]


app = App("transfer-benchmark", Account, load_accounts)
