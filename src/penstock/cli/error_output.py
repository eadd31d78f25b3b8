"""The output of a command that fails: one message, its code, the next step, and the exit code.

People read it on standard error. With `--json` it is one JSON object on standard output, which then
holds nothing else. Exit codes and the keys of the object are stable. Every code of the error tree has
advice.
"""

import errno
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.cli.output import print_json, safe_console
from penstock.errors import ConfigError, OperationalError, PenstockError, UserError
from penstock.process.logs import printable

if TYPE_CHECKING:
    from rich.console import Console

OTHER_ERROR: Final = 1
USER_ERROR: Final = 2
REPLY_IS_ERROR: Final = 3
INTERRUPTED: Final = 130

EXIT_CODES: Final = {
    0: "the command has done its work",
    OTHER_ERROR: "a failure, or a finding: status without a driver, replay with a difference, "
    "verify with damage",
    USER_ERROR: "you must change something: the command line, a setting, the application",
    REPLY_IS_ERROR: "the application refused the request of penstock call",
    INTERRUPTED: "interrupted by Ctrl-C",
}
"""The meaning of each exit code, the same for all commands."""

USAGE: Final = "usage"
"""The code of a command line that cannot be read."""


class ErrorDescription(msgspec.Struct, frozen=True):
    """An error as `--json` prints it, as the value of `error`. Keys are stable.

    Attributes:
        message: A sentence for people.
        hint: The next step, for people.
    """

    code: str
    message: str
    hint: str
    exit_code: int


ADVICE: Final = {
    "penstock": "Run the command again with --debug for the details.",
    "user": "Correct the input that the message names; the same input fails again.",
    "definition": "Correct the lines named above; penstock explain APP checks the application.",
    "config": "Correct what the message names: --help shows the options of each command, and "
    "penstock run --help the sources of settings.",
    "class-changed": "Nothing is lost: the code that wrote the data reads them as before.",
    "migration-failed": "Correct the function with @migrate; it must accept every stored entity of its version.",
    "request": "Correct what the message names; penstock explain APP lists the methods with their arguments.",
    "unauthenticated": "Send a valid key: penstock keys add makes one, keys list shows which exist.",
    "forbidden": "Use a key with the scope named above: penstock keys add NAME --scope … APP.",
    "query": 'penstock sql "SHOW TABLES" lists the tables; limits are settings: view.*.',
    "request-conflict": "Choose another request id, or send exactly the same request.",
    "too-late": "Its effect stands: penstock trace shows it; send a request that reverses the effect.",
    "gone": "Continue at the oldest atom that is held: penstock tail --from earliest; a larger history.keep_epochs keeps more.",
    "record-too-large": "Send less at once, or raise the setting that the message names.",
    "outside-transaction": "Use entities in methods of entities and in @transactional functions.",
    "aborted": "Nothing of the request remains; the application refused it.",
    "unhandled": "Nothing of the request remains; when the code is mended, penstock retry runs it again.",
    "no-such-entity": 'Check the key: penstock sql "FROM CLASS" APP lists the entities of a class; '
    "penstock call APP CLASS KEY create makes one.",
    "already-exists": "Choose another key, or leave the key out (-) to have one derived.",
    "not-unique": "Choose another value, or change that of the other entity first.",
    "dangling-reference": "Create the entity that it refers to first, or refer to another one.",
    "unencodable": "The value must fit its annotation; penstock explain APP shows the types.",
    "limit-exceeded": "Make the handler do less, or raise the limit that the message names.",
    "cancelled": "Send the request again with another id if it must run after all.",
    "erased": "The data cannot be read any more; penstock erase --list shows the certificates of erasures.",
    "internal": "Nothing of the request remains; penstock status shows the incident and its cause.",
    "readonly-violation": "Remove @readonly, or the change.",
    "deadlock": "Let the handlers ask in one order, or declare their tasks without exclusive=True.",
    "ask-failed": "Nothing of the step remains; correct the task that the message names.",
    "operational": "Try again; requests keep their id and take effect once.",
    "log-unavailable": "Check the disk of the data directory, or the brokers that are named; then try again with the same id.",
    "journal-unavailable": "Check the disk of the data directory (or the object store or key service that is named); no acknowledged request is lost.",
    "state-unavailable": "Check the disk; local state is rebuilt from the journal by itself.",
    "timed-out": "Check that penstock run is running; then ask again: a request with the same id takes effect once.",
    "unreachable": "Check that penstock run is running and that the URL is right; then send the request again.",
    "overloaded": "Send more slowly; a refused request can be sent again unchanged.",
    "throttled": "Send it again after the time in the message; penstock flow show lists all limits.",
    "paused": "Send it again later; penstock flow show says who paused it and why.",
    "stopping": "Send it again with the same request id after the restart.",
    "view-unavailable": "Check that penstock run is running; penstock view list says how each view stands.",
    "fenced": "Stop the other driver of this application, or start this one as its standby with penstock run --standby; another application needs other data.",
    "epoch-failed": "The log keeps every request: see the messages above, then start it again.",
    "integrity": "Do not delete anything; penstock verify APP names the remedy of each damage.",
    "corrupt": "Do not delete anything; penstock verify APP names the remedy of each damage.",
    "diverged": "Keep log and journal as they are, and report this.",
    "truncated": "Restore the log from a backup that reaches back far enough.",
}
"""The next step for each code."""

