"""A clinic: holds that expire, reminders, invoices that a card pays, a waiting list, and rights per row.

A patient holds a free time and has fifteen minutes to confirm it. Indexes find free rooms, the next reminders and the open
invoices; `unique` says that no practitioner and no room has two appointments at once. A visit makes an invoice, a workflow charges
the card, and a time that becomes free is offered to the first patient on the waiting list.
"""

from penstock import App

from .appointments import (
    Appointment,
    Hold,
    Room,
    appointments,
    expire,
    hold,
    offer,
    offers,
    remind,
    wait_for,
)
from .invoices import Invoice, Payment, bills, charged, dun, issue
from .outside import card, post
from .people import Patient, Practitioner

app = App(
    "clinic",
    Patient,
    Practitioner,
    Room,
    Hold,
    Appointment,
    Invoice,
    Payment,
    hold,
    expire,
    appointments,
    wait_for,
    offer,
    remind,
    issue,
    dun,
    bills,
    charged,
    offers,
    card,
    post,
)
