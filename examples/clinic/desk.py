"""The front desk: a typed client, which fills a clinic and shows the day of a practitioner.

`python -m clinic.desk 2026-03-02 http://127.0.0.1:8000 [KEY]` creates two rooms, a practitioner and patients, and books the morning of the
next working day but one. It can be started again at any time: each call has an id, so its effect happens once.
"""

import sys
from datetime import UTC, date, datetime, time, timedelta

from penstock import Aborted, Client

from . import app
from .appointments import LENGTH, Appointment, Room, hold
from .people import SATURDAY, Patient, Practitioner

PATIENTS = ("ada", "bob", "eve")


def next_working_day(day: date) -> date:
    """Return the first working day that is at least two days later, so that its appointments can be cancelled."""
    later = day + timedelta(days=2)
    while later.weekday() >= SATURDAY:
        later += timedelta(days=1)
    return later


def book(
    client: Client, patient: Patient, practitioner: Practitioner, starts: datetime
) -> Appointment:
    """Hold a time and confirm it; the same call again returns the same appointment."""
    name = f"{patient.patient_id}-{starts:%Y%m%dT%H%M}"
    kept = client.call.with_id(f"hold-{name}")(hold, patient, practitioner, starts)
    return client.call.with_id(f"confirm-{name}")(kept.confirm)


def main(today: str, url: str, key: str | None = None) -> None:
    """Fill the clinic, and write the appointments of a day."""
    day = datetime.combine(next_working_day(date.fromisoformat(today)), time(9), UTC)
    with Client(url, app, key=key) as client:
        for name in ("r1", "r2"):
            client.call.with_id(f"room-{name}")(Room.create, name)
        grey = client.call.with_id("grey")(Practitioner.create, "grey")
        for name in PATIENTS:
            client.call.with_id(f"patient-{name}")(
                Patient.create, name, name=name.title(), email=f"{name}@example.org"
            )
        booked = [
            book(client, Patient(name), grey, day + number * LENGTH)
            for number, name in enumerate(PATIENTS)
        ]
        for one in booked:
            row = client.get("Appointment", one)
            seat = f"{row['room'].name}  {row['patient'].patient_id}"
            sys.stdout.write(f"{row['starts']:%H:%M}  {seat}\n")
        try:
            client.call(hold, Patient("eve"), grey, day)
        except Aborted as error:
            sys.stdout.write(f"{error.code}: {error}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
