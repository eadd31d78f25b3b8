"""The clients; programs import them from `penstock`."""

from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # else type checkers would take each name for one of this package

    def __getattr__(name: str) -> object:
        """Say where a client is imported from."""
        if name in ("AsyncClient", "Client"):
            raise ImportError(f"import it from the package: from penstock import {name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
