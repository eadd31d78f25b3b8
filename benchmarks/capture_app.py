"""Users of a database, each of which becomes an entity; for `benchmarks.captures`."""

from dataclasses import dataclass
from datetime import datetime

from penstock import App, Change, Entity, call, changes, key, postgres, transactional


@dataclass
class UserRow:
    """A row of the table."""

    id: int
    name: str
    city: str
    credit: int
    active: bool


crm = changes("crm", postgres(), {"public.users": UserRow})


class User(Entity):
    """A user, with the time of the newest commit of its row."""

    user_id: int = key()
    name: str
    city: str
    credit: int
    active: bool
    at: datetime


@transactional
def follow(given: list[Change[UserRow]]) -> None:
    """Keep the entities of users as the rows are."""
    for change in given:
        row = change.row
        if row is not None:
            User.upsert(
                row.id,
                name=row.name,
                city=row.city,
                credit=row.credit,
                active=row.active,
                at=change.at,
            )


app = App("bench", User, follow, call(crm, follow, lambda given: (given,), whole_atoms=True))
