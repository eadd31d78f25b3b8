"""The process that forks Spark's Python workers: it loads what they need, once for all of them.

    python -m penstock.runtime.spark.daemon pyspark.worker

Spark starts it in the place of PySpark's own (`spark.python.daemon.module`).
PySpark's own daemon loads nothing, so that each worker would spend half a second of a core before
its first task: after a start, after a worker died, and after a minute without requests, when Spark
ends idle workers. Nothing of the application is loaded here: user code runs in workers only.

Forking is safe while there is one thread, so the libraries are told to start none.
"""

import gc
import os
from typing import Final

from penstock.files.private import keep_private

_ONE_THREAD: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


def main() -> None:
    """Load, then do what PySpark's daemon does: fork a worker whenever Spark asks for one."""
    keep_private()
    preload()
    from pyspark.daemon import manager  # noqa: PLC0415 -- after the environment is set

    manager()


def preload() -> None:
    """Load what a worker needs, and keep the collector of workers from ever walking it."""
    for name, value in _ONE_THREAD.items():
        os.environ.setdefault(name, value)
    import pyspark.worker  # noqa: F401, PLC0415

    import penstock.runtime.spark.stage  # noqa: F401, PLC0415

    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()
