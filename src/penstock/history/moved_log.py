"""The embedded log of an application whose shared root is in an object store begins on a host, or moves to another.

A log that moves is made from the journal: it knows the ids of the processed requests, so that a repeated request has no
second effect, and it has the requests that cascades have sent and that wait. It lacks the requests that only the former log had: those that were
acknowledged and not processed, and scheduled requests of callers. So a log moves by itself only if the former one was stopped with
nothing of that kind.

The former host may still be alive. An empty epoch comes first, which fences its driver. The positions of the new
log begin far behind all that the former one may have given, so its gateways never take the reply to another request for one of theirs.
"""

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from penstock.base.ids import ONLY_PARTITION, Epoch, Lsn
from penstock.errors import ConfigError, Fenced, OperationalError
from penstock.files.layout import LOG
from penstock.files.roots import has_journal, shared_root
from penstock.history.branch import append_open, open_records
from penstock.journal.api import Commit, Journal, PartKind
from penstock.log import copy_prefix as logs
from penstock.log.clock import wall_clock_us
from penstock.log.database import identity_of
from penstock.process import log_host
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory

_log = logging.getLogger(__name__)

APART: Final = 1_000_000_000
"""The positions of a new log begin at a multiple of it, at least this far behind those of the journal."""
_COLUMNS: Final = ("lsn", "request_id", "request", "time_us")


def begin_log(config: Config, *, abandons: bool) -> None:
    """Let the log of an application be on this host, before its processes start; nothing if its data are a directory.

    Args:
        abandons: Whether the requests that only the log of another host has may be lost.

    Raises:
        ConfigError: The log is on another host, which may have acknowledged requests that are not processed; or that host runs
            the application.
    """
    data = config.data
    directory = DataDirectory(data)
    if not directory.shared.is_far or directory.has_log_in_kafka(config):
        if abandons:
            raise ConfigError(
                f"--abandon-log: the log of {shared_root(data)} is not lost with a host"
            )
        return
    place = log_host.host_of_log(data)
    identity = identity_of(data / LOG)
    if identity is not None and (place is None or place.identity == identity):
        log_host.settle(data, is_settled=False)
        return
    if place is not None and not (place.is_settled or abandons):
        raise log_host.elsewhere(data, place)
    directory.create()
    if identity is not None:
        _put_aside(data, identity)
    if has_journal(data):
        _continue(directory, config)
    else:
        directory.create_log()
    log_host.take(data, place)
    _log.info("the log begins here", extra={"former": str(place or "none")})


def end_log(data: Path) -> None:
    """Note that the application was stopped, and whether its log may move; nothing if its data are a directory."""
    directory = DataDirectory(data)
    if not directory.shared.is_far:
        return
    try:
        if not directory.has_log_in_kafka(None) and _is_settled(directory):
            log_host.settle(data, is_settled=True)
    except (OperationalError, OSError, ConfigError) as error:
        _log.warning("the log stays with this host: %s", error)


def _is_settled(directory: DataDirectory) -> bool:
    """Say whether the log has nothing that the journal lacks."""
    app = directory.app_name
    if app is None:
        return False
    with closing(directory.open_journal_of(app)) as journal, closing(directory.open_log()) as log:
        last = journal.last()
        reached = Lsn(0) if last is None else last.positions.get(ONLY_PARTITION, Lsn(0))
        if log.end() != reached:
            return False
        scheduled = {
            each.request_id for each in logs.requests_after(directory.log_path, reached, 0)
        }
        # Those that cascades have sent are in the journal.
        return not scheduled or (
            last is not None
            and scheduled <= {each.request_id for each in open_records(journal, last)}
        )


def _put_aside(data: Path, identity: str) -> None:
    """Keep a log that is not the application's any more under another name: it may have acknowledged requests."""
    for path in list(data.glob(f"{LOG}*")):
        path.rename(path.with_name(f"former-{identity}-{path.name}"))


def _continue(directory: DataDirectory, config: Config) -> None:
    """Make a log that goes on behind the journal, and fence the driver of the former one."""
    app = directory.app_name
    assert app is not None, "there is a journal"
    with closing(directory.open_journal_of(app)) as journal:
        last = journal.last()
        if last is None:
            directory.create_log()
            return
        reached = last.positions.get(ONLY_PARTITION, Lsn(0))
        start = Lsn((reached // APART + 2) * APART)
        since_us = wall_clock_us() - config.retention_s * 1_000_000
        logs.begin_at(directory.log_path, start, _processed(journal, last, since_us))
        records = open_records(journal, last)
        try:
            journal.commit(
                Commit(
                    Epoch(last.epoch + 1),
                    {**last.positions, ONLY_PARTITION: start},
                    (),
                    max(wall_clock_us(), last.time_us),
                    dict(last.atoms),
                    last.partitions,
                    deployment=last.deployment,
                )
            )
        except Fenced as error:
            raise ConfigError(
                f"another host runs the application in {shared_root(directory.path)} now; stop it there first"
            ) from error
    with closing(directory.new_log()) as log:
        append_open(log, records)


def _processed(
    journal: Journal, last: Commit, since_us: int
) -> Iterator[list[logs.ProcessedRequest]]:
    """Yield the requests of each epoch since a time."""
    before = Epoch(journal.first() - 1)
    for _, table in journal.rows(PartKind.TRANSACTIONS, before, last.epoch, _COLUMNS):
        rows = table.sort_by([("lsn", "ascending")]).to_pylist()
        yield [
            logs.ProcessedRequest(row["lsn"], row["request_id"], row["request"], row["time_us"])
            for row in rows
            if row["time_us"] >= since_us
        ]
