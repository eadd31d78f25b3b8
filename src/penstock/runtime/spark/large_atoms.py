"""Large atoms in a worker: the handlers of a share of their keys, between the requests of an epoch and its workflow steps.

The shares run the first records of an epoch, as far as these are appends to the same stream. Then a single task does the
rest with the results of the shares. `engine.streams.key_shares` says why the outcome is the same.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.engine.streams.derived_ids import MARK
from penstock.engine.streams.key_shares import (
    KeyShare,
    SharedTurns,
    decode_shares,
    encode_shares,
    is_divided,
)
from penstock.engine.task import Task
from penstock.errors import RequestError
from penstock.log.api import Record
from penstock.model.request import decode_request, is_cancelled
from penstock.model.streams.topology import Topology
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
    topology, runner = task.cascades.topology, task.cascades.step_runner
    first: str | None = None
    for work in works:
        stream = None if work.failure else _stream_of(topology, work.record)
        first = first or stream
        if stream is None or stream != first or not is_divided(topology, stream, cascade_steps):
            return
        quarantine.now[0] = work.position
        fault.reached("in-share")
        size = runner.run_share(work.cascade, share)
        if size is None or (output_bytes_max := output_bytes_max - size) < 0:
            return


def _stream_of(topology: Topology, record: Record) -> str | None:
    """Return the stream of an append; None for other records."""
    if is_cancelled(record.body) or MARK in record.request_id:
        return None
    try:
        stream = decode_request(record.body).stream
    except RequestError:
        return None
    return stream if stream in topology.streams else None


def read_shares(paths: Sequence[str]) -> SharedTurns:
    """Read the files of all shares."""
    return SharedTurns([decode_shares(Path(path).read_bytes()) for path in paths])


def write_share(share: KeyShare, path: Path) -> None:
    """Write the file of a share."""
    path.write_bytes(encode_shares(share.steps))
