"""Payment: what users can spend."""

from penstock import entity, key


class NotEnoughCredit(Exception):
    """The user's credit does not cover the amount."""


@entity
class User:
    user_id: str = key()
    credit: int = 0

    def add_funds(self, amount: int) -> int:
        self.credit += amount
        return self.credit

    def pay(self, amount: int) -> int:
        if self.credit < amount:
            raise NotEnoughCredit(f"{self.user_id}: {self.credit} left, {amount} wanted")
        self.credit -= amount
        return self.credit
