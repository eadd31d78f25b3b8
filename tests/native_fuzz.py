"""Compare rows of both implementations without end, from a seed: python -m tests.native_fuzz MODULE --seconds 60

`scripts/fuzz_native` builds MODULE with sanitizers, and runs this program with it. Each case has a seed of its own, which
is printed with a difference; `--seed N --seconds 0` runs that case alone.
"""

import argparse
import importlib.util
import random
import sys
import time
from pathlib import Path

from tests.change import Change, choose

NAME = "penstock.native._core"
CONCERNS = (
    *(f"src/penstock/{room}/" for room in ("base", "engine", "model", "native")),
    *("tests/change.py", "tests/native_fuzz.py", "tests/row_cases.py"),
    *("scripts/build_native.py", "scripts/fuzz_native"),
    *("pyproject.toml", "requirements.lock"),
)
"""Beginnings of paths whose change may change the outcome of a case. For other changes only the compiler and the libraries
of the machine may, so that these take turns."""

TURNS = 8


def is_due(change: Change) -> bool:
    """Say whether a run of the whole suite compares: for a change of the code, for an unknown one, and for one commit in eight."""
    concerning = {path for path in change.paths if path.startswith(CONCERNS)}
    turns = choose(change, range(TURNS), lambda turn: set() if turn else concerning, 1, 1)
    return not change.paths or turns == [0]


def use(path: Path) -> None:
    """Let Penstock use the compiled module of a file."""
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None, f"{path} is no module"
    assert spec.loader is not None, f"{path} is no module"
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)


def main() -> None:
    """Run cases until the time is over, or until there have been enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", type=Path, help="the file of the compiled module")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, help="so many seeds, however long they take")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first case")
    options = parser.parse_args()
    use(options.module)
    from tests import row_cases  # noqa: PLC0415 -- it loads Penstock with the module

    first: int = options.seed
    most: int | None = options.seeds
    end, seed, compiled = time.monotonic() + options.seconds, first, 0
    while seed == first or (time.monotonic() < end if most is None else seed < first + most):
        try:
            draw = random.Random(seed)
            for wrong in (0.0, 0.1):
                compiled += row_cases.check_encoding(draw, wrong)
                compiled += row_cases.check_decoding(draw, wrong * 10)
                compiled += row_cases.check_arguments(draw, wrong * 10)
                compiled += row_cases.check_result(draw, wrong)
                compiled += row_cases.check_event(draw, wrong)
                compiled += row_cases.check_encoded_arguments(draw, wrong)
                compiled += row_cases.check_creation(draw, wrong)
                compiled += row_cases.check_key(draw, wrong)
        except BaseException:
            sys.stderr.write(f"the case with --seed {seed} failed\n")
            raise
        seed += 1
    cases = 16 * (seed - first)
    sys.stdout.write(f"{cases} cases, {compiled} of them compiled, no difference\n")


if __name__ == "__main__":
    main()
