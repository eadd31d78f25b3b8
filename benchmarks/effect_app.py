"""The application of `benchmarks.effects`: senders of effects that do nothing."""

from penstock import App, Entity, Outcome, effect, key, limit, send


@effect
@limit("4 at once")
def nothing(number: int) -> int:
    """Return at once, in a process of its own."""
    return number


@effect
async def nothing_async(number: int) -> int:
    """Return at once, on the event loop."""
    return number


class Sender(Entity):
    """Sends effects, and counts their outcomes."""

    name: str = key()
    outcomes: int = 0

    def send(self, count: int, *, on_loop: bool) -> None:
        """Send so many effects, whose outcomes are only recorded."""
        for number in range(count):
            send(nothing_async if on_loop else nothing, number)

    def send_told(self, *, on_loop: bool) -> None:
        """Send one effect, and get its outcome."""
        send(nothing_async if on_loop else nothing, 1).then(self.told)

    def told(self, outcome: Outcome[int]) -> None:
        """Count an outcome."""
        self.outcomes += outcome.done


app = App("senders", Sender, nothing, nothing_async)
