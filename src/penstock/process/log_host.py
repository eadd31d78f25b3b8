"""The host of the embedded log of an application whose shared root is in an object store.

The log is a file of one host, and acknowledged requests are only there until their epoch is committed. So the shared
root says which file it is: `log-host.json`. A process on another host, or with another file, appends nothing, and
says where the log is. `history.moved_log` lets it move.
"""

import socket
from pathlib import Path

import msgspec

from penstock.errors import ConfigError, Corrupt
from penstock.files import shared_file
from penstock.files.layout import LOG, LOG_HOST
from penstock.files.roots import has_journal, shared_root
from penstock.files.sealed import seal, unseal
from penstock.log.clock import wall_clock_us
from penstock.log.database import identity_of

_FIELD = "log"


class LogHost(msgspec.Struct, frozen=True):
    """Where the log is.

    Attributes:
        identity: Which file it is; drawn when the file was made.
        host: The name of the host.
        folder: The data directory there.
        since_us: The time since which it is there, microseconds since the Unix epoch.
        is_settled: Whether it holds nothing that the journal lacks: the application was stopped, and no request waited.
    """

    identity: str
    host: str
    folder: str
    since_us: int
    is_settled: bool = False

    def __str__(self) -> str:
        return f"{self.folder} on {self.host}"


def host_of_log(data: Path) -> LogHost | None:
    """Return where the log is; None before the first start.

    Raises:
        Corrupt: The file is damaged.
        OperationalError: It cannot be read.
    """
    return shared_file.read(shared_root(data), LOG_HOST, _decoded)


def check_here(data: Path) -> None:
    """Refuse to open a log that is not the application's.

    Raises:
        ConfigError: The log is elsewhere, or the application has a history and no log yet.
    """
    place = host_of_log(data)
    if place is not None and place.identity != identity_of(data / LOG):
        raise elsewhere(data, place)
    if place is None and has_journal(data) and not (data / LOG).exists():
        raise ConfigError(
            f"the application in {shared_root(data)} has no log yet; penstock run begins one"
        )


def elsewhere(data: Path, place: LogHost) -> ConfigError:
    """Return the error of a process whose host does not have the log."""
    return ConfigError(
        f"the log of the application in {shared_root(data)} is {place}, so requests are taken there only; "
        "run the command there, or stop the application there and run it here; if that host is lost, "
        "penstock run --abandon-log begins another log here, and the requests that only the lost one has are lost"
    )


def settle(data: Path, *, is_settled: bool) -> None:
    """Note whether the log, which is here, holds nothing that the journal lacks.

    Raises:
        ConfigError: The log is not here any more.
    """

    def edit(place: LogHost | None) -> tuple[bytes | None, None]:
        identity = identity_of(data / LOG)
        if place is None or place.identity == identity:
            if place is not None and place.is_settled == is_settled:
                return None, None
            return _encoded(_here(data, is_settled=is_settled)), None
        raise elsewhere(data, place)

    shared_file.change(data, LOG_HOST, _decoded, edit)


def take(data: Path, former: LogHost | None) -> None:
    """Note that the log is here now.

    Args:
        former: Where it was.

    Raises:
        ConfigError: Another host was faster.
    """

    def edit(place: LogHost | None) -> tuple[bytes, None]:
        if place != former and place is not None:
            raise elsewhere(data, place)
        return _encoded(_here(data, is_settled=False)), None

    shared_file.change(data, LOG_HOST, _decoded, edit)


def _here(data: Path, *, is_settled: bool) -> LogHost:
    identity = identity_of(data / LOG)
    assert identity is not None, "the log was opened before"
    folder = str(data.absolute())
    return LogHost(identity, socket.gethostname(), folder, wall_clock_us(), is_settled)


def _encoded(place: LogHost) -> bytes:
    return seal(_FIELD, place)


def _decoded(content: bytes | None) -> LogHost | None:
    try:
        return None if content is None else unseal(_FIELD, content, LogHost)
    except ValueError as error:
        raise Corrupt(
            f"the content {error}; it names the host that has the log; stop the application there, remove the file, and "
            "start the application there"
        ) from error
