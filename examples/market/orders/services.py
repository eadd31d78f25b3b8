"""The parts of the other two applications that orders use. The bodies of these methods never run."""

from penstock import Entity, key, registry


@registry.entity("/stock/Item")
class Item(Entity):
    item_id: str = key()
    price: int

    def subtract(self, amount: int) -> str:
        raise NotImplementedError


@registry.entity("/payment/User")
class User(Entity):
    user_id: str = key()

    def pay(self, amount: int) -> str:
        raise NotImplementedError
