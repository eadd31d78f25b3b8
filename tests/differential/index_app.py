"""An application with indexes, whose only handler runs a list of steps over entities that it finds by their values."""

from typing import Any

from penstock import App, Entity, index, key, readonly, transactional, unique
from penstock.errors import UserError


class Team(Entity):
    name: str = key()


class Job(Entity):
    name: str = key()
    code: int | None = unique(default=None)
    team: Team | None = None
    due: int = 0

    by_team = index("team", order="due")
    by_due = index(order="due")


Step = tuple[str, str, int]
"""What to do, with which job, and a number."""


def _team(number: int) -> Team | None:
    return Team(f"t{number % 3}") if number % 4 else None


def _change(what: str, name: str, number: int) -> None:
    """Change a job, or those that a lookup finds."""
    if what == "create":
        Job.upsert(name, code=number % 6 or None, team=_team(number), due=number)
    elif what == "follow":
        for job in Job.by_team(_team(number), first=2):
            job.due += 3
    elif what == "fail" and number == 1:
        raise UserError("as it was told")
    elif Job.exists(name) and what == "delete":
        Job(name).delete()
    elif Job.exists(name) and what == "code":
        Job(name).code = number % 6 or None
    elif Job.exists(name) and what == "move":
        Job(name).team, Job(name).due = _team(number), number - 5


@transactional
def run(steps: list[Step]) -> list[Any]:
    """Return what the steps have found."""
    found: list[Any] = []
    for what, name, number in steps:
        match what:
            case "one" if number % 6:
                job = Job.by_code(number % 6)  # type: ignore[attr-defined]
                found.append(None if job is None else job.name)
            case "has":  # which touches the job, and does not read it
                found.append(Job.exists(name))
            case "first":
                found.append([job.name for job in Job.by_team(_team(number), first=2)])
            case "last":
                found.append([job.name for job in Job.by_due(last=number % 4)])
            case _:
                _change(what, name, number)
    return found


@transactional
@readonly
def everything() -> list[str]:
    return [job.name for job in Job.by_due()]


app = App("jobs", Team, Job, run, everything)
