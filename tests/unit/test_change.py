"""What a checkout changes is asked of Git."""

import re
import subprocess
from pathlib import Path

from tests.change import (
    ALIKE,
    IN_PYTHON_LEAST,
    Change,
    Trial,
    all_in_python,
    change_of,
    chosen_in_python,
    part_of,
    whose_turn_it_is,
)
from tests.checkout import TOP
from tests.native_fuzz import CONCERNS, is_due


def test_what_changed_is_asked_of_git(tmp_path: Path) -> None:
    """On a branch it is everything since the trunk, on the trunk the last commit; uncommitted work counts."""

    def git(*words: str) -> None:
        own = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *own, *words], check=True, capture_output=True)

    def commit(name: str) -> None:
        (tmp_path / name).write_text(name)
        git("add", name)
        git("commit", "-q", "-m", name)

    assert change_of(tmp_path) == Change("", frozenset())
    git("init", "-q", "-b", "main")
    commit("first")
    assert change_of(tmp_path).paths == set()  # a clone that holds one commit does not know
    commit("second")
    assert change_of(tmp_path).paths == {"second"}
    git("checkout", "-q", "-b", "branch")
    commit("third")
    commit("fourth")
    (tmp_path / "first").write_text("changed")
    assert change_of(tmp_path).paths == {"first", "third", "fourth"}


def test_each_case_has_its_commit() -> None:
    """A commit takes the same cases each time, in their order; a few dozen commits take all."""
    cases = "abcdefgh"
    parts = [part_of(cases, 2, f"commit {number}") for number in range(40)]
    assert parts == [part_of(cases, 2, f"commit {number}") for number in range(40)]
    assert all(part == sorted(part) and len(set(part)) == 2 for part in parts)
    assert set().union(*parts) == set(cases)


def test_trials_take_turns_unless_the_change_concerns_them() -> None:
    """A commit takes so many of each group, a few dozen commits take all; a change of a room takes all trials of the room."""
    views = [
        Trial(f"tests/a.py::test[{case}]", "kills", 2, ("src/penstock/views",)) for case in "abcde"
    ]
    alone = Trial("tests/b.py::test", "alone", 1, ("src/penstock/engine",))
    parts = [
        whose_turn_it_is(Change(f"commit {number}", frozenset({"README.md"})), [*views, alone])
        for number in range(40)
    ]
    assert all(len(part) == 3 and alone.name in part for part in parts)
    assert set().union(*parts) == {trial.name for trial in [*views, alone]}
    for path in (
        "src/penstock/views/applier.py",
        "tests/a.py",
        "tests/helper.py",
        "requirements.lock",
    ):
        taken = whose_turn_it_is(Change("a commit", frozenset({path})), [*views, alone])
        assert taken == {trial.name for trial in [*views, alone]}
    taken = whose_turn_it_is(Change("a commit", frozenset({"tests/test_other.py"})), views)
    assert len(taken) == 2


def test_rooms_of_trials_are_rooms() -> None:
    """A room that was renamed would never change again."""
    named = re.compile(r"mark\.turns\(([^)]*)\)", re.S)
    marks = [
        text for file in (TOP / "tests").rglob("*.py") for text in named.findall(file.read_text())
    ]
    rooms = {room for text in marks for room in re.findall(r'(?<!of=)"([^"]+)"', text)}
    assert rooms
    assert [room for room in rooms if not (TOP / "src/penstock" / room).is_dir()] == []


def test_a_change_of_code_with_two_implementations_runs_all_its_tests_in_python() -> None:
    """It may be in either of them; of other changes, each commit takes some tests, and a few dozen commits take all."""
    every = all_in_python(TOP)
    assert all((TOP / "tests" / path).is_file() for path in ALIKE)
    for path in ("engine/execute.py", "model/entity_type.py", "native/slots.pxi"):
        change = Change("a commit", frozenset({f"src/penstock/{path}"}))
        assert set(chosen_in_python(change, TOP)) == set(every)
    changed = every[7]
    parts = [
        chosen_in_python(Change(f"commit {number}", frozenset({changed, "README.md"})), TOP)
        for number in range(40)
    ]
    assert all(len(part) == IN_PYTHON_LEAST and part[0] == changed for part in parts)
    assert set().union(*parts) == set(every)


def test_rows_are_compared_for_a_change_of_their_code_for_an_unknown_one_and_in_turns() -> None:
    """A change of a page compares them once in eight commits, so that another compiler is noticed."""
    commits = [f"{number:040x}" for number in range(200)]

    def due(path: str) -> int:
        return sum(is_due(Change(commit, frozenset({path, "README.md"}))) for commit in commits)

    assert due("src/penstock/native/row_reader.pxi") == due("requirements.lock") == len(commits)
    assert is_due(Change(commits[0], frozenset()))
    assert 10 < due("docs/GUIDE.md") < 40
    assert all((TOP / path).exists() for path in CONCERNS)
