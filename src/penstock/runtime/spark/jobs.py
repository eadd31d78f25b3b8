"""Spark jobs of one Python stage: one task for each command, one result from each task.

The function is serialised once and reused; the commands travel inside the tasks. That is the cheapest
way to run Python in parallel on PySpark (docs/PERFORMANCE.md compares).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.core.context import SparkContext
from pyspark.core.rdd import _wrap_function
from pyspark.serializers import NoOpSerializer
from pyspark.util import _load_from_socket

from penstock.model.reply import raised_by
from penstock.runtime.spark import messages
from penstock.runtime.spark.messages import TaskCommand, TaskResult, WorkerSettings
from penstock.runtime.spark.stage import perform


class Jobs:
    """Runs task commands on Spark's executors; safe to use from several threads."""

    def __init__(self, context: SparkContext, settings: WorkerSettings) -> None:
        self._context = context
        # PySpark has no public API for a prepared job. Each name is looked up once, because the JVM
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

    def run(self, commands: Sequence[TaskCommand]) -> list[TaskResult]:
        """Run each command as one task and return their results, in order.

        Raises:
            PenstockError: The error that a task reported.
            py4j.protocol.Py4JJavaError: A task failed in another way, at every attempt.
        """
        payloads = self._payloads()
        for command in commands:
            payloads.add(bytearray(messages.encode(command)))
        source = self._parallelize(payloads, len(commands)).rdd()
        stage = self._stage(source, self._function, False, False)  # noqa: FBT003 -- Java's
        served = self._serve(stage.asJavaRDD().rdd())
        with _load_from_socket(served, NoOpSerializer()) as replies:
            results = [messages.decode_result(reply) for reply in replies]
        assert len(results) == len(commands), "every task reports once"
        for result in results:
            if result.failure is not None:
                raise raised_by(*result.failure)
        return results
