"""Orphans: files that an attempt wrote and no commit lists.

A file is removed only if no commit can list it any more, because its epoch has a commit already.
Files of later epochs, files with other names, and files of epochs that lie in segments (`compaction`
removes those) stay.
"""

import re
from pathlib import Path
from typing import Final

from penstock.base.ids import Epoch
from penstock.journal import action
from penstock.journal.api import PartKind
from penstock.journal.commits import CommitLog
from penstock.journal.parquet import epoch_of

_UNFINISHED: Final = re.compile(r"\.(\d{20})\.json\.[0-9a-f]+\.tmp")


def remove_orphans(root: Path, commits: CommitLog, after: Epoch) -> int:
    """Remove the orphans of the epochs in (after, newest]; return how many parts there were.

    Raises:
        OSError: The disk fails.
    """
    newest = commits.newest()
    paths_by_epoch: dict[Epoch, list[str]] = {}
    for kind in PartKind:
        for file in (root / f"kind={kind}").iterdir():
            path = f"kind={kind}/{file.name}"
            epoch = epoch_of(path)
            if epoch is not None and after < epoch <= newest:
                paths_by_epoch.setdefault(epoch, []).append(path)
    removed = 0
    for epoch, paths in paths_by_epoch.items():
        listed = {part.path for part in commits.get(epoch).parts}
        for path in paths:
            if path not in listed:
                (root / path).unlink(missing_ok=True)
                removed += 1
    _sweep_unfinished(commits.directory, newest)
    return removed


def _sweep_unfinished(directory: Path, newest: Epoch) -> None:
    for file in directory.glob(".*.tmp"):
        name = _UNFINISHED.fullmatch(file.name)
        if name is not None and int(name[1]) <= action.version_of(newest):
            file.unlink(missing_ok=True)
