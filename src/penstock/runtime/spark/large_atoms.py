"""Large atoms in a worker: the handlers of a share of their keys, between the requests of an epoch and its workflow steps.

The shares run the first records of an epoch, as far as these are appends to the same stream. Then a single task does the
rest with the results of the shares. `engine.streams.key_shares` says why the outcome is the same.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.engine.streams.cascade import Cascade
from penstock.engine.streams.cascade_runner import CascadeRunner
from penstock.engine.streams.derived_ids import MARK, step_id
from penstock.engine.streams.key_shares import (
    KeyShare,
    SharedTurns,
    encode_shares,
    is_divided,
)
from penstock.engine.streams.workflow_step import WorkflowStep
from penstock.engine.task import Task
from penstock.errors import RequestError
from penstock.log.api import Record
from penstock.model.request import decode_request, is_cancelled
from penstock.model.streams.flow import Workflow
from penstock.model.streams.stream import Atom
from penstock.model.streams.topology import Topology
from penstock.model.streams.workflow_plan import WorkflowPlan
from penstock.process.fault import Fault
from penstock.runtime.spark.quarantine import Quarantine
from penstock.runtime.spark.step_relay import ProcessedRecord


def run_share(  # noqa: PLR0913 -- a run has these
    task: Task,
    works: Iterable[ProcessedRecord],
    share: KeyShare,
    quarantine: Quarantine,
    fault: Fault,
    cascade_steps: int,
    output_bytes_max: int,
) -> None:
    """Run the handlers of a share, for the first records that are appends to one stream.

    Args:
        share: The share, which takes the results.
        output_bytes_max: The bytes after which the run ends.
    """
    assert task.cascades is not None, "the application has streams"
    topology = task.cascades.topology
    first: str | None = None
    for work in works:
        stream = None if work.failure else _stream_of(topology, work.record)
        first = first or stream
        if stream is None or stream != first or not is_divided(topology, stream, cascade_steps):
            return
        quarantine.now[0] = work.position
        fault.reached("in-share")
        size = _run_steps(task.cascades, work.cascade, share)
        if size is None or (output_bytes_max := output_bytes_max - size) < 0:
            return


def _run_steps(runner: CascadeRunner, cascade: Cascade, share: KeyShare) -> int | None:
    """Run a share of the handlers that take the atom of an append.

    Returns:
        The bytes of its results; None if a single task must run the record.
    """
    topology, size = runner.topology, 0
    for atom in cascade.published:
        takers = topology.subscribers.get(atom.stream, ())
        for cascade.taken, taker in enumerate(takers, 1):
            if not isinstance(taker, Workflow):
                continue
            plan = topology.workflows[taker.flow_name]
            _, outcome = runner.step_runner.run(cascade, plan, _taking(share, plan, atom.events))
            if outcome.error is not None:
                return None
            size += share.end_step(step_id(cascade.root, cascade.taken), outcome.writes)
    return size


def _taking(share: KeyShare, plan: WorkflowPlan, atom: Atom) -> Callable[[WorkflowStep], None]:
    """Return a function that takes a share of an atom, with as many frames as for a whole atom."""
    return lambda step: share.take(step, plan, atom)


def _stream_of(topology: Topology, record: Record) -> str | None:
    """Return the stream of an append; None for other records."""
    if is_cancelled(record.body) or MARK in record.request_id:
        return None
    try:
        stream = decode_request(record.body).stream
    except RequestError:
        return None
    return stream if stream in topology.streams else None


def use_shares(runner: CascadeRunner, turns: SharedTurns) -> None:
    """Let the steps of an epoch take the turns of all shares."""
    runner.taking, runner.on_failure = turns.taking, turns.drop


def write_share(share: KeyShare, path: Path) -> None:
    """Write the file of a share."""
    path.write_bytes(share_of(share))


def share_of(share: KeyShare) -> bytes:
    """Return the content of the file of a share."""
    return encode_shares(share.steps)
