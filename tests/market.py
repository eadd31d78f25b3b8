"""The three applications of the example market."""

from tests.checkout import TOP

PLACES = ("orders", "payment", "stock")
MARKET = TOP / "examples" / "market"
