"""The change that a checkout contains, and the choice of what runs for it where not everything can.

All mutants, and all cases of a campaign, take more processor time than a change may cost. `scripts/test` runs those
that the change concerns and some others; the commit's hash chooses them, so that a commit always runs the same ones and
the next commit different ones. `scripts/nightly` runs all. Run as a program, it prints how many files of unit tests that
concern the change `scripts/check` leaves out, and on further lines those that it runs; with `in-python`, the files of tests
that `scripts/test` runs once more in Python, and with `in-python --whole` those of `scripts/nightly`.
"""

import hashlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from tests.checkout import TOP

TRUNKS = ["origin/main", "main"]

SHARED = ("requirements.lock", "src/penstock/base/", "src/penstock/errors")
"""A change of them concerns each trial: the versions of libraries, and the room that all others import."""

IN_PYTHON = [
    "unit/model/test_*.py",
    "unit/model/versions/test_*.py",
    "unit/engine/test_*.py",
    "differential/test_*_twins.py",
    "differential/test_epoch_*.py",
    "differential/test_frames.py",
    "differential/test_packed_atoms.py",
]
"""Tests of entities, rows and transactions, and the random programs over them: Python takes over wherever the compiled
implementation does not know a value."""

ALIKE = [
    *(f"unit/engine/test_{name}.py" for name in ("conflicts", "derived_ids", "first_round")),
    *(f"unit/engine/test_{name}.py" for name in ("large_values", "order", "step")),
    *(f"unit/model/test_{name}.py" for name in ("event_list", "refused_types", "routes")),
    *(f"unit/model/test_{name}.py" for name in ("sharing", "signature_noise")),
    "unit/model/versions/test_widening.py",
    *(f"differential/test_{name}_twins.py" for name in ("deployment", "index", "log")),
    "differential/test_epoch_pauses.py",
]
"""Of those, the tests that call no function that has a compiled one: they run no transaction, and follow no reference. And
those whose programs run through the same transactions as others: deployments, files, orders."""

IN_PYTHON_LEAST = 16
"""So many of their files run for a change of other code."""

_CHOOSES = re.compile(
    r"^from penstock\.(native\.choice import core|model\.row_plan import .*)$", re.M
)
"""A module that has the Python beside what is compiled: it asks for the compiled module, or for the plan of a class."""

T = TypeVar("T")


class Change(NamedTuple):
    """A commit's hash, and the paths that differ, from the top of the checkout."""

    commit: str
    paths: frozenset[str]


class Trial(NamedTuple):
    """A test that takes turns with the others of its group: a run of the whole suite takes so many of them."""

    name: str
    group: str
    least: int
    folders: tuple[str, ...]
    """A change below them concerns it, and so does a change of its own file or of what its folder shares: then it runs beside
    the others."""

    def __str__(self) -> str:
        return self.name

    def concerned_by(self, change: Change) -> set[str]:
        own = self.name.partition("::")[0]
        beside = own.rpartition("/")[0]

        def concerns(path: str) -> bool:
            folder, _, file = path.rpartition("/")
            return (
                path == own
                or (folder == beside and not file.startswith("test_"))
                or path.startswith((*self.folders, *SHARED))
            )

        return set(filter(concerns, change.paths))


def git(top: Path, *words: str) -> str:
    """Return what a command of Git says about a checkout; empty if it fails, or if Git is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(top), *words], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def commit_of(top: Path) -> str:
    """Return the hash of the last commit of a checkout; empty without Git's history."""
    return git(top, "rev-parse", "HEAD")


def change_of(top: Path) -> Change:
    """Return what differs from the commit where the branch left the trunk.

    On the trunk that is the last commit and the working tree. Without Git's history, as in an archive or a shallow
    clone, no path is known.
    """
    commit = commit_of(top)
    bases = (git(top, "merge-base", "HEAD", trunk) for trunk in TRUNKS)
    left = next((base for base in bases if base and base != commit), "")
    base = left or git(top, "rev-parse", "--verify", "--quiet", "HEAD~1")
    paths = git(top, "diff", "--name-only", base) if base else ""
    return Change(commit, frozenset(paths.splitlines()))


