"""The rounds of one epoch as Spark jobs: commands out, results in, until all components are finished.

An epoch of one task runs its workflow steps and publishes its rows at once. Tasks of a larger epoch keep the rows of
each round as round outputs, and the last round writes the valid rows of all rounds into part files. If requests have
published atoms, one more task runs the workflow steps of the whole epoch (`workflow_pass`).
"""

from collections.abc import Iterator, Mapping

from penstock.base.ids import Epoch
from penstock.engine.step import EpochRun
from penstock.process.fault import Fault
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.messages import (
    LogRange,
    RoundOutput,
    RunSteps,
    RunTransactions,
    TaskCommand,
    TaskResult,
    first_not_run,
    pack_positions,
)
from penstock.runtime.spark.stopwatch import Stopwatch


class Overflow(Exception):
    """The outputs of an epoch's tasks are larger than the limit of an epoch."""


class Rounds:
    """Runs the rounds of epochs."""

    def __init__(self, jobs: Jobs, fault: Fault, output_bytes_max: int) -> None:
        self._jobs = jobs
        self._fault = fault
        self._output_bytes_max = output_bytes_max

    def run(
        self,
        epoch: Epoch,
        ranges: list[LogRange],
        run: EpochRun,
        clock: Stopwatch,
        atoms: Mapping[str, int],
    ) -> Iterator[list[TaskResult]]:
        """Run rounds until all components are finished.

        Args:
            epoch: The epoch.
            ranges: Its records.
            run: Its state machine.
            clock: Measures the phases.
            atoms: The number of atoms of each stream before the epoch.

        Yields:
            The results of each round; the last results name the valid parts.

        Raises:
            Overflow: The outputs of several tasks are too large.
        """
        tasks = run.tasks
        outputs: list[tuple[int, int, str]] = []  # round, task, path
        flows = publish = False
        results: list[TaskResult] = []
        while (now := run.next_round()) is not None:
            publish = tasks == 1 or (now.number > 1 and not flows)
            results = self._jobs.run(
                [
                    RunTransactions(
                        epoch,
                        now.number,
                        task,
                        ranges,
                        None if tasks == 1 else pack_positions(positions),
                        tracked=tasks > 1,
                        keep=tasks > 1,
                        publish=publish,
                        outputs=_valid(outputs, task, run) if publish else [],
                        output_bytes_max=self._output_bytes_max // tasks,
                        atoms=dict(atoms),
                        with_steps=tasks == 1,
                    )
                    for task, positions in enumerate(now.tasks)
                ]
            )
            if tasks > 1 and first_not_run(results) is not None:
                raise Overflow
            write_ms = max(result.phases_ms.get("files", 0.0) for result in results)
            clock.lap(f"round{now.number}", write_ms=write_ms if publish else 0.0)
            self._fault.reached("after-round")
            run.absorb([result.access() for result in results])
            clock.lap("validate")
            outputs += [
                (now.number, task, result.output)
                for task, result in enumerate(results)
                if result.output
            ]
            flows = flows or any(result.flows for result in results)
            yield results
        if tasks > 1 and (flows or not publish):
            written = [] if publish else self._writing(epoch, ranges, run, outputs)
            steps: list[TaskCommand] = []
            if flows:
                every = [valid for task in range(tasks) for valid in _valid(outputs, task, run)]
                steps = [RunSteps(epoch, every, dict(atoms), self._output_bytes_max)]
            last = self._jobs.run([*written, *steps])
            if first_not_run(last) is not None:
                raise Overflow
            clock.lap("write")
            yield [*(results if publish else []), *last]

    @staticmethod
    def _writing(
        epoch: Epoch, ranges: list[LogRange], run: EpochRun, outputs: list[tuple[int, int, str]]
    ) -> list[TaskCommand]:
        """Return the commands that write the valid rows of all rounds into parts."""
        return [
            RunTransactions(
                epoch, run.rounds + 1, task, ranges, b"", tracked=False, keep=False, publish=True,
                outputs=_valid(outputs, task, run), output_bytes_max=0,
            )
            for task in range(run.tasks)
        ]  # fmt: skip


def _valid(outputs: list[tuple[int, int, str]], task: int, run: EpochRun) -> list[RoundOutput]:
    """Return a task's outputs, each with the positions that later rounds have run again."""
    return [
        RoundOutput(path, pack_positions(run.superseded(number)))
        for number, owner, path in outputs
        if owner == task
    ]
