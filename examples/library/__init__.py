"""A library: members are found by their e-mail address, and loans by member and day, with indexes.

A copy is lent once at a time: `unique` says so, and two requests at the same moment get one loan and one `not-unique`. The
reminders of a day take the loans that are due first, and never search all of them.
"""

from penstock import App

from .lending import Loan, Member, lend, overdue, remind

app = App("library", Member, Loan, lend, overdue, remind)
