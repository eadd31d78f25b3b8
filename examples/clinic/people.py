"""Patients and practitioners."""

from datetime import UTC, datetime, time, timedelta

from penstock import Aborted, Entity, internal, key, principal, unique

DESK = frozenset({"", "desk"})
"""The principals that act for every patient: the application itself, and the key of the front desk."""

SATURDAY = 5


class NotYours(Aborted):
    """The caller has no right to this row."""

    code = "not-yours"


class Patient(Entity, personal=True, internal=("upsert", "delete")):
    """A person. Her data are encrypted with a key of her own, so that `penstock erase` can erase them."""

    patient_id: str = key()
    name: str
    email: str

    by_email = unique("email")

    def move(self, email: str) -> None:
        """Change the address of the patient."""
        self.admit()
        self.email = email

    @internal
    def admit(self) -> None:
        """Refuse a caller who is neither the patient nor the desk."""
        if principal().id not in DESK | {f"@{self.patient_id}"}:
            raise NotYours(f"{self.patient_id} is another patient")


class Practitioner(Entity):
    """A doctor, with the same hours on each working day, in UTC."""

    name: str = key()
    opens: time = time(9)
    closes: time = time(17)

    def works_at(self, starts: datetime, length: timedelta) -> bool:
        """Say whether an appointment of some length can begin at a time."""
        day = datetime.combine(starts.date(), time(), UTC)
        return (
            starts.weekday() < SATURDAY
            and self.opens <= starts.time()
            and (starts + length).time() <= self.closes
            and (starts - day) % length == timedelta()
        )
