"""An application with tasks whose state or events depend on chance, and one that depends on its events alone."""

import random

from penstock import App, Emit, flow, stream

rolls = stream("rolls", int)
guesses = stream("guesses", int)
counts = stream("counts", int)


class Die:
    face: float = 0.0

    def on_event(self, number: int) -> None:
        self.face = random.random()


class Guess:
    count: int = 0

    def on_event(self, number: int, out: Emit[float]) -> None:
        self.count += 1
        out(random.random())


class Counter:
    total: int = 0

    def on_event(self, number: int) -> None:
        self.total += number


rolled = flow("roll", rolls).task(Die).sink("rolled", int)
guessed = flow("guess", guesses).task(Guess).sink("guessed", float)
counted = flow("count", counts).task(Counter).sink("counted", int)
app = App("wayward-flow", rolled, guessed, counted)
