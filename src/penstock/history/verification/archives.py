"""Checks of the deployments: the source archive of each deployment that ran a held epoch is undamaged."""

from collections.abc import Iterator
from pathlib import Path

from penstock.base.ids import Epoch
from penstock.deployment.archives import Archives
from penstock.errors import Corrupt
from penstock.files.layout import ARCHIVES, JOURNAL
from penstock.history.verification.finding import Finding, unrecoverable
from penstock.journal.deployments import NAME, Deployments, needed_archives


def check_archives(data: Path, first: Epoch) -> Iterator[Finding]:
    """Check the file of deployments, and the archives of the code that ran epochs from `first` on."""
    try:
        every = Deployments(data / JOURNAL).every()
    except Corrupt as error:
        yield unrecoverable(str(error), f"{JOURNAL}/{NAME}")
        return
    archives = Archives(data)
    for name in sorted(needed_archives(every, first)):
        try:
            archives.read(name)
        except Corrupt as error:
            yield unrecoverable(str(error), f"{ARCHIVES}/{archives.path_of(name).name}")
