"""What a test of an application imports: `from penstock.testing import Kit`."""

from penstock.testing.kit import Kit

__all__ = ["Kit"]
