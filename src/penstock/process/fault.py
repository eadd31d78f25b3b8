"""One switch that kills this process at a named step; off by default, for tests and demonstrations.

`Config.fault` is `step@count`: at the `count`-th time that a process reaches `step`, it dies as by
`kill -9`. Nothing else in the code knows of faults.
"""

import os
import signal
from typing import Final

STEPS: Final = (
    "offsets-planned",  # driver: Spark has written the batch's offsets, nothing ran yet
    "log-read",  # driver: hints read, tasks spread
    "in-round",  # worker: in the middle of a round's transactions
    "after-round",  # driver: a round is over and not validated
    "between-parts",  # worker: its part files are written, once for each, and the driver does not know of them
    "before-commit",  # driver: all parts are written
    "after-commit",  # driver: the Delta commit is durable, no reader has seen it
    "before-spark-commit",  # driver: the epoch is over, Spark's commit log is not written
    "in-apply",  # worker: local state is about to be caught up
)
"""Every step, in the order of an epoch."""

STREAM_STEPS: Final = (
    "in-steps",  # worker: the workflow steps of a record are about to run
    "later-appended",  # driver: the log has the records that the cascades of the epoch append
)
"""Every step that only an application with streams has, in the order of an epoch."""

LARGE_ATOM_STEPS: Final = (
    "in-share",  # worker: a share of the keys of a large atom is about to run
    "after-shares",  # driver: all shares have run, nothing else has
)
"""Every further step of an epoch that begins with a large atom, in order."""

CONTROL_STEPS: Final = (
    "control-prepared",  # driver: what the record changes is written, its epoch is not committed
    "control-committed",  # driver: the epoch is committed, and nothing has switched yet
    "control-switched",  # driver: the next epoch will see the change
)
"""Every further step of an epoch that is a control record, in order."""

MAINTENANCE_STEPS: Final = (
    "snapshot-slice",  # a slice's files are written
    "snapshot-written",  # all are
    "snapshot-published",  # the Delta tables list them, the manifest does not exist yet
    "snapshot-listed",  # the snapshot exists, superseded files are still there
    "snapshot-cleaned",
    "segment-written",  # the files of a segment are written, its index is not
    "segment-indexed",  # the segment counts, the replaced files are still there
    "segment-condensed",  # other Delta readers know of it
    "segment-reclaimed",  # the replaced files are gone
    "floor-raised",  # the oldest epochs may go
    "floor-condensed",  # other Delta readers do not look for them any more
    "floor-removed",  # they are gone
    "snapshots-thinned",
    "log-truncated",
)
"""Every step of maintenance (`retention.maintenance`), in order."""

COPYING_STEPS: Final = (
    "backup-file-copied",  # a file of the backup is whole
    "backup-log-copied",  # all of the journal and a copy of the log are there
    "backup-before-manifest",  # every file is there
    "backup-after-manifest",  # the backup exists
    "backup-dropped",  # the manifest of an older one is gone, its files are still there
    "restore-file-copied",  # a file of the new directory is whole
    "restore-before-rename",  # the new directory is whole, under another name
    "restore-after-rename",  # it is there
    "fork-file-linked",  # a file of the new directory has its second name
    "fork-log-copied",  # all of them have, and the log is copied
    "fork-before-rename",  # as for a restored one
    "fork-after-rename",
    "store-copied",  # a copy is in an object store, without the first file of its journal
    "store-renamed",  # its folder is on this host, too
)
"""Every step of backing up, restoring and forking, in order."""


class Fault:
    """Counts how often each step was reached."""

    def __init__(self, setting: str) -> None:
        """Read `step@count`; an empty setting switches everything off."""
        self._step, _, count = setting.partition("@")
        self._left = int(count or 1)

    def reached(self, step: str) -> None:
        """Die here, if this is the step and the time."""
        if step != self._step:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
