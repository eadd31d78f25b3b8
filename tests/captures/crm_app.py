"""An application that takes users and orders of a database of customers, and keeps an entity for each user."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from penstock import App, Change, Entity, call, changes, flow, key, postgres, transactional


@dataclass(frozen=True)
class CrmUser:
    id: int
    name: str
    email: str | None
    credit: Decimal
    since: datetime
    tags: list[str]


crm = changes("crm", postgres(), {"public.users": CrmUser})


class User(Entity):
    user_id: int = key()
    name: str
    email: str | None
    credit: Decimal
    seen: list[str] = []


@transactional
def follow(given: list[Change[CrmUser]]) -> None:
    """Keep the entities of users as the rows are."""
    for change in given:
        take(change)


def take(change: Change[CrmUser]) -> None:
    row = change.row
    if row is None:
        if change.kind == "delete" and User.exists(int(change.key)):
            User(int(change.key)).delete()
        return
    seen = User(row.id).seen if User.exists(row.id) else []
    User.upsert(
        row.id, name=row.name, email=row.email, credit=row.credit, seen=[*seen, change.kind]
    )


class Marks:
    """Counts the changes of each kind."""

    reset: int = 0

    def on_event(self, change: Change[CrmUser]) -> None:
        self.reset += change.kind == "reset"


marks = flow("marks", crm).task(Marks).sink("marked")
app = App("crm", User, follow, call(crm, follow, lambda given: (given,), whole_atoms=True), marks)
