"""An application that aborts, catches, goes back to savepoints, and calls in circles."""

import penstock
from penstock import App, Entity, key, transactional


class Refused(Exception):
    """An error that the application itself raises."""


class Account(Entity):
    name: str = key()
    balance: int = 0

    def add(self, amount: int) -> int:
        if self.balance + amount < 0:
            raise Refused(f"{self.name} has {self.balance}")
        self.balance += amount
        return self.balance

    def pay(self, amount: int, other: "Account") -> int:
        other.add(amount)
        return self.add(-amount)

    def try_to_pay(self, amount: int, other: "Account") -> bool:
        try:
            with penstock.savepoint():
                other.add(amount)
                self.add(-amount)
        except Refused:
            return False
        return True

    def there_and_back(self, other: "Account", depth: int) -> int:
        if depth == 0:
            return self.add(1)
        return other.there_and_back(self, depth - 1)


@transactional
def open_and_close(name: str) -> bool:
    account = Account.create(name, balance=5)
    account.delete()
    return bool(Account.exists(name))


app = App("ledger", Account, open_and_close)
