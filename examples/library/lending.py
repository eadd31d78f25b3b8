"""Members and loans."""

from datetime import date, timedelta

from penstock import Entity, UserError, index, key, now, readonly, reference, transactional, unique

LOANS_MAX = 3
DAYS = timedelta(days=28)


class Member(Entity):
    """A member of the library."""

    number: str = key()
    email: str

    by_email = unique("email")  # as `email: str = unique()`, under a name that type checkers know


class Loan(Entity):
    """A copy of a book that is lent."""

    loan_id: str = key()
    copy: str = unique()
    member: Member = reference(exists=True)
    due: date
    reminders: int = 0

    by_member = index("member", order="due")
    by_due = index(order="due")

    def give_back(self) -> None:
        """End the loan; from now on the copy can be lent again."""
        self.delete()

    def renew(self) -> date:
        """Let the member keep the copy for longer."""
        self.due += DAYS
        return self.due


@transactional
def lend(email: str, copy: str) -> Loan:
    """Lend a copy to the member with an address."""
    member = Member.by_email(email)
    if member is None:
        raise UserError(f"nobody has the address {email}")
    if len(Loan.by_member(member, first=LOANS_MAX)) == LOANS_MAX:
        raise UserError(f"{email} has {LOANS_MAX} loans already")
    return Loan.create(copy=copy, member=member, due=now().date() + DAYS)


@readonly
@transactional
def overdue(email: str, day: date) -> list[str]:
    """Return the copies that a member should have returned before a day, the oldest first."""
    member = Member.by_email(email)
    return (
        [] if member is None else [loan.copy for loan in Loan.by_member(member) if loan.due < day]
    )


@transactional
def remind(day: date, most: int = 100) -> list[str]:
    """Remind the members of the loans that are due first, and return their addresses."""
    late = [loan for loan in Loan.by_due(first=most) if loan.due < day]
    for loan in late:
        loan.reminders += 1
    return [loan.member.email for loan in late]
