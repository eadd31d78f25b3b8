"""An application of which everything hangs on chance, as Penstock gives it."""

import penstock
from penstock import App, entity, key


@entity
class Ticket:
    name: str = key()
    number: int = 0
    code: str = ""

    def draw(self) -> int:
        self.number = penstock.random().randrange(1 << 40)
        self.code = str(penstock.uuid())
        return self.number


app = App("lottery", Ticket)
