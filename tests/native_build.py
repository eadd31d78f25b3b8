"""Tests of the compiled implementation need it; it is optional for users, and never for the suite."""

import os

import pytest

from penstock.native.choice import DISABLE, VARIABLE, core


def needs_compiled() -> None:
    """Skip a test without the compiled implementation; fail where CI is set, unless Python was asked for."""
    if core is None:
        wanted = "CI" in os.environ and os.environ.get(VARIABLE) != DISABLE
        (pytest.fail if wanted else pytest.skip)("the compiled implementation is not in use")
