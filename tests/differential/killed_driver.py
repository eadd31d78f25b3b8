"""A driver of an application with the code in force, also in a process that dies at a step.

The process imports little, so that a test may kill many of them.
"""

import os
import signal
from pathlib import Path
from typing import Final

from penstock.deployment.code_in_force import code_in_force
from tests.call_faults import at_call
from tests.differential.inline import Inline

CALL: Final = "call"
PROGRAM: Final = """
import sys
from pathlib import Path
from tests.differential.killed_driver import main

main(Path(sys.argv[1]), *sys.argv[2:])
"""


def opened(
    data: Path, first: str, sizes: tuple[int, int], dies: str = "", name: str = "shop"
) -> Inline:
    """Return a driver that starts: it continues with the code in force, or else with the first code.

    Args:
        data: The data directory.
        first: The first code.
        sizes: The first number of partitions, and the most requests of an epoch.
        dies: The step at which it dies.
        name: The name of the application.
    """
    partitions, width = sizes
    spec = (code_in_force(data) or (first,))[0]
    return Inline(data, partitions, spec, name, epoch_records_max=width, fault=dies)


def main(data: Path, first: str, *words: str) -> None:
    """Process the log up to a position, and die at a step, or at a call that changes a file."""
    partitions, width, end = map(int, words[:3])
    dies, name = words[3:]
    step, _, place = dies.partition("@")
    runtime = opened(data, first, (partitions, width), "" if step == CALL else dies, name)
    with at_call(int(place) if step == CALL else -1, die):
        runtime.advance(end)
    runtime.close()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
