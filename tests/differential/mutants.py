"""Break the engine in named ways, and demand that the suite goes red for each.

A suite that stays green over a broken engine checks nothing. Each mutant is one replacement in one
module. A process of its own imports the replaced module instead of the file, and runs the test that
should find it, without looking for the smallest failure. These processes are forked from a process
that has imported the libraries, so that a mutant costs little more than its test. A text that is
no longer in the source fails the check as loudly as a survivor: a change of the source changes the
mutant, too. `scripts/mutants` runs this program; `scripts/nightly` runs it with all mutants, and
`scripts/test` with those that a change may have let live, and a few others.
"""

import argparse
import importlib.util
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType

from tests.change import Change, change_of, choose
from tests.checkout import TOP
from tests.differential.mutant_list import MUTANTS, SRC, Mutant

TIMEOUT_S = 300
CHOSEN = 6
"""So many mutants run for a change of other files."""

CHOSEN_MOST = 14
"""So many run for a change of everything: the others wait for the night."""
LIBRARIES = [
    "hypothesis.stateful",
    "lmdb",
    "msgspec",
    "numpy",
    "pyarrow.parquet",
    "pyspark.errors",
    "pytest",
    "xxhash",
]
"""Libraries that the tests import; a library that is missing here costs time, and nothing else."""

PYTEST_OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
PROCESSES = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Verdict:
    """How the suite took it: `text` says it, `fine` whether that is as it must be."""

    name: str
    text: str
    fine: bool = False
    seconds: float = 0.0


class MutantLoader(SourceFileLoader):
    """Compiles the source of a module with the replacement of a mutant; the file stays as it is."""

    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """Compile the replaced source, without the cache of compiled files."""
        source = Path(self.path).read_text(encoding="utf-8")
        code: CodeType = compile(
            self._mutant.infected(source), self.path, "exec", dont_inherit=True
        )
        return code


class MutantFinder:
    """Finds the module of a mutant before the other finders do."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._path = str(TOP / SRC / mutant.file)
        self._name = ".".join((SRC / mutant.file).with_suffix("").parts[1:])

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        """Return the spec of the replaced module, and None for all others."""
        if fullname != self._name:
            return None
        loader = MutantLoader(fullname, self._path, self._mutant)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


def judge(mutant: Mutant) -> Verdict:
    """Run a mutant's test with its module replaced."""
    complaint = mutant.complaint(TOP)
    if complaint is not None:
        return Verdict(mutant.name, f"CANNOT BE MADE: {complaint}")
    began = time.monotonic()
    code, output = _suite([mutant.test], mutant)
    text = {1: "killed", 0: "SURVIVED"}.get(code, f"DID NOT RUN, code {code}:\n{output}")
    return Verdict(mutant.name, text, code == 1, time.monotonic() - began)


def judge_health(mutants: Sequence[Mutant]) -> Verdict:
    """Run the tests of all mutants with nothing replaced, where they must be green."""
    began = time.monotonic()
    code, output = _suite(sorted({mutant.test for mutant in mutants}), None)
    text = "green" if code == 0 else f"RED, code {code}:\n{output}"
    return Verdict("(healthy)", text, code == 0, time.monotonic() - began)


def _suite(tests: list[str], mutant: Mutant | None) -> tuple[int, str]:
    """Run tests in a forked process; return how pytest ended, and the end of its output."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        process = PROCESSES.Process(target=_run, args=(tests, mutant, output))
        process.start()
        process.join(TIMEOUT_S)
        if process.exitcode is None:
            process.kill()
            process.join()
            return -1, f"not over after {TIMEOUT_S} s"
        return process.exitcode, output.read_text(errors="replace")[-3_000:]


def _run(tests: list[str], mutant: Mutant | None, output: Path) -> None:
    """Run pytest in this process, and end the process with pytest's code."""
    import pytest  # noqa: PLC0415 -- the process that starts all others does not need it

    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.path.insert(0, str(TOP / "src"))
    if mutant is not None:
        sys.meta_path.insert(0, MutantFinder(mutant))
    code = pytest.main([*PYTEST_OPTIONS, *tests])
    where = str(sys.modules["penstock"].__file__)
    sys.stdout.flush()
    os._exit(int(code) if Path(where).is_relative_to(TOP) else 70)


def chosen(change: Change) -> list[Mutant]:
    """Choose the mutants whose module or test changed, and a few others."""

    def files(name: str) -> set[str]:
        return {str(SRC / named[name].file), named[name].test.partition("::")[0]}

    named = {mutant.name: mutant for mutant in MUTANTS}
    return [named[name] for name in choose(change, named, files, CHOSEN, CHOSEN_MOST)]


def main() -> int:
    """Print a table as verdicts come in; return 1 unless every mutant was killed."""
    parser = argparse.ArgumentParser(prog="scripts/mutants", description="Break the engine.")
    parser.add_argument("part", nargs="?", default="", help="mutants whose names contain this text")
    parser.add_argument(
        "--green",
        action="store_true",
        help="the suite has just passed: do not run the tests without a mutant first",
    )
    parser.add_argument(
        "--changed",
        action="store_true",
        help="those whose file or test changed, and a few that the commit's hash chooses",
    )
    options = parser.parse_args()
    mutants = chosen(change_of(TOP)) if options.changed else MUTANTS
    wanted = [mutant for mutant in mutants if options.part in mutant.name]
    width = max(len(mutant.name) for mutant in MUTANTS)
    fine = bool(wanted)
    os.chdir(TOP)
    os.environ |= {"PENSTOCK_TESTS_HURRY": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    PROCESSES.set_forkserver_preload(LIBRARIES)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        health = [] if options.green else [pool.submit(judge_health, wanted)]  # the longest, first
        verdicts = [pool.submit(judge, mutant) for mutant in wanted]
        for verdict in [*verdicts, *health]:
            result = verdict.result()
            line = f"{result.name:{width}}  {result.seconds:5.1f} s  {result.text}"
            print(line, flush=True)  # noqa: T201 -- a program's table
            fine = fine and result.fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
