"""Large atoms in a worker: which records have one, and the handlers of a share of their keys.

An epoch that begins with a large atom runs in shares, as far as its records are appends to the same stream. Then a single
task does the rest of the epoch with the results of the shares. `engine.streams.key_shares` says why the outcome is the
same.
"""

from collections.abc import Sequence
from pathlib import Path

from penstock.engine.limits import Limits
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
from penstock.model.application import App
from penstock.model.request import decode_request, event_count, is_cancelled
from penstock.process.fault import Fault
from penstock.process.guard import Guard
from penstock.runtime.spark.epoch_records import Records
from penstock.runtime.spark.messages import RunTransactions
from penstock.runtime.spark.quarantine import Quarantine


class LargeAtoms:
    """The large atoms of an application."""

    def __init__(self, app: App, limits: Limits, fault: Fault) -> None:
        self._app = app
        self._limits = limits
        self._fault = fault

    def ends_run(
        self, command: RunTransactions, position: int, record: Record, shared: SharedTurns | None
    ) -> bool:
        """Say whether a run ends before a record: it has a large atom, or the shares end here.

        Args:
            shared: The turns of the shares; None without shares.
        """
        if shared is not None:
            return position == command.shared or shared.is_void
        least = command.large_atom
        if not least or len(record.body) < least or position < command.divided_from:
            return False
        is_append = self._divided_stream(record) is not None
        return is_append and event_count(decode_request(record.body)) >= least

    def run_share(
        self,
        task: Task,
        records: Records,
        share: KeyShare,
        quarantine: Quarantine,
        output_bytes_max: int,
    ) -> int | None:
        """Run the handlers of a share, for the first records that are appends to one stream.

        Args:
            share: The share, which takes the results.
            quarantine: Takes notes. After a death of the worker nothing runs here, so a single task finds the cause.
            output_bytes_max: The bytes after which the run ends.

        Returns:
            The first record that did not run; None if all ran.
        """
        if quarantine.careful:
            return 0
        assert task.cascades is not None, "the application has streams"
        stream = self._divided_stream(records[0][1])
        left = output_bytes_max
        note_due = quarantine.note_due
        with Guard(task.executor, self._limits, batched=True, note_due=note_due) as guard:
            for position in guard.each(range(len(records))):
                _, record = records[position]
                if left < 0 or self._divided_stream(record) != stream:
                    return position
                quarantine.now[0] = position
                self._fault.reached("in-share")
                task.run(position, record.request_id, record.body, record.time_us)
                if task.cascade is not None:
                    size = task.cascades.step_runner.run_share(task.cascade, share)
                    if size is None:
                        return position
                    left -= size
        return None

    def _divided_stream(self, record: Record) -> str | None:
        """Return the stream of an append, if its large atoms are divided."""
        if is_cancelled(record.body) or MARK in record.request_id:
            return None
        try:
            stream = decode_request(record.body).stream
        except RequestError:
            return None
        topology = self._app.topology
        if stream is None or stream not in topology.streams:
            return None
        return stream if is_divided(topology, stream, self._limits.cascade_steps) else None


def read_shares(paths: Sequence[str]) -> SharedTurns | None:
    """Read the files of all shares; None without any."""
    return (
        SharedTurns([decode_shares(Path(path).read_bytes()) for path in paths]) if paths else None
    )


def write_share(share: KeyShare, path: Path) -> None:
    """Write the file of a share."""
    path.write_bytes(encode_shares(share.steps))
