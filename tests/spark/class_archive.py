"""Make the archive of classes that lets each JVM of the tests start in half the time.

Java's class-data sharing: a JVM that ran one epoch writes the classes it loaded to `ARCHIVE`, in the
form that it has them in memory, and later JVMs map that file. `tests/conftest.py` names it to every
JVM that a test starts. A JVM of another version ignores the file. `scripts/test` runs this program.
"""

import os
import tempfile
from pathlib import Path
from typing import Final

from tests.checkout import TOP

ARCHIVE: Final = TOP / ".venv" / "spark-classes.jsa"
VARIABLE: Final = "SPARK_SUBMIT_OPTS"
"""The environment variable from which Spark takes options for its JVM."""

REQUESTS: Final = 200


def use() -> None:
    """Let the JVMs that this process starts use the archive, if there is one."""
    if ARCHIVE.exists():
        os.environ.setdefault(VARIABLE, f"-XX:SharedArchiveFile={ARCHIVE} -Xlog:disable")


def make() -> None:
    """Run a driver for some requests, and let its JVM write the archive when it ends."""
    from tests.faults.driver_process import DriverProcess  # noqa: PLC0415 -- starts no JVM itself
    from tests.faults.load import Bank, Load  # noqa: PLC0415

    draft = ARCHIVE.with_suffix(".draft")
    os.environ[VARIABLE] = f"-XX:ArchiveClassesAtExit={draft} -Xlog:disable"
    bank = Bank()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with (
            Load(bank, data, seed=1, most=REQUESTS) as load,
            DriverProcess(bank.spec, data, small_epoch=0) as driver,
        ):
            load.wait_for_more(driver, REQUESTS)
            driver.stop()
    draft.replace(ARCHIVE)


if __name__ == "__main__":
    make()
