"""The driver of epochs and its worker in one process without Spark, which tests may kill.

It processes the whole log of a bank, or of workflows, in epochs of `EPOCH` requests, and dies at the
step that `fault` names, as `Config.fault` says.
"""

from pathlib import Path

from tests.differential.inline import Inline
from tests.faults.load import Bank, Flows

EPOCH = 25


def main(data: Path, fault: str, name: str) -> None:
    """Process all requests that the log holds, and those that cascades append."""
    load = Bank() if name == "bank" else Flows()
    runtime = Inline(data, 2, load.spec, load.app.name, fault=fault, epoch_records_max=EPOCH)
    reached = None
    while reached != (reached := int(runtime.log.end())):
        runtime.advance(reached)
    runtime.close()
