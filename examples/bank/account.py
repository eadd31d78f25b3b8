"""Accounts, and the payments between them. Amounts are whole cents."""

from penstock import Entity, key, transactional


class Overdrawn(Exception):
    """The payment would go beyond the account's overdraft limit."""


class NotAnAmount(Exception):
    """Money moves in positive amounts only."""


class Account(Entity):
    account_id: str = key()
    balance: int = 0
    overdraft_limit: int = 0

    def deposit(self, amount: int) -> int:
        if amount <= 0:
            raise NotAnAmount(amount)
        self.balance += amount
        return self.balance

    def withdraw(self, amount: int) -> int:
        if amount <= 0:
            raise NotAnAmount(amount)
        if self.balance - amount < -self.overdraft_limit:
            raise Overdrawn(f"{self.account_id}: {self.balance} left, {amount} wanted")
        self.balance -= amount
        return self.balance

    def transfer(self, to: "Account", amount: int) -> int:
        left = self.withdraw(amount)
        to.deposit(amount)
        return left

    def pay(self, destination: "Account", amount: int, fees: "Account", fee: int) -> int:
        self.transfer(destination, amount)
        return self.transfer(fees, fee)


@transactional
def init_accounts(start: int, count: int, balance: int) -> None:
    """Open accounts `start` to `start + count - 1`."""
    for number in range(start, start + count):
        Account.create(str(number), balance=balance)
