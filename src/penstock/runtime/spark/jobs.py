"""Spark jobs of one Python stage: one task for each command, one result from each task.

The commands of an epoch go to the resident tasks instead, as far as these are there.

The function is serialised once and reused; the commands travel inside the tasks. That is the cheapest
way to run Python in parallel on PySpark (docs/PERFORMANCE.md compares).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.core.context import SparkContext
from pyspark.core.rdd import _wrap_function
from pyspark.serializers import NoOpSerializer
from pyspark.util import _load_from_socket

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.model.reply import raised_by
from penstock.runtime.spark import messages
from penstock.runtime.spark.messages import (
    ApplyEpoch,
    Reside,
    RunMaintenance,
    RunSteps,
    RunTransactions,
    TaskCommand,
    TaskMessage,
    TaskResult,
    WorkerSettings,
)
from penstock.runtime.spark.resident_task import ResidentTask, UnixDoor
from penstock.runtime.spark.step_relay import Mark
from penstock.runtime.spark.worker_process import perform


class Jobs:
    """Runs task commands on Spark's executors; safe to use from several threads.

    Attributes:
        partitions: The number of stores that the commands of the next epoch use. The driver sets it.

    Args:
        residents: The number of resident tasks, which run the commands of epochs from `start_resident` on.
    """

    settings: WorkerSettings
    _settings: bytes

    def __init__(
        self, context: SparkContext, settings: WorkerSettings, *, residents: int = 0
    ) -> None:
        self._context = context
        self.use(settings)
        # PySpark has no public API for a prepared job. Each name is looked up once, because the JVM
        # searches all of its archives for it.
        jvm: Any = self._context._jvm  # noqa: SLF001
        self._payloads = jvm.java.util.ArrayList
        self._parallelize = self._context._jsc.parallelize  # noqa: SLF001
        self._stage = jvm.PythonRDD
        self._serve = jvm.PythonRDD.collectAndServe
        self._function = _wrap_function(
            self._context,
            perform,
            NoOpSerializer(),
            NoOpSerializer(),
        )

        self.partitions = 1
        folder = Path(settings.scratch)
        self._residents = [
            ResidentTask(
                self._run_alone, UnixDoor(folder, f"resident{number}"), encode=self._message
            )
            for number in range(residents)
        ]

    def use(self, settings: WorkerSettings) -> None:
        """Let all later commands run with these settings; each worker loads other code at its next command."""
        self.settings, self._settings = settings, messages.encode(settings)

    def _message(self, command: TaskCommand) -> bytes:
        return messages.encode(TaskMessage(self._settings, command))

    @property
    def tasks_max(self) -> int:
        """The most tasks of a round: one for each store."""
        return self.partitions

    def joined(self) -> int | None:
        """Return the number of tasks that the hosts have now; None on one host, whose number does not change."""
        return None

    def load_application(self, workers: int) -> None:
        """Let so many workers load the application, at most one in each slot; raises as `run`."""
        self.run([ApplyEpoch([], BEFORE_FIRST, self.partitions)] * workers)

    def start_resident(self) -> None:
        """Start the resident tasks; until they are ready, epochs run as ordinary jobs."""
        for resident in self._residents:
            resident.start()

    def stop_resident(self) -> None:
        """End the resident tasks."""
        for resident in self._residents:
            resident.stop()

    def run(self, commands: Sequence[TaskCommand]) -> list[TaskResult]:
        """Run each command as one task and return their results, in order."""
        return self._sound(self._run_all(commands))

    @staticmethod
    def _sound(results: list[TaskResult]) -> list[TaskResult]:
        """Return results none of which is a failure; raise the first failure."""
        for result in results:
            if result.failure is not None:
                raise raised_by(result.failure)
        return results

    def run_overlapped(self, requests: RunTransactions, steps: RunSteps) -> list[TaskResult]:
        """Run the requests of an epoch and, at the same time, the workflow steps whose records they relay; raises as `run`.

        Returns:
            Both results. That of the steps is empty if it has read the relay of an attempt that died.
        """
        with ThreadPoolExecutor(1, "penstock-steps") as thread:
            with Mark(requests.relay):
                running = thread.submit(self._run_at, 1, steps)
                results = self.run([requests])
            return [*results, *self._sound([running.result()])]

    def apply(self, commands: Sequence[ApplyEpoch]) -> None:
        """Bring stores to an epoch; raises as `run`."""
        self.run(commands)

    def apply_resident(self, epoch: Epoch) -> None:
        """Let a resident task bring all stores to an epoch before its next command; do not wait for it.

        Without the task, or after an error of it, the next epoch does so.
        """
        if self._residents:
            every = list(range(self.partitions))
            self._residents[0].begin(ApplyEpoch(every, epoch, self.partitions))

    def _run_alone(self, command: TaskCommand) -> None:
        """Run a command as a job of its own."""
        self._sound(self._run_job([command]))

    def _run_all(self, commands: Sequence[TaskCommand]) -> list[TaskResult]:
        """Run each command in a resident task of its own; as one job if there are not enough of these."""
        if len(commands) > len(self._residents) or not all(map(_may_reside, commands)):
            return self._run_job(commands)
        if len(commands) == 1:
            return [self._run_at(0, commands[0])]
        with ThreadPoolExecutor(len(commands), "penstock-command") as threads:
            return list(threads.map(self._run_at, range(len(commands)), commands))

    def _run_at(self, number: int, command: TaskCommand) -> TaskResult:
        """Run a command in a resident task; as a job without this task, or if it is lost meanwhile."""
        resident = self._residents[number] if number < len(self._residents) else None
        result = None if resident is None else resident.run(command)
        return self._run_job([command])[0] if result is None else result

    def _run_job(self, commands: Sequence[TaskCommand]) -> list[TaskResult]:
        payloads = self._payloads()
        for command in commands:
            payloads.add(bytearray(self._message(command)))
        source = self._parallelize(payloads, len(commands)).rdd()
        stage = self._stage(source, self._function, False, False)  # noqa: FBT003 -- Java's
        served = self._serve(stage.asJavaRDD().rdd())
        with _load_from_socket(served, NoOpSerializer()) as replies:
            results = [messages.decode_result(reply) for reply in replies]
        assert len(results) == len(commands), "every task reports once"
        return results


def _may_reside(command: TaskCommand) -> bool:
    """Say whether a resident task may run a command; maintenance would keep it from the epochs."""
    return not isinstance(command, Reside | RunMaintenance)
