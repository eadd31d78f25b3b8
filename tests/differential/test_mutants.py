"""The mutants that `scripts/mutants` makes: each can still be made from the source as it is."""

import subprocess
from pathlib import Path

import pytest

from tests.checkout import TOP
from tests.differential.mutant_list import MUTANTS, SRC, Mutant
from tests.differential.mutants import CHOSEN, CHOSEN_MOST, change, chosen


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


def test_a_change_is_met_by_its_mutants() -> None:
    """The mutants of a changed module or test run; a change of everything runs no more than the bound."""
    module = str(SRC / MUTANTS[0].file)
    concerned = {mutant.name for mutant in MUTANTS if mutant.file == MUTANTS[0].file}
    names = {mutant.name for mutant in chosen("a", {module})}
    assert concerned <= names or names < concerned
    assert len(names) == min(max(len(concerned), CHOSEN), CHOSEN_MOST)
    test = MUTANTS[-1].test.partition("::")[0]
    assert all(test in mutant.test for mutant in chosen("a", {test})[:1])
    everything = {str(SRC / mutant.file) for mutant in MUTANTS}
    assert len(chosen("a", everything)) == CHOSEN_MOST


def test_a_commit_chooses_the_others() -> None:
    """A commit always runs the same mutants, and two hundred commits run all of them."""
    assert chosen("a", set()) == chosen("a", set())
    assert len(chosen("a", set())) == CHOSEN
    commits = [chosen(str(number), set()) for number in range(200)]
    assert {mutant.name for some in commits for mutant in some} == {one.name for one in MUTANTS}


def test_what_changed_is_asked_of_git(tmp_path: Path) -> None:
    """On a branch it is everything since the trunk, on the trunk the last commit; uncommitted work counts."""

    def git(*words: str) -> None:
        own = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *own, *words], check=True, capture_output=True)

    def commit(name: str) -> None:
        (tmp_path / name).write_text(name)
        git("add", name)
        git("commit", "-q", "-m", name)

    assert change(tmp_path) == ("", set())
    git("init", "-q", "-b", "main")
    commit("first")
    assert change(tmp_path)[1] == set()  # a clone that holds one commit does not know
    commit("second")
    assert change(tmp_path)[1] == {"second"}
    git("checkout", "-q", "-b", "branch")
    commit("third")
    commit("fourth")
    (tmp_path / "first").write_text("changed")
    assert change(tmp_path)[1] == {"first", "third", "fourth"}
