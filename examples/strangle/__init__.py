"""An old application on PostgreSQL is moved over piece by piece, while both go on; docs/howto/strangle.md tells how.

The stream `old` has the changes of its tables. First, each customer here follows the row there. Then single customers are
moved: from there on this application has them, and the old one reads them from the view `back` in its own database.
"""

from penstock import App, call

from .customers import Customer, Order, back, old, take

app = App("strangle", Customer, Order, take, call(old, take, lambda change: (change,)), back)
