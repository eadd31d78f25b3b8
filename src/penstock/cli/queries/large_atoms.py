"""Which tasks the setting `large_atom` divides, for `penstock explain`."""

from collections.abc import Iterator
from typing import Final

import msgspec

from penstock.engine.streams.key_shares import (
    divided_tasks,
    obstacle,
    subscribed,
    undivided_because,
)
from penstock.model.application import App
from penstock.model.streams.workflow_plan import WorkflowPlan
from penstock.process.config import Config

_BEHIND: Final = "a task before it is not divided"


class DividedTask(msgspec.Struct, frozen=True):
    """A task that takes events of a large atom.

    Attributes:
        task: The workflow and the task: `count.Tally`.
        obstacle: Why it is not divided; empty if it is.
    """

    task: str
    obstacle: str


class DividedStream(msgspec.Struct, frozen=True):
    """A stream that takes appends.

    Attributes:
        stream: The name.
        obstacle: Why none of its tasks is divided; empty if each task has its own answer.
        tasks: The tasks of its workflows; empty with an obstacle.
    """

    stream: str
    obstacle: str
    tasks: list[DividedTask]


class LargeAtoms(msgspec.Struct, frozen=True):
    """The division of large atoms, as `--json` prints it. Keys are stable.

    Attributes:
        events: The least events of a large atom.
        streams: The streams that take appends and have a workflow.
    """

    events: int
    streams: list[DividedStream]

    def lines(self) -> Iterator[str]:
        """Yield the lines for people."""
        yield f"large atoms, with {self.events:,} events or more"
        for stream in self.streams:
            why = f"  not divided: {stream.obstacle}" if stream.obstacle else ""
            yield f"  stream {stream.stream}{why}"
            for task in stream.tasks:
                division = f"not divided: {task.obstacle}" if task.obstacle else "divided by key"
                yield f"    task {task.task}  {division}"


def large_atoms_of(app: App, settings: Config) -> LargeAtoms:
    """Return which tasks of an application are divided under its settings."""
    topology = app.topology
    streams = []
    for name, stream in topology.streams.items():
        plans = subscribed(topology, name)
        if not stream.is_open or not plans:
            continue
        reason = undivided_because(topology, name, settings.limits.cascade_steps)
        tasks = [] if reason else [task for plan in plans for task in _tasks(plan)]
        streams.append(DividedStream(name, reason, tasks))
    return LargeAtoms(settings.large_atom, streams)


def _tasks(plan: WorkflowPlan) -> Iterator[DividedTask]:
    divided = len(divided_tasks(plan))
    for index, task in enumerate(plan.tasks):
        reason = "" if index < divided else obstacle(plan, task) or _BEHIND
        yield DividedTask(task.name, reason)
