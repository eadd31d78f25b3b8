"""Tools for tests of applications: `from penstock.testing import Kit`."""

from penstock.testing.kit import Kit

__all__ = ["Kit"]
