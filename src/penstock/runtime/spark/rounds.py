"""The rounds of one epoch as Spark jobs: commands out, results in, until all components are finished.

An epoch of one task runs its workflow steps and publishes its rows at once; or a second task runs the workflow steps
at the same time (`run_overlapped`). Tasks of a larger epoch keep the rows of each round as round outputs, and the last
round writes the valid rows of all rounds into part files. If requests have published atoms, one more task then runs
the workflow steps of the whole epoch (`workflow_pass`).
"""

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from penstock.base.ids import Epoch
from penstock.engine.step import EpochRun, Round
from penstock.process.config import Config
from penstock.process.fault import Fault
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.messages import (
    LogRange,
    RoundOutput,
    RunShare,
    RunSteps,
    RunTransactions,
    TaskCommand,
    TaskResult,
    first_not_run,
    pack_positions,
)


class Stopwatch:
    """Splits an epoch into phases; the time since `before` is the phase `rest`."""

    def __init__(self, before: float) -> None:
        self._at = time.perf_counter()
        self.phases_ms = {"rest": (self._at - before) * 1e3}

    @property
    def total_s(self) -> float:
        """The seconds of all phases but `rest`."""
        return (sum(self.phases_ms.values()) - self.phases_ms["rest"]) / 1e3

    def lap(self, phase: str, write_ms: float = 0.0) -> None:
        """End a phase; count `write_ms` of it as the phase `write`."""
        now = time.perf_counter()
        spent = (now - self._at) * 1e3
        self.phases_ms[phase] = self.phases_ms.get(phase, 0.0) + spent - write_ms
        if write_ms:
            self.phases_ms["write"] = self.phases_ms.get("write", 0.0) + write_ms
        self._at = now


class Overflow(Exception):
    """The outputs of an epoch's tasks are larger than the limit of an epoch."""


class Rounds:
    """Runs the rounds of epochs."""

    def __init__(self, jobs: Jobs, fault: Fault, config: Config, scratch: Path) -> None:
        self._jobs = jobs
        self._fault = fault
        self._scratch = scratch
        self._relays = itertools.count()
        self._output_bytes_max = config.epoch_output_bytes_max
        self._large_atom = config.large_atom

    def run(
        self,
        epoch: Epoch,
        ranges: list[LogRange],
        run: EpochRun,
        clock: Stopwatch,
        atoms: Mapping[str, int],
        *,
        divided: bool = False,
    ) -> Iterator[list[TaskResult]]:
        """Run rounds until all components are finished.

        Args:
            atoms: The number of atoms of each stream before the epoch.

        Yields:
            The results of each round; the last results name the valid parts.

        Raises:
            Overflow: The outputs of several tasks are too large.
        """
        size, partitions = self._output_bytes_max, self._jobs.partitions
        plan = _EpochCommands(epoch, ranges, run, dict(atoms), size, partitions, divided)
        flows = publish = False
        largest = 0
        results: list[TaskResult] = []
        while (now := run.next_round()) is not None:
            publish = run.tasks == 1 or (now.number > 1 and not flows)
            results = self._jobs.run(plan.of_round(now, publish=publish))
            if run.tasks > 1 and first_not_run(results) is not None:
                raise Overflow
            write_ms = max(result.phases_ms.get("files", 0.0) for result in results)
            clock.lap(f"round{now.number}", write_ms=write_ms if publish else 0.0)
            self._fault.reached("after-round")
            run.absorb([result.access() for result in results])
            clock.lap("validate")
            plan.add_outputs(now.number, results)
            flows = flows or any(result.flows for result in results)
            largest = max(largest, *(result.largest for result in results))
            yield results
        shares = self._shares(plan) if flows and 0 < self._large_atom <= largest else []
        rest = [*([] if publish else plan.writing()), *([plan.steps(shares)] if flows else [])]
        if rest:
            last = self._jobs.run(rest)
            if first_not_run(last) is not None:
                raise Overflow
            clock.lap("write")
            yield [*(results if publish else []), *last]

    def _shares(self, plan: "_EpochCommands") -> list[str]:
        """Run the divided tasks of large atoms, and return the files of their results."""
        if plan.partitions == 1:
            return []
        shares = self._jobs.run(plan.shares())
        self._fault.reached("after-shares")
        return [share.output for share in shares]

    def run_overlapped(
        self,
        epoch: Epoch,
        ranges: list[LogRange],
        run: EpochRun,
        clock: Stopwatch,
        atoms: Mapping[str, int],
    ) -> list[TaskResult]:
        """Run the requests of an epoch in one task, and its workflow steps in another one at the same time.

        Args:
            atoms: The number of atoms of each stream before the epoch.

        Returns:
            The results of both tasks; they name the valid parts.

        Raises:
            Overflow: The outputs of the workflow steps are too large.
        """
        now, size = run.next_round(), self._output_bytes_max // 2
        assert now is not None, "the epoch has not run"
        relay = str(self._scratch / f"e{epoch}-relay{next(self._relays)}")
        plan = _EpochCommands(epoch, ranges, run, dict(atoms), size, self._jobs.partitions)
        (whole,) = plan.of_round(now, publish=True)
        requests = msgspec.structs.replace(whole, with_steps=False, relay=relay)
        steps = RunSteps(epoch, [], plan.atoms, size, plan.partitions, relay)
        ran, stepped = self._jobs.run_overlapped(requests, steps)
        if stepped.stopped_at is None and stepped.relay != ran.relay:  # an attempt has died
            (stepped,) = self._jobs.run([msgspec.structs.replace(steps, relay=ran.relay)])
        if stepped.stopped_at is not None:
            raise Overflow
        write_ms = max(result.phases_ms.get("files", 0.0) for result in (ran, stepped))
        clock.lap("round1", write_ms=write_ms)
        self._fault.reached("after-round")
        return [ran, stepped]


