"""A trip: flight, hotel and card at three providers, as one saga.

A trip is booked whole or not at all. The workflow asks one effect after the other. If one fails, it undoes those that
are done, in the reverse order: `try` and `except` around `await ask(…)` are the saga, and no other construct is needed. The
wait survives restarts, also if a provider is down for days.
"""

from penstock import App

from .customers import Customer, answers
from .providers import book, cancel, charge, refund
from .trips import booked

app = App("travel", booked, answers, Customer, book, cancel, charge, refund)
