"""Payment: the credit of users. This application knows no other application."""

from penstock import Aborted, App, Entity, key, limit, route


@route("/payment", "POST create_user", "GET find_user/{user_id}")
class User(Entity):
    user_id: str = key()
    credit: int = 0

    def add_funds(self, amount: int) -> str:
        self.credit += amount
        return f"User: {self.user_id} credit updated to: {self.credit}"

    def pay(self, amount: int) -> str:
        if self.credit < amount:
            raise Aborted(f"{self.user_id}: {self.credit} credit, {amount} wanted")
        return self.add_funds(-amount)


@route("POST /payment/batch_init/{n}/{starting_money}")
@limit(time="60s")
def init_users(n: int, starting_money: int) -> dict[str, str]:
    for i in range(n):
        User.upsert(str(i), credit=starting_money)
    return {"msg": "Batch init for users successful"}


app = App("payment", User, init_users)