_ENVIRONMENT: Final = {
    errno.EACCES: "Give this user the right to it, or run the command as its owner.",
    errno.EPERM: "Give this user the right to it, or run the command as its owner.",
    errno.EROFS: "Make the disk writable again: the system has mounted it for reading only, perhaps after a failure of the disk.",
    errno.EIO: "The disk has failed: see the messages of the system.",
    errno.EMFILE: "Raise the limit on open files (ulimit -n, or LimitNOFILE of systemd).",
    errno.ENFILE: "Raise the limit on open files of the machine (fs.file-max).",
    errno.ENOMEM: "Let the machine have more memory, or this user a higher limit (ulimit -v).",
}
"""The next step for each error of the system that no code of Penstock causes."""

_MAKE_SPACE: Final = "Make space on this disk, and try again; no acknowledged request is lost."


def describe(error: BaseException, exit_code: int | None = None) -> ErrorDescription:
    """Return the description of an error.

    Args:
        exit_code: The exit code; None: 2 if the caller must change something, else 1.
    """
    from penstock.process.disk_space import FULL, tells_of_full_disk
    from penstock.process.process_limits import NO_TASKS, RAISE_TASKS, is_lack_of_tasks

    if isinstance(error, OSError) and error.errno in FULL:
        return ErrorDescription(OperationalError.code, _full_text(error), _MAKE_SPACE, OTHER_ERROR)
    if isinstance(error, OSError) and (hint := _ENVIRONMENT.get(error.errno or 0)):
        where = f": {error.filename}" if error.filename else ""
        text = f"{error.strerror}{where}"
        return ErrorDescription(OperationalError.code, text, hint, OTHER_ERROR)
    if is_lack_of_tasks(error):
        return ErrorDescription(OperationalError.code, NO_TASKS, RAISE_TASKS, OTHER_ERROR)
    if isinstance(error, PenstockError):
        usual = USER_ERROR if isinstance(error, UserError) else OTHER_ERROR
        code, message = error.code, str(error)
    else:
        usual = OTHER_ERROR
        code, message = "internal", f"{type(error).__name__}: {error}"
    advised = [error.code, type(error).code] if isinstance(error, PenstockError) else []
    # An application has codes of its own; then the class of the error has the advice.
    hint = next((ADVICE[each] for each in advised if each in ADVICE), ADVICE["penstock"])
    if isinstance(error, OperationalError | ConfigError) and tells_of_full_disk(error):
        hint = _MAKE_SPACE
    return ErrorDescription(code, message, hint, usual if exit_code is None else exit_code)


def _full_text(error: OSError) -> str:
    """Return the message of a write that has failed; the system does not always name the file."""
    import tempfile

    where = error.filename or f"data directory, standard output, or {tempfile.gettempdir()}"
    return f"{error.strerror} ({where})"


def text_of(error: Exception) -> str:
    """Return the message of an error with its code, and the advice on the last line."""
    return _text(describe(error))


def _text(description: ErrorDescription) -> str:
    return f"error [{description.code}] {description.message}\n{description.hint}"


def show(
    description: ErrorDescription, *, as_json: bool = False, console: "Console | None" = None
) -> int:
    """Print an error and return its exit code.

    Args:
        as_json: Whether `--json` was given.
        console: The place for text; None: standard error.
    """
    if as_json:
        print_json({"error": description})
        return description.exit_code
    if console is None and not sys.stderr.isatty():
        sys.stderr.write(
            f"{printable(_text(description), lines=True)}\n"
        )  # rich takes long to load
        return description.exit_code
    from rich.text import Text

    text = Text.assemble(
        ("error", "bold red"),
        f" [{description.code}] {description.message}\n",
        (description.hint, "dim"),
    )
    console = console or safe_console(stderr=True)
    console.print(text, highlight=False, soft_wrap=True)
    return description.exit_code
