"""Indexes find members and loans, and a copy is lent once at a time."""

from datetime import date

import pytest

from penstock import NotUnique, UserError
from penstock.testing import Kit

from . import app
from .lending import Loan, Member, lend, overdue, remind


@pytest.fixture
def kit() -> Kit:
    kit = Kit(app)
    for number, name in enumerate(("ada", "bob")):
        kit.call(Member.create, str(number), email=f"{name}@example.org")
    return kit


def test_a_copy_is_lent_once_at_a_time(kit: Kit) -> None:
    """The error names both loans; a copy that is given back can be lent again."""
    loan = kit.call(lend, "ada@example.org", "emma-1")
    with pytest.raises(NotUnique, match=r"cannot have copy 'emma-1': Loan .* has it"):
        kit.call(lend, "bob@example.org", "emma-1")
    kit.call(loan.give_back)
    kit.call(lend, "bob@example.org", "emma-1")
    with pytest.raises(UserError, match="nobody has the address"):
        kit.call(lend, "eve@example.org", "emma-2")


def test_a_member_has_three_loans_at_most(kit: Kit) -> None:
    """The index of the member says how many there are."""
    for number in range(3):
        kit.call(lend, "ada@example.org", f"emma-{number}")
    with pytest.raises(UserError, match="has 3 loans already"):
        kit.call(lend, "ada@example.org", "emma-3")


def test_the_oldest_loans_come_first(kit: Kit) -> None:
    """A renewed loan takes its new place in the order."""
    first = kit.call(lend, "ada@example.org", "emma-1")
    kit.call(lend, "ada@example.org", "emma-2")
    day = date(2100, 1, 1)
    assert kit.call(overdue, "ada@example.org", day)[:1] in (["emma-1"], ["emma-2"])
    kit.call(first.renew)
    assert kit.call(overdue, "ada@example.org", day) == ["emma-2", "emma-1"]
    assert kit.call(remind, day, 1) == ["ada@example.org"]
    reminded = {loan["copy"]: loan["reminders"] for loan in kit.entities("Loan").values()}
    assert reminded == {"emma-1": 0, "emma-2": 1}
    assert Loan(first.loan_id) == first
