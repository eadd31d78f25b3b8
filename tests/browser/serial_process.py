"""`SerialDriver` as a process of its own, which may be killed and takes up where the journal ends.

Run as `python -m tests.browser.serial_process APP DATA`; it ends when standard input does. Like the
real driver it says that it is there and reports its epochs.
"""

import os
import sys
from pathlib import Path

from penstock.base.ids import EntityKey, Epoch, entity_key
from penstock.journal.api import PartKind
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.reports import ReportWriter
from tests.serial_driver import ONLY, SerialDriver


def resume(driver: SerialDriver) -> None:
    """Bring the driver to the state that the journal holds."""
    for commit in driver.journal.commits(Epoch(-1)):
        driver._epoch, driver._position = commit.epoch, commit.positions[ONLY]
        for part in commit.parts_of(PartKind.CHANGES):
            for row in driver.journal.read(part).to_pylist():
                key: EntityKey = entity_key(row["entity"], row["key"])
                driver._state[key] = row["state"]
                if row["state"] is None:
                    del driver._state[key]


def main(spec: str, data: Path) -> None:
    driver = SerialDriver(spec, Config(data=data, cores=1, poll_ms=10), deploys=True)
    resume(driver)
    driver.on_epoch.append(ReportWriter(data).take)
    with presence.present(data, "driver", spec, cores=1, partitions=1):
        driver.start()
        while os.read(sys.stdin.fileno(), 1_024):
            pass
        driver.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
