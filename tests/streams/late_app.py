"""An application in two versions: the second one has a workflow that begins with earlier atoms of its source."""

from penstock import App, Emit, flow, stream

numbers = stream("numbers", int)


class Total:
    """Adds the numbers of a key; a negative number fails."""

    total: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        if number < 0:
            raise ValueError("a negative number")
        self.total += number
        out(self.total)


early = flow("early", numbers).task(Total).sink("early-totals")
late = flow("late", numbers, start="earliest").task(Total).sink("late-totals")

before = App("late", early)
after = App("late", early, late)
