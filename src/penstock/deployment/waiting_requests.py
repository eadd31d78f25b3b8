"""The requests in the log that a deployment makes unfit: the present code accepts them, and the new code does not.

They are no reason to refuse the deployment: such a request fails when its turn comes, and its message says why.
`penstock deploy` names them, with and without `--check`.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

from penstock.base.ids import ONLY_PARTITION, Lsn
from penstock.engine.request_text import call_text, rejection_of
from penstock.files.layout import LOG
from penstock.journal.api import Journal
from penstock.log import copy_prefix as logs
from penstock.model.application import App

SHOWN_MAX: Final = 20
"""How many of the requests are named; the others are counted."""

LOOKED_MAX: Final = 200_000
"""How many waiting requests are looked at: they bound the time of a deployment."""


def unfit_requests(
    data: Path, journal: Journal, deployed: Callable[[], App | None], present: App
) -> Iterator[str]:
    """Yield a sentence for each waiting or scheduled request that the deployed code accepts, and the new code does not.

    Args:
        deployed: Returns the application that would process them without the deployment; None if there is none. It is
            called once, for the first request that does not fit.
        present: The application that would process them after it.
    """
    if not (data / LOG).exists():
        return
    last = journal.last()
    processed = Lsn(0) if last is None else last.positions.get(ONLY_PARTITION, Lsn(0))
    time_us = 0 if last is None else last.time_us
    count, former = 0, cache(deployed)
    waiting = logs.requests_after(data / LOG, processed, time_us)
    for entry in islice(waiting, LOOKED_MAX):
        rejection = rejection_of(present, entry.body)
        if not rejection or _rejects(former(), entry.body):
            continue
        count += 1
        if count <= SHOWN_MAX:
            yield f"request {entry.request_id}, {call_text(entry.body)}, waits and would fail: {rejection}"
    if count > SHOWN_MAX:
        yield f"{count - SHOWN_MAX:,} more waiting requests would fail"
    if next(waiting, None) is not None:
        yield f"more than {LOOKED_MAX:,} requests wait, and only the first of them were looked at"


def _rejects(app: App | None, body: bytes) -> bool:
    return app is not None and bool(rejection_of(app, body))
