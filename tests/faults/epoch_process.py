"""The driver of epochs and its worker in one process without Spark, which tests may kill.

`python -m tests.faults.epoch_process DATA FAULT` processes the whole log of a bank in epochs of
`EPOCH` requests, and dies at the step that FAULT names, as `Config.fault` says.
"""

import sys
from pathlib import Path

from tests.differential.inline import Inline
from tests.faults.load import Bank

EPOCH = 25


def main(data: Path, fault: str) -> None:
    """Process all requests that the log holds."""
    bank = Bank()
    runtime = Inline(data, 2, bank.spec, bank.app.name, fault=fault, epoch_records_max=EPOCH)
    runtime.advance(int(runtime.log.end()))
    runtime.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
