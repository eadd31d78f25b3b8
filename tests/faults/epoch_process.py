"""The driver of epochs and its worker in one process without Spark, which tests may kill.

It processes the whole log of a bank, or of workflows, in epochs of `EPOCH` requests, and dies at the
step that `fault` names, as `Config.fault` says.
"""

import math
from collections.abc import Callable
from pathlib import Path

from penstock.runtime.spark import parallelism
from tests.differential.inline import Inline
from tests.faults.load import Bank, Flows, LargeAtoms

EPOCH = 25
LOADS: dict[str, Callable[[], Bank | Flows | LargeAtoms]] = {
    "bank": Bank,
    "flows": Flows,
    "overlapped": Flows,
    "large": LargeAtoms,
}


def main(data: Path, fault: str, name: str) -> None:
    """Process all requests that the log holds, and those that cascades append."""
    load = LOADS[name]()
    if name == "overlapped":
        parallelism.OVERLAP_SAVES_MS = -math.inf  # type: ignore[misc]
    epochs = {"small_epoch": EPOCH, "large_atom": 5, "epoch_records_max": 3}
    settings = epochs if name == "large" else {"epoch_records_max": EPOCH}
    runtime = Inline(data, 2, load.spec, load.app.name, fault=fault, **settings)
    reached = None
    while reached != (reached := int(runtime.log.end())):
        runtime.advance(reached)
    runtime.close()
