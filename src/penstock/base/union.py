"""The two forms of a union: `A | B`, and `Union[A, B]`, which `Optional[A]` makes, too."""

import types
import typing
from typing import Final

UNIONS: Final = (typing.Union, types.UnionType)
"""What `typing.get_origin` returns for a union."""
