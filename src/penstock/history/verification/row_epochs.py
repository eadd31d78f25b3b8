"""The check that rows lie in the epochs whose parts contain them."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.history.verification.finding import Finding, unrecoverable
from penstock.journal.api import Commit, PartKind


def misplaced(
    rows: pa.Table, part_kind: PartKind, commits: Sequence[Commit], where: str
) -> Iterator[Finding]:
    """Compare the epochs of rows with the epochs whose parts contain them.

    Args:
        rows: The rows of `commits`, in their order, with a column `epoch`.
        where: The file to name in a finding.
    """
    counts = [sum(part.rows for part in commit.parts_of(part_kind)) for commit in commits]
    expected = np.repeat([commit.epoch for commit in commits], counts)
    if not np.array_equal(rows["epoch"].to_numpy(), expected):
        yield unrecoverable(
            f"rows of {part_kind} have other epochs than the parts that contain them", where
        )
