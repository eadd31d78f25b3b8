"""The compiled implementation and Python give the same outcomes, and journals of the same bytes."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

from penstock.native.choice import DISABLE, REQUIRE, VARIABLE
from tests.checkout import TOP
from tests.differential.programs import beside_one_thread
from tests.native_build import needs_compiled

PROGRAM = "tests.differential.implementation"


def outcomes(wish: str) -> list[str]:
    """Run the program with an implementation, and return its lines."""
    result = subprocess.run(
        [sys.executable, "-m", PROGRAM],
        cwd=TOP,
        env={**os.environ, VARIABLE: wish},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@beside_one_thread
def test_both_implementations_give_the_same_outcomes() -> None:
    """Replies, states and parts of journals are the same, also at each depth before the recursion limit."""
    if find_spec("penstock.native._core") is None:
        needs_compiled()
    with ThreadPoolExecutor(2) as threads:
        python, compiled = threads.map(outcomes, (DISABLE, REQUIRE))
    assert len(python) > 1_000
    assert any("too deep" in line for line in python), "some touch of an entity exceeds the limit"
    assert any(line.startswith("('part'") for line in python)
    differences = [pair for pair in zip(python, compiled, strict=True) if pair[0] != pair[1]]
    assert differences == []
