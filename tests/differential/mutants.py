"""Break the engine in named ways, and demand that the suite goes red for each.

A suite that stays green over a broken engine checks nothing. Each mutant is one replacement in a
copy of the tree; the tests that should find it run there, without looking for the smallest
failure. A text that is no longer in the source fails the check as loudly as a survivor: whoever
changes the source changes the mutant. `scripts/mutants` runs it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.checkout import TOP
from tests.differential.mutant_list import MUTANTS, Mutant

TIMEOUT_S = 150


@dataclass(frozen=True)
class Verdict:
    """How the suite took it: `text` says it, `fine` whether that is as it must be."""

    name: str
    text: str
    fine: bool = False
    seconds: float = 0.0


def judge(mutant: Mutant, tree: Path) -> Verdict:
    """Run a mutant's test on an infected copy of a tree."""
    complaint = mutant.complaint(tree)
    if complaint is not None:
        return Verdict(mutant.name, f"CANNOT BE MADE: {complaint}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = _copied(tree, Path(folder))
        mutant.infect(copy)
        code, output = _suite(copy, [mutant.test])
    text = {1: "killed", 0: "SURVIVED"}.get(code, f"DID NOT RUN:\n{output}")
    return Verdict(mutant.name, text, code == 1, time.monotonic() - began)


def judge_health(tree: Path) -> Verdict:
    """Run all the tests on a healthy tree, where they must be green."""
    began = time.monotonic()
    code, output = _suite(tree, sorted({mutant.test for mutant in MUTANTS}))
    where = _python(tree, ["-c", "import penstock; print(penstock.__file__)"])[1].strip()
    fine = code == 0 and Path(where).is_relative_to(tree)
    text = "green" if fine else f"RED, with penstock from {where}:\n{output}"
    return Verdict("(healthy)", text, fine, time.monotonic() - began)


def _copied(tree: Path, folder: Path) -> Path:
    """Copy the files that the tests need, once for all mutants, so that edits meanwhile have no effect."""
    copy = folder.resolve() / "tree"
    for name in ("src", "tests", "examples", "benchmarks"):
        shutil.copytree(tree / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(tree / "pyproject.toml", copy)
    return copy


def _suite(copy: Path, tests: list[str]) -> tuple[int, str]:
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
    return _python(copy, ["-m", "pytest", *options, *tests])


def _python(copy: Path, arguments: list[str]) -> tuple[int, str]:
    """Run Python with the copy's source in front of the installed one."""
    surroundings = {
        **os.environ,
        "PYTHONPATH": str(copy / "src"),
        "PENSTOCK_TESTS_HURRY": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # to load all of them takes longer than most of the tests
    }
    try:
        ended = subprocess.run(
            [sys.executable, *arguments],
            cwd=copy,
            env=surroundings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"not over after {TIMEOUT_S} s"
    return ended.returncode, ended.stdout[-3_000:]


def main() -> int:
    """Print a table as verdicts come in; return 1 unless every mutant was killed."""
    wanted = [mutant for mutant in MUTANTS if not sys.argv[1:] or sys.argv[1] in mutant.name]
    width = max(len(mutant.name) for mutant in MUTANTS)
    fine = bool(wanted)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        tree = _copied(TOP, Path(folder))
        health = pool.submit(judge_health, tree)  # first, because it takes the longest
        verdicts = [pool.submit(judge, mutant, tree) for mutant in wanted]
        for verdict in [*verdicts, health]:
            result = verdict.result()
            line = f"{result.name:{width}}  {result.seconds:5.1f} s  {result.text}"
            print(line, flush=True)  # noqa: T201 -- a program's table
            fine = fine and result.fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
