"""An application with large atoms: tasks that can be divided by key, and tasks that cannot."""

from penstock import App, Emit, emit, flow, random, stream, transactional
from penstock.model.streams.task_rows import PerTask
from penstock.model.streams.task_state import states

FAILS, FAILS_IN_KEY, FAILS_BEHIND, LISTS = 101, 102, 103, 104
BAD = (FAILS, FAILS_IN_KEY, FAILS_BEHIND, LISTS)
"""Events on which a handler, a key, and a function behind the task fail; and one whose handler lists all keys."""

numbers, others = stream("numbers", int), stream("others", int)


def key_of(number: int) -> int:
    """Return one of five keys."""
    if number == FAILS_IN_KEY:
        raise ValueError("no key")
    return number % 5


def up(number: int) -> int:
    """Return the next number."""
    return number + 1


def behind(total: int) -> list[int]:
    """Return none, one or two events for each event of a task."""
    if total == FAILS_BEHIND:
        raise ValueError("behind")
    return [total] * (total % 3)


class Sum:
    """Sums the events of a key; publishes several events for some of them, and none for others."""

    total: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        """Publish sums, and a number that depends on the turn."""
        if number == FAILS:
            raise ValueError("fails")
        if number == LISTS:
            self.total += sum(1 for _ in states(self))
        self.total += number if number < FAILS else 0
        for _ in range(number % 4):
            out(self.total)
        if number == FAILS_BEHIND:
            out(number)
        if number % 7 == 0:
            out(int(random().random() * 1_000))


class Reset:
    """Has a row for some keys only: every third event clears its key."""

    seen: int = 0

    def on_event(self, number: int, out: Emit[tuple[int, int]]) -> None:
        """Count, up to two."""
        self.seen = (self.seen + 1) % 3
        out((number, self.seen))


class Total:
    """A task without a key."""

    total: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        """Publish the sum of all events."""
        self.total += number
        out(self.total)


class Shared:
    """A task whose keys share an attribute."""

    mine: int = 0
    every: PerTask[int] = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        """Publish both sums."""
        self.mine += number
        self.every += number
        out(self.mine * 1_000 + self.every)


@transactional
def publish(name: str) -> str:
    """Publish an atom from a request, whose events take no part in any division."""
    for number in range(12):
        emit(numbers, number + len(name))
    return name


keyed = flow("keyed", numbers).key(key_of)
sums = keyed.task(Sum).flat_map(behind).sink("sums", int)
both = flow("both", numbers)
again = both.map(up).key(key_of).task(Reset, name="Again")
resets = both.key(key_of).task(Reset).union(again)
behind_it = flow("chained", sums).key(lambda n: n % 2).task(Sum).sink("chained")
app = App(
    "large",
    sums,
    resets.sink("resets"),
    behind_it,
    flow("total", numbers).task(Total).sink("totals"),
    flow("shared", others).key(key_of).task(Shared).sink("shared"),
    publish,
)
