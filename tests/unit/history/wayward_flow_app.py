"""An application with a task whose state depends on chance, and one whose state depends on its events alone."""

import random

from penstock import App, flow, stream

rolls = stream("rolls", int)
counts = stream("counts", int)


class Die:
    face: float = 0.0

    def on_event(self, number: int) -> None:
        self.face = random.random()


class Counter:
    total: int = 0

    def on_event(self, number: int) -> None:
        self.total += number


rolled = flow("roll", rolls).task(Die).sink("rolled", int)
counted = flow("count", counts).task(Counter).sink("counted", int)
app = App("wayward-flow", rolled, counted)