@dataclass(slots=True)
class _EpochCommands:
    """The commands of one epoch.

    Attributes:
        atoms: The number of atoms of each stream before the epoch.
        output_bytes_max: The most bytes of the outputs of all tasks.
        partitions: The number of stores.
        divided: Whether the workflow steps of a single task run after all requests.
        outputs: The round, the task and the path of each round output.
    """

    epoch: Epoch
    ranges: list[LogRange]
    run: EpochRun
    atoms: dict[str, int]
    output_bytes_max: int
    partitions: int
    divided: bool = False
    outputs: list[tuple[int, int, str]] = field(default_factory=list)

    def add_outputs(self, number: int, results: list[TaskResult]) -> None:
        """Add the outputs of a round."""
        self.outputs += [
            (number, task, result.output) for task, result in enumerate(results) if result.output
        ]

    def of_round(self, now: Round, *, publish: bool) -> list[RunTransactions]:
        """Return the commands of a round; with `publish` they also write the valid rows of all rounds into parts."""
        tasks = self.run.tasks
        return [
            RunTransactions(
                self.epoch,
                now.number,
                task,
                self.ranges,
                None if tasks == 1 else pack_positions(positions),
                tracked=tasks > 1,
                keep=tasks > 1 or self.divided,
                publish=publish,
                outputs=self._valid(task) if publish else [],
                output_bytes_max=self.output_bytes_max // tasks,
                atoms=self.atoms if tasks == 1 else {},
                with_steps=tasks == 1 and not self.divided,
                partitions=self.partitions,
            )
            for task, positions in enumerate(now.tasks)
        ]

    def shares(self) -> list[TaskCommand]:
        """Return the commands that run the divided tasks of large atoms."""
        count, size = self.partitions, self.output_bytes_max // self.partitions
        outputs = self._all_valid()
        return [RunShare(self.epoch, outputs, share, count, size, count) for share in range(count)]

    def writing(self) -> list[TaskCommand]:
        """Return the commands that write the valid rows of all rounds into parts."""
        return [
            RunTransactions(
                self.epoch, self.run.rounds + 1, task, self.ranges, b"", tracked=False, keep=False,
                publish=True, outputs=self._valid(task), output_bytes_max=0,
                partitions=self.partitions,
            )
            for task in range(self.run.tasks)
        ]  # fmt: skip

    def steps(self, shares: list[str]) -> TaskCommand:
        """Return the command that runs the workflow steps."""
        size = self.output_bytes_max
        return RunSteps(
            self.epoch, self._all_valid(), self.atoms, size, self.partitions, shares=shares
        )

    def _all_valid(self) -> list[RoundOutput]:
        return [valid for task in range(self.run.tasks) for valid in self._valid(task)]

    def _valid(self, task: int) -> list[RoundOutput]:
        """Return a task's outputs, each with the positions that later rounds have run again."""
        return [
            RoundOutput(path, pack_positions(self.run.superseded(number)))
            for number, owner, path in self.outputs
            if owner == task
        ]
