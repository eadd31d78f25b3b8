"""The mutants that `scripts/mutants` makes: each can still be made from the source as it is."""

import pytest

from tests.checkout import TOP
from tests.differential.mutant_list import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.name))
def test_mutant_can_be_made(mutant: Mutant) -> None:
    """The text that a mutant replaces is in the source once, and its test is there."""
    assert mutant.complaint(TOP) is None
    path, _, name = mutant.test.partition("::")
    assert f"def {name}" in (TOP / path).read_text()


def test_mutants_differ() -> None:
    """There are ten ways at least, no two of one name or of one change."""
    assert len(MUTANTS) >= 10
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.file, mutant.bad, mutant.good) for mutant in MUTANTS}) == len(MUTANTS)
