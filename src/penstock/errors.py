"""Every error that Penstock raises, in three groups.

`UserError`: the caller or the developer must change something; a retry is pointless.
`OperationalError`: the environment failed; a retry of the same request is safe.
`IntegrityError`: stored data is damaged or contradicts itself; Penstock stops.

Replies carry the stable `code` of a class; messages may change.
"""

from collections.abc import Sequence
from typing import Final


class PenstockError(Exception):
    """The root of the tree. `code` is stable across versions; the message is for people.

    Attributes:
        kind: The name of the exception class that left the handler, if the error is a reply.
    """

    code: str = "penstock"
    kind: str = ""


class UserError(PenstockError):
    """The application or the request is wrong; never retried."""

    code: str = "user"


class DefinitionError(UserError):
    """An application is defined wrongly; `complaints` has every mistake with its file and line."""

    code: str = "definition"

    def __init__(self, complaints: Sequence[str]) -> None:
        self.complaints = tuple(complaints)
        count = len(self.complaints)
        noun = "complaint" if count == 1 else "complaints"
        super().__init__(f"{count} {noun}:\n" + "\n".join(f"  {text}" for text in self.complaints))


class ConfigError(UserError):
    """A setting has an invalid value."""

    code: str = "config"


class ClassChanged(UserError):
    """An entity class is declared differently from its stored entities; the message shows how."""

    code: str = "class-changed"


class MigrationFailed(UserError):
    """A function that `@migrate` marks has failed for an entity, or its result does not fit the class."""

    code: str = "migration-failed"


class RequestError(UserError):
    """A request names something that does not exist, or its arguments do not fit."""

    code: str = "request"


class Unauthenticated(UserError):
    """The credentials of the caller are missing, wrong or expired."""

    code: str = "unauthenticated"


class Forbidden(UserError):
    """The caller lacks a scope; the message names it."""

    code: str = "forbidden"


class QueryError(UserError):
    """A query is wrong, is not permitted, or exceeds a limit."""

    code: str = "query"


class RequestConflict(UserError):
    """A request id was used before, with another body."""

    code: str = "request-conflict"


class TooLate(UserError):
    """A request cannot be cancelled, because it was due before; its result tells how it ended."""

    code: str = "too-late"


class Gone(UserError):
    """A reader asks for an atom that retention has removed, for a reply that is no longer kept, or in a session that has ended.

    Attributes:
        oldest: The number of the oldest atom of the stream that is held; -1 if it is unknown.
    """

    code: str = "gone"
    oldest: int = -1


class RecordTooLarge(UserError):
    """A record exceeds the log's size limit."""

    code: str = "record-too-large"


class OutsideTransaction(UserError):
    """An entity was read, written or called where no transaction runs."""

    code: str = "outside-transaction"


class Aborted(UserError):
    """A transaction was undone; nothing of it remains. User exceptions arrive as this."""

    code: str = "aborted"


class Unhandled(Aborted):
    """An exception that no class of `Aborted` declares left a handler, and its transaction was undone.

    It may be a mistake in the code. When the code is mended, `penstock retry` runs the request again.
    """

    code: str = "unhandled"


class NoSuchEntity(Aborted):
    """An entity was used that was never created or has been deleted."""

    code: str = "no-such-entity"


class AlreadyExists(Aborted):
    """An entity was created under a key that is taken."""

    code: str = "already-exists"


class NotUnique(Aborted):
    """Two entities would have the same value of attributes that are declared with `unique()`."""

    code: str = "not-unique"


class DanglingReference(Aborted):
    """An attribute with `reference(exists=True)` refers to an entity that does not exist."""

    code: str = "dangling-reference"


class Unencodable(Aborted):
    """A value does not fit its annotation, or cannot be encoded."""

    code: str = "unencodable"


class LimitExceeded(Aborted):
    """A transaction used more time, memory, depth or bytes than it may."""

    code: str = "limit-exceeded"


class Cancelled(Aborted):
    """The request was scheduled and was cancelled before it was due; it never runs."""

    code: str = "cancelled"


class Erased(Aborted):
    """The subject of personal data was erased: the key of its data is destroyed."""

    code: str = "erased"


class Internal(Aborted):
    """The request stopped its epoch and was set aside; the driver's log has the incident."""

    code: str = "internal"


class ReadonlyViolation(Aborted):
    """A `@readonly` method changed something."""

    code: str = "readonly-violation"


class AskFailed(Aborted):
    """The task that replies to a portal has failed, or the step in which its reply arrived."""

    code: str = "ask-failed"


class Deadlock(AskFailed):
    """Handlers of exclusive tasks would wait for each other without end; the request that closes the cycle fails."""

    code: str = "deadlock"


class OperationalError(PenstockError):
    """The environment failed; the same request may be sent again.

    Attributes:
        retry_after_s: The seconds to wait before the request is sent again; 0 if they are unknown.
    """

    code: str = "operational"
    retry_after_s: float = 0.0


class LogUnavailable(OperationalError):
    """The log could not be read or written; unacknowledged requests are not in it."""

    code: str = "log-unavailable"


class JournalUnavailable(OperationalError):
    """The journal could not be read or written; the epoch is not committed."""

    code: str = "journal-unavailable"


class StateUnavailable(OperationalError):
    """Local state could not be written; it is a cache, so nothing is lost."""

    code: str = "state-unavailable"


class ViewUnavailable(OperationalError):
    """The SQL view does not run, or has not reached the epoch; it catches up by itself."""

    code: str = "view-unavailable"


class TimedOut(OperationalError):
    """No answer came in time; the request may still take effect."""

    code: str = "timed-out"


class Unreachable(OperationalError):
    """A gateway could not be reached, or every connection to it broke."""

    code: str = "unreachable"


class Overloaded(OperationalError):
    """Too many requests are waiting; this request was not accepted."""

    code: str = "overloaded"


class Throttled(Overloaded):
    """A limit on requests is reached; this request was not accepted, and the message names the limit."""

    code: str = "throttled"


class Paused(OperationalError):
    """An operator has paused such requests; this request was not accepted."""

    code: str = "paused"


class Stopping(OperationalError):
    """This process is stopping; another process, or this one after a restart, takes requests."""

    code: str = "stopping"


class Fenced(OperationalError):
    """Another driver owns this application, so this driver stops."""

    code: str = "fenced"


class EpochFailed(OperationalError):
    """An epoch failed after every retry; the message says where it stopped."""

    code: str = "epoch-failed"


class IntegrityError(PenstockError):
    """Stored data is damaged or contradicts itself; Penstock never guesses."""

    code: str = "integrity"


class Corrupt(IntegrityError):
    """A checksum does not fit; the message names the file or record, and a way to rebuild it."""

    code: str = "corrupt"


class Diverged(IntegrityError):
    """Two sources disagree: log and journal, journal and state, or replay and journal."""

    code: str = "diverged"


class Truncated(IntegrityError):
    """The log no longer holds records that are still needed."""

    code: str = "truncated"


def _by_code(root: type[PenstockError]) -> dict[str, type[PenstockError]]:
    classes = {root.code: root}
    for child in root.__subclasses__():
        classes.update(_by_code(child))
    return classes


BY_CODE: Final = _by_code(PenstockError)
"""The error classes of Penstock by their stable codes, without those of applications."""
