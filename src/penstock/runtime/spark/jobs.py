"""Spark jobs of one Python stage: orders out, reports in, one task for each order.

The function is serialised once and reused; a job carries its orders inside its tasks. That is the
cheapest way PySpark offers to run Python in parallel (docs/PERFORMANCE.md compares).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.core.rdd import _wrap_function
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession
from pyspark.util import _load_from_socket

from penstock.model.reply import raised_by
from penstock.runtime.spark import messages
from penstock.runtime.spark.messages import TaskCommand, TaskResult, WorkerSettings
from penstock.runtime.spark.stage import perform


class Jobs:
    """Runs orders on Spark's executors; safe to use from several threads."""

    def __init__(self, session: SparkSession, settings: WorkerSettings) -> None:
        """Prepare the stage's function."""
        self._context = session.sparkContext
        # PySpark has no public door to a prepared job. Each name is looked up once, because the JVM
        # searches all of its archives for it.
        jvm: Any = self._context._jvm  # noqa: SLF001
        self._payloads = jvm.java.util.ArrayList
        self._parallelize = self._context._jsc.parallelize  # noqa: SLF001
        self._stage = jvm.PythonRDD
        self._serve = jvm.PythonRDD.collectAndServe
        self._function = _wrap_function(
            self._context,
            partial(perform, messages.encode(settings)),
            NoOpSerializer(),
            NoOpSerializer(),
        )

    def run(self, given: Sequence[TaskCommand]) -> list[TaskResult]:
        """Run each order as one task and return their reports, in order.

        Raises:
            PenstockError: What a task has raised, as itself.
            py4j.protocol.Py4JJavaError: A task failed otherwise, at every attempt.
        """
        payloads = self._payloads()
        for order in given:
            payloads.add(bytearray(messages.encode(order)))
        source = self._parallelize(payloads, len(given)).rdd()
        stage = self._stage(source, self._function, False, False)  # noqa: FBT003 -- Java's
        served = self._serve(stage.asJavaRDD().rdd())
        with _load_from_socket(served, NoOpSerializer()) as replies:
            reports = [messages.decode_result(one) for one in replies]
        assert len(reports) == len(given), "every task reports once"
        for report in reports:
            if report.failure is not None:
                raise raised_by(*report.failure)
        return reports
