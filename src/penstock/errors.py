"""Every error that Penstock raises, grouped by who must act.

`UserError`: the caller or the developer must change something; retrying is pointless.
`OperationalError`: the surroundings failed; retrying the same request is safe.
`IntegrityError`: data is damaged or two truths disagree; Penstock stops and says so.

Each class has a stable `code`, which is what travels in replies; messages may change.
"""

from collections.abc import Sequence
from typing import ClassVar, Final


class PenstockError(Exception):
    """Root of the tree. `code` is stable across versions; the message is for people.

    Attributes:
        kind: In a reply, the name of the exception class that left the handler.
    """

    code: ClassVar[str] = "penstock"
    kind: str = ""


class UserError(PenstockError):
    """The application or the request is wrong; never retried."""

    code: ClassVar[str] = "user"


class DefinitionError(UserError):
    """An application is defined wrongly; carries every complaint found, each with file and line."""

    code: ClassVar[str] = "definition"

    def __init__(self, complaints: Sequence[str]) -> None:
        self.complaints = tuple(complaints)
        count = len(self.complaints)
        noun = "complaint" if count == 1 else "complaints"
        super().__init__(f"{count} {noun}:\n" + "\n".join(f"  {one}" for one in self.complaints))


class ConfigError(UserError):
    """A setting has a value that cannot be used."""

    code: ClassVar[str] = "config"


class ClassChanged(UserError):
    """An entity class is declared differently from how its entities are stored; says how."""

    code: ClassVar[str] = "class-changed"


class RequestError(UserError):
    """A request names something that does not exist, or its arguments do not fit."""

    code: ClassVar[str] = "request"


class Unauthenticated(UserError):
    """Nobody knows who asks: credentials are missing, wrong or expired."""

    code: ClassVar[str] = "unauthenticated"


class Forbidden(UserError):
    """Who asks may not do that; the message names the scope that it takes."""

    code: ClassVar[str] = "forbidden"


class QueryError(UserError):
    """A query is wrong, asks for what it may not, or for more than it may."""

    code: ClassVar[str] = "query"


class RequestConflict(UserError):
    """A request id was used before, with another body."""

    code: ClassVar[str] = "request-conflict"


class RecordTooLarge(UserError):
    """A record exceeds the log's size limit."""

    code: ClassVar[str] = "record-too-large"


class OutsideTransaction(UserError):
    """An entity was read, written or called where no transaction runs."""

    code: ClassVar[str] = "outside-transaction"


class Aborted(UserError):
    """A transaction was undone; nothing of it remains. User exceptions arrive as this."""

    code: ClassVar[str] = "aborted"


class NoSuchEntity(Aborted):
    """An entity was used that does not exist (never created, or deleted)."""

    code: ClassVar[str] = "no-such-entity"


class AlreadyExists(Aborted):
    """An entity was created under a key that is taken."""

    code: ClassVar[str] = "already-exists"


class Unencodable(Aborted):
    """A value does not fit its annotation, or cannot be encoded."""

    code: ClassVar[str] = "unencodable"


class LimitExceeded(Aborted):
    """A transaction used more time, memory, depth or bytes than it may."""

    code: ClassVar[str] = "limit-exceeded"


class Internal(Aborted):
    """The request stopped its epoch and was set aside; the driver's log has the incident."""

    code: ClassVar[str] = "internal"


class ReadonlyViolation(Aborted):
    """A `@readonly` method changed something."""

    code: ClassVar[str] = "readonly-violation"


class OperationalError(PenstockError):
    """The surroundings failed; the same request may be sent again."""

    code: ClassVar[str] = "operational"


class LogUnavailable(OperationalError):
    """The log could not be read or written; what was not acknowledged is not there."""

    code: ClassVar[str] = "log-unavailable"


class JournalUnavailable(OperationalError):
    """The journal could not be read or written; the epoch is not committed."""

    code: ClassVar[str] = "journal-unavailable"


class StateUnavailable(OperationalError):
    """Local state could not be written; it is a cache and loses nothing."""

    code: ClassVar[str] = "state-unavailable"


class ViewUnavailable(OperationalError):
    """The SQL view does not run, or has not reached what was asked for; it catches up by itself."""

    code: ClassVar[str] = "view-unavailable"


class TimedOut(OperationalError):
    """An answer did not come in time; the request may still take effect."""

    code: ClassVar[str] = "timed-out"


class Unreachable(OperationalError):
    """A gateway could not be reached, or every connection to it broke."""

    code: ClassVar[str] = "unreachable"


class Overloaded(OperationalError):
    """More is waiting than may wait; nothing of this request was taken."""

    code: ClassVar[str] = "overloaded"


class Stopping(OperationalError):
    """This process stops and takes nothing more; another one, or the next start, does."""

    code: ClassVar[str] = "stopping"


class Fenced(OperationalError):
    """Another driver owns this application; this one stops."""

    code: ClassVar[str] = "fenced"


class EpochFailed(OperationalError):
    """An epoch could not be run, after every retry; the message says where it stopped."""

    code: ClassVar[str] = "epoch-failed"


class IntegrityError(PenstockError):
    """Stored data is damaged or contradicts itself; nothing is guessed."""

    code: ClassVar[str] = "integrity"


class Corrupt(IntegrityError):
    """A checksum does not fit; says which file or record, and what can be rebuilt."""

    code: ClassVar[str] = "corrupt"


class Diverged(IntegrityError):
    """Two sources that must agree do not (log and journal, journal and state, replay and journal)."""

    code: ClassVar[str] = "diverged"


class Truncated(IntegrityError):
    """The log no longer holds records that are still needed."""

    code: ClassVar[str] = "truncated"


def _by_code(root: type[PenstockError]) -> dict[str, type[PenstockError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found.update(_by_code(child))
    return found


BY_CODE: Final = _by_code(PenstockError)
"""Penstock's own error classes by their stable codes; an application's classes are never among them."""
