"""An application with a workflow that pauses at a failure, and that another workflow asks."""

from penstock import App, AskFailed, Emit, Entity, emit, entity, flow, key, portal, stream

numbers = stream("numbers", int)
others = stream("others", int)
plus_of = portal("plus_of", int, int)
FORBIDDEN: set[int] = set()
"""The numbers at which the workflow fails; a test changes them as a new version of the code would."""


class Total:
    total: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        if number in FORBIDDEN:
            raise ValueError(f"{number} is forbidden")
        self.total += number
        out(self.total)

    @plus_of.reply
    def reply(self, plus: int) -> int:
        return self.total + plus


class Asking:
    async def on_event(self, number: int, out: Emit[int]) -> None:
        try:
            out(await plus_of.ask(number))
        except AskFailed:
            out(-1)


@entity
class Till(Entity):
    name: str = key()
    sum: int = 0

    def add(self, number: int) -> int:
        self.sum += number
        emit(numbers, number)
        return self.sum


totals = flow("total", numbers, on_failure="pause").task(Total).sink("totals")
twice = flow("twice", numbers).map(lambda n: 2 * n).sink("doubled", int)
asked = flow("asking", others).task(Asking).sink("asked")
app = App("pausing", Till, totals, twice, asked)
SPEC = "tests.differential.pausing_app:app"
