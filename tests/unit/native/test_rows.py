"""Rows and arguments of the compiled implementation: each is that of Python, or is left to Python."""

import random

import pytest

from tests.native_build import needs_compiled
from tests.row_cases import check_arguments, check_decoding, check_encoding

CASES = 3_000


@pytest.fixture(autouse=True)
def _compiled() -> None:
    needs_compiled()


def test_fitting_values_are_encoded_alike(seed: int) -> None:
    """The row of attributes that fit is that of Python, and always compiled."""
    draw = random.Random(seed)
    assert all(check_encoding(draw, 0.0) for _ in range(CASES))


def test_other_values_are_left_to_python(seed: int) -> None:
    """Where values do not fit exactly, the row is that of Python, or Python makes it or says why not."""
    draw = random.Random(seed)
    compiled_cases = sum(check_encoding(draw, 0.1) for _ in range(CASES))
    assert 0 < compiled_cases < CASES


def test_rows_are_read_alike(seed: int) -> None:
    """The attributes of a row are those that Python reads, in the same order, and always compiled."""
    draw = random.Random(seed)
    assert all(check_decoding(draw, 0.0) for _ in range(CASES))


def test_damaged_rows_are_left_to_python(seed: int) -> None:
    """A damaged row is read as Python reads it, or is left to Python, which names the damage."""
    draw = random.Random(seed)
    compiled_cases = sum(check_decoding(draw, 1.0) for _ in range(2 * CASES))
    assert 0 < compiled_cases < 2 * CASES


def test_arguments_are_decoded_alike(seed: int) -> None:
    """Arguments by position are those that Python decodes, and always compiled."""
    draw = random.Random(seed)
    assert all(check_arguments(draw, 0.0) for _ in range(CASES))


def test_damaged_arguments_are_left_to_python(seed: int) -> None:
    """Damaged arguments are what Python decodes, or are left to Python, which names the parameter."""
    draw = random.Random(seed)
    compiled_cases = sum(check_arguments(draw, 1.0) for _ in range(2 * CASES))
    assert 0 < compiled_cases < 2 * CASES
