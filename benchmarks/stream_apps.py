"""The applications of `benchmarks.streams`: a running count, portals that are asked many times, and an echo."""

import random

from penstock import App, Emit, flow, portal, stream

words = stream("words", str)


def words_of(drawn: random.Random, count: int, keys: int) -> list[str]:
    """Return words, drawn uniformly from so many."""
    return [f"w{number}" for number in drawn.choices(range(keys), k=count)]


def word_of(word: str) -> str:
    """Return the key of a word: the word."""
    return word


class Count:
    """Counts the events of a key."""

    total: int = 0

    def on_event(self, word: str, out: Emit[tuple[str, int]]) -> None:
        """Publish the word and its number so far."""
        self.total += 1
        out((word, self.total))


counts = flow("count", words).key(word_of).task(Count).sink("counts")
counting = App("counting", counts)


numbers, starts, depths = (stream(name, int) for name in ("numbers", "starts", "depths"))
double = portal("double", int, int)
count_down = portal("count_down", int, int)


class Doubler:
    """Replies with twice the number."""

    def on_event(self, number: int) -> None:
        """Take no part in the count; a task has a handler for events."""

    @double.reply
    def on_double(self, number: int) -> int:
        """Reply to a question."""
        return 2 * number


class Asker:
    """Asks a question for each event."""

    async def on_event(self, number: int, out: Emit[int]) -> None:
        """Publish the reply."""
        out(await double.ask(number))


class Countdown:
    """Replies to a number with the depth of its questions: it asks itself for the number below."""

    async def on_event(self, number: int, out: Emit[int]) -> None:
        """Begin a countdown, and publish its depth."""
        out(await count_down.ask(number))

    @count_down.reply
    async def on_count_down(self, number: int) -> int:
        """Reply to a question by another question."""
        return 0 if number == 0 else 1 + await count_down.ask(number - 1)


doubles = flow("replying", starts).task(Doubler).sink("nothing")
replies = flow("asking", numbers).task(Asker).sink("replies")
portals = App("portals", doubles, replies)

countdowns = flow("countdown", depths).task(Countdown).sink("depths_reached")
countdown = App("countdown", countdowns)


stamps = stream("stamps", int)
echoes = flow("echo", stamps).filter(lambda _: True).sink("echoes")
echoing = App("echoing", echoes)
