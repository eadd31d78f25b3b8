"""Attributes that all keys of a task share, also if a base class declares them."""

from itertools import chain

from penstock import App, Emit, PerTask, flow, stream
from penstock.testing import Kit


class Numbered:
    """Counts for all keys what its subclasses do."""

    count: PerTask[int] = 10
    seen: PerTask[int] = 0


class Echo(Numbered):
    """Has no attributes of its own."""

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.count += 1
        out(self.count)


class Sum(Numbered):
    """Has attributes of its own, and each key has its own `seen`."""

    total: int = 0
    seen: int = 5

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.count += 1
        self.seen += 1
        self.total += number
        out(self.total)


numbers = stream("numbers", int)
app = App(
    "shared-rows",
    flow("echo", numbers).key(abs).task(Echo).sink("echoed"),
    flow("sum", numbers).key(abs).task(Sum).sink("summed"),
)


def test_shared_attributes_of_a_base_class_are_shared() -> None:
    """Their defaults count, and the annotation of the subclass replaces that of the base class."""
    kit = Kit(app)
    kit.append(numbers, [1, 2, 1])
    kit.settle()
    assert sorted(chain(*kit.atoms("echoed"))) == [11, 12, 13]
    assert kit.task("sum.Sum", 1) == {"count": 13, "seen": 7, "total": 2}
    assert kit.task("sum.Sum", 2) == {"count": 13, "seen": 6, "total": 2}