def choose(
    change: Change, all_of_them: Iterable[T], files: Callable[[T], set[str]], least: int, most: int
) -> list[T]:
    """Choose what the change concerns, filled up to `least` with others, and `most` at most.

    Args:
        change: The change; its commit decides about the others.
        all_of_them: What there is; the text of each is its name.
        files: Returns the paths whose change concerns one of them.
        least: So many are chosen for a change of other files.
        most: So many are chosen for a change of everything; the rest waits for the night.
    """

    def rank(item: T) -> tuple[bool, bytes]:
        digest = hashlib.sha256(f"{change.commit} {item}".encode()).digest()
        return files(item).isdisjoint(change.paths), digest

    ranked = sorted(all_of_them, key=rank)
    concerned = sum(not rank(item)[0] for item in ranked)
    return ranked[: min(max(concerned, least), most)]


def part_of(cases: Sequence[T], number: int, commit: str) -> list[T]:
    """Choose so many cases by a commit, and keep their order."""
    change = Change(commit, frozenset())
    chosen = choose(change, range(len(cases)), lambda _: set(), number, number)
    return [cases[index] for index in sorted(chosen)]


def whose_turn_it_is(change: Change, trials: Iterable[Trial]) -> set[str]:
    """Return the names of the trials that a run takes: of each group those that the change concerns, or else so many."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.group, []).append(trial)
    return {
        trial.name
        for group in groups.values()
        for trial in choose(
            change, group, lambda one: one.concerned_by(change), group[0].least, len(group)
        )
    }


def unit_tests(change: Change, top: Path, most: int) -> tuple[list[str], int]:
    """Return the files of unit tests that changed, then those that import a changed module, and how many are left out."""
    modules = [
        ".".join(Path(path).with_suffix("").parts[1:])
        for path in change.paths
        if path.startswith("src/") and path.endswith(".py")
    ]
    names = [rf"{re.escape(name)}\b" for name in modules]
    names += [
        rf"from {re.escape(room)} import .*\b{name}\b" for room, _, name in map(parted, modules)
    ]
    imported = re.compile("|".join(names) or "$^")

    def rank(file: Path) -> tuple[bool, bool, str]:
        path = str(file.relative_to(top))
        stem = file.stem.removeprefix("test_")
        return path not in change.paths, all(parted(name)[2] != stem for name in modules), path

    files = [
        file
        for file in sorted((top / "tests/unit").rglob("test_*.py"), key=rank)
        if not rank(file)[0] or imported.search(file.read_text())
    ]
    return [str(file.relative_to(top)) for file in files[:most]], max(len(files) - most, 0)


def chosen_in_python(change: Change, top: Path) -> list[str]:
    """Return files of tests to run in Python: all for a change of code that has two implementations, else changed ones and some."""
    native = {path for path in change.paths if path.startswith("src/penstock/native/")}
    both = _with_two_implementations(top) | native
    files = all_in_python(top)
    return choose(change, files, lambda file: {file, *both}, IN_PYTHON_LEAST, len(files))


@cache
def _with_two_implementations(top: Path) -> set[str]:
    return {
        str(file.relative_to(top))
        for file in (top / "src").rglob("*.py")
        if _CHOOSES.search(file.read_text())
    }


def all_in_python(top: Path) -> list[str]:
    """Return all files of tests that may find another outcome in Python."""
    alike = {top / "tests" / path for path in ALIKE}
    files = {file for pattern in IN_PYTHON for file in (top / "tests").glob(pattern)}
    return sorted(str(file.relative_to(top)) for file in files - alike)


def parted(module: str) -> tuple[str, str, str]:
    return module.rpartition(".")


def main(words: Sequence[str]) -> None:
    """Print paths, which have no spaces, a line for each."""
    if "--whole" in words:
        lines = all_in_python(TOP)
    elif "in-python" in words:
        lines = chosen_in_python(change_of(TOP), TOP)
    else:
        chosen, left_out = unit_tests(change_of(TOP), TOP, 25)
        lines = [str(left_out), *chosen]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
