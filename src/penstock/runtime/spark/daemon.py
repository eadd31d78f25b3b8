"""The process that forks Spark's Python workers; it loads their modules once for all of them.

    python -m penstock.runtime.spark.daemon pyspark.worker

Spark starts it instead of PySpark's own daemon (`spark.python.daemon.module`), which loads nothing:
each worker would then use half a second of a core before its first task, after a start, after the
death of a worker, and after a minute without requests, when Spark ends idle workers. The application
is not loaded here, because user code runs in workers only.

A fork is safe while the process has one thread, so the libraries are configured to start no thread.
"""

import gc

from penstock.files.private import keep_private
from penstock.process.process_limits import keep_libraries_single


def main() -> None:
    """Load modules, then run PySpark's daemon, which forks a worker whenever Spark asks for one."""
    keep_private()
    preload()
    from pyspark.daemon import manager  # noqa: PLC0415 -- after the environment is set

    manager()


def preload() -> None:
    """Load the modules of workers, and exclude them from garbage collection."""
    keep_libraries_single()
    gc.disable()  # nearly all objects of modules stay
    import pyspark.worker  # noqa: F401, PLC0415

    import penstock.runtime.spark.worker_process  # noqa: F401, PLC0415

    gc.collect()
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    main()
