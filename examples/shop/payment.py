"""Payment: what users can spend."""

from penstock import entity, key, transactional


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


@transactional
def init_users(start: int, count: int, credit: int) -> None:
    """Open accounts for users `start` to `start + count - 1`."""
    for number in range(start, start + count):
        User.create(str(number), credit=credit)
