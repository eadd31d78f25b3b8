"""A box office: numbered seats, holds that expire, tickets that are resold, and no seat sold twice.

A buyer holds seats for ten minutes, and pays for all of them at once or for none. A ticket can be
given back before the show starts; then its seat is free again.
"""

from penstock import App

from .customer import Customer, Ticket
from .show import Show

app = App("boxoffice", Show, Customer, Ticket)
