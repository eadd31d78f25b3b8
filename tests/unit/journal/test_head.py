"""What a process decides about the newest epoch, without a store and without a clock."""

from collections.abc import Callable

import pytest

from penstock.base.decision import Pause, carried_out
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Fenced, JournalUnavailable
from penstock.files.shared_root import UnclearOutcome
from penstock.journal.head import (
    Ask,
    Clocks,
    Create,
    Has,
    Head,
    List,
    Merged,
    Settle,
    following,
    forgettable,
    pause_after,
)

DAY_S = 86_400.0


class Names:
    """The names of epochs in a store, and a clock."""

    def __init__(self) -> None:
        self.texts: dict[Epoch, bytes] = {}
        self.merged = BEFORE_FIRST
        self.now_s = 0.0
        self.is_away = False

    def answer(self, ask: Ask) -> object:
        """Answer a question at once."""
        answers: dict[type, Callable[[], object]] = {
            List: lambda: max(self.texts, default=self.merged),
            Merged: lambda: self.merged,
            Settle: lambda: None,
            Clocks: lambda: (self.now_s, self.now_s),
        }
        match ask:
            case Has(epoch):
                return epoch in self.texts
            case Create(epoch, text):
                if self.is_away:
                    raise UnclearOutcome(5, "503")
                return self.texts.setdefault(epoch, text) == text
            case _:
                return answers[type(ask)]()


def commit(head: Head, names: Names, epoch: int, text: bytes) -> None:
    """Commit an epoch."""
    newest = carried_out(head.beginning(Epoch(epoch)), names.answer)
    carried_out(head.committing(Epoch(epoch), text, newest), names.answer)
    head.committed(Epoch(epoch))


def test_unclear_commit_is_not_repeated_after_its_name_was_forgotten() -> None:
    """A driver whose commit stayed unclear, and that slept for days, is fenced: its free name is an old one.

    Found by the simulation (seed 1006).
    """
    names, head = Names(), Head("shop", DAY_S)
    names.is_away = True
    with pytest.raises(JournalUnavailable):
        commit(head, names, 0, b"mine")
    names.is_away, names.now_s, names.merged = False, 3 * DAY_S, Epoch(7)
    carried_out(head.looking(), names.answer)
    with pytest.raises(Fenced):
        commit(head, names, 0, b"mine")
    assert names.texts == {}


def test_unclear_commit_is_repeated_with_the_same_bytes_only() -> None:
    """The same bytes find their name, written already or not; other bytes are another driver's."""
    names, head = Names(), Head("shop", DAY_S)
    names.is_away = True
    with pytest.raises(JournalUnavailable):
        commit(head, names, 0, b"mine")
    names.is_away, names.texts[Epoch(0)] = False, b"mine"
    with pytest.raises(Fenced):
        commit(head, names, 0, b"other")
    commit(head, names, 0, b"mine")


def test_names_are_forgotten_in_order() -> None:
    """A young segment keeps its names, and those of all later ones."""
    ages = [(Epoch(4), 9.0), (Epoch(8), 3.0), (Epoch(12), 9.0)]
    assert forgettable(BEFORE_FIRST, ages, 5.0) == 4
    assert forgettable(BEFORE_FIRST, ages, 2.0) == 12
    assert forgettable(BEFORE_FIRST, ages, 10.0) == BEFORE_FIRST


def _looks(waits: int, whole_s: float) -> list[float]:
    """Return when an epoch that never comes is looked for, in so many waits, one after the other."""
    now, looks = 0.0, list[float]()
    look_s = (0.01, 0.25)

    def answer(ask: Ask) -> object:
        nonlocal now
        if isinstance(ask, Has):
            looks.append(now)
            return False
        if isinstance(ask, Pause):
            now += ask.seconds
        return now

    for number in range(waits):
        rest_s = looks[-1] + pause_after(looks[-1], look_s) - now if looks else 0.0
        waiting = following(Epoch(7), whole_s / waits, look_s, now, rest_s)
        assert not carried_out(waiting, answer)
        assert now == pytest.approx(whole_s * (number + 1) / waits)
    return looks


@pytest.mark.parametrize("waits", [1, 3, 20, 200])
def test_short_waits_look_as_often_as_a_long_one(waits: int) -> None:
    """A follower that waits in pieces looks for an epoch at the times at which it would look without the pieces."""
    looks = _looks(waits, 3.0)
    assert looks == pytest.approx(_looks(1, 3.0))
    assert len(looks) < 20
    assert looks[:4] == pytest.approx([0, 0.01, 0.025, 0.0475])
