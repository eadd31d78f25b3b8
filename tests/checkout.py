"""Where the parts of the checkout are."""

from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).parents[1]
SHOP: Final = str(TOP / "examples" / "shop")
