"""Rows, keys, arguments, results and events of the compiled implementation: each is that of Python, or is left to Python."""

import random
from collections.abc import Callable

import pytest

from tests.native_build import needs_compiled
from tests.row_cases import (
    check_arguments,
    check_creation,
    check_decoding,
    check_encoded_arguments,
    check_encoding,
    check_event,
    check_key,
    check_result,
)

CASES = 150  # scripts/fuzz_native runs thousands more, with sanitizers, also in each scripts/test
Check = Callable[[random.Random, float], bool]


@pytest.fixture(autouse=True)
def _compiled() -> None:
    needs_compiled()


@pytest.mark.parametrize(
    "check", [check_encoding, check_result, check_event, check_encoded_arguments]
)
def test_fitting_values_are_encoded_alike(check: Check, seed: int) -> None:
    """What fits is encoded as Python encodes it, and always compiled: attributes, results, events, arguments."""
    draw = random.Random(seed)
    assert all(check(draw, 0.0) for _ in range(CASES))


@pytest.mark.parametrize(
    "check",
    [check_encoding, check_result, check_event, check_encoded_arguments, check_creation, check_key],
)
def test_other_values_are_left_to_python(check: Check, seed: int) -> None:
    """Where values do not fit exactly, the bytes are those of Python, or Python makes them or says why not."""
    draw = random.Random(seed)
    compiled_cases = sum(check(draw, 0.1) for _ in range(CASES))
    assert 0 < compiled_cases < CASES


@pytest.mark.parametrize("check", [check_decoding, check_arguments])
def test_fitting_data_are_read_alike(check: Check, seed: int) -> None:
    """Attributes and arguments are those that Python reads, in the same order, and always compiled."""
    draw = random.Random(seed)
    assert all(check(draw, 0.0) for _ in range(CASES))


@pytest.mark.parametrize("check", [check_decoding, check_arguments])
def test_damaged_data_are_left_to_python(check: Check, seed: int) -> None:
    """Damaged data are read as Python reads them, or are left to Python, which names the damage."""
    draw = random.Random(seed)
    compiled_cases = sum(check(draw, 1.0) for _ in range(2 * CASES))
    assert 0 < compiled_cases < 2 * CASES
