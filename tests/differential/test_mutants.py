"""The mutants that `scripts/mutants` makes: each can still be made from the source as it is."""

import pytest

from tests.change import Change
from tests.checkout import TOP
from tests.differential.mutant_list import MUTANTS, SRC, Mutant
from tests.differential.mutants import CHOSEN, CHOSEN_MOST, chosen


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: str(mutant.name))
def test_mutant_can_be_made(mutant: Mutant) -> None:
    """The text that a mutant replaces is in the source once, the rest is Python, and its test is there."""
    assert mutant.complaint(TOP) is None
    path, _, name = mutant.test.partition("::")
    assert f"def {name}" in (TOP / path).read_text()


def test_mutants_differ() -> None:
    """There are ten ways at least, no two of one name or of one change."""
    assert len(MUTANTS) >= 10
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.file, mutant.bad, mutant.good) for mutant in MUTANTS}) == len(MUTANTS)


def test_a_change_is_met_by_its_mutants() -> None:
    """The mutants of a changed module or test run; a change of everything runs no more than the bound."""
    module = str(SRC / MUTANTS[0].file)
    concerned = {mutant.name for mutant in MUTANTS if mutant.file == MUTANTS[0].file}
    names = {mutant.name for mutant in chosen(Change("a", frozenset({module})))}
    assert concerned <= names or names < concerned
    assert len(names) == min(max(len(concerned), CHOSEN), CHOSEN_MOST)
    test = MUTANTS[-1].test.partition("::")[0]
    assert all(test in mutant.test for mutant in chosen(Change("a", frozenset({test})))[:1])
    everything = frozenset(str(SRC / mutant.file) for mutant in MUTANTS)
    assert len(chosen(Change("a", everything))) == CHOSEN_MOST


def test_a_commit_chooses_the_others() -> None:
    """A commit always runs the same mutants, and two hundred commits run all of them."""
    assert chosen(Change("a", frozenset())) == chosen(Change("a", frozenset()))
    assert len(chosen(Change("a", frozenset()))) == CHOSEN
    commits = [chosen(Change(str(number), frozenset())) for number in range(200)]
    assert {mutant.name for some in commits for mutant in some} == {one.name for one in MUTANTS}
