"""The output of a command that fails: one message, its code, the next step, and the exit code.

Exit codes are stable. Every code of the error tree has advice.
"""

from typing import Final

from rich.console import Console
from rich.text import Text

from penstock.errors import PenstockError, UserError

USER_ERROR: Final = 2
OTHER_ERROR: Final = 1
REPLY_IS_ERROR: Final = 3
INTERRUPTED: Final = 130

ADVICE: Final = {
    "penstock": "Run the command again with --debug for the details.",
    "user": "Change what the message names; trying again without a change will not help.",
    "definition": "Correct the lines named above; penstock explain APP shows whether it is right.",
    "config": "Correct what is named above; penstock run --help lists settings and their sources.",
    "class-changed": "Nothing is lost: the code that wrote the data reads them as before.",
    "request": "penstock explain APP shows what can be called, and with what.",
    "unauthenticated": "Send a valid key: penstock keys add makes one, keys list shows which exist.",
    "forbidden": "Use a key with the scope named above: penstock keys add NAME --scope … APP.",
    "query": 'penstock sql "SHOW TABLES" lists what can be asked; limits are settings: view.*.',
    "request-conflict": "Choose another --request-id, or send exactly the former request.",
    "record-too-large": "Send less at once, or raise record_bytes_max.",
    "outside-transaction": "Use entities in methods of entities and in @transactional functions.",
    "aborted": "Nothing of the request remains; the application refused it.",
    "no-such-entity": "Create it first: penstock call APP ENTITY KEY create name=value …",
    "already-exists": "Choose another key, or leave the key out (-) to have one derived.",
    "unencodable": "The value must fit its annotation; penstock explain APP shows the types.",
    "limit-exceeded": "Let the handler do less, or raise the limit that the message names.",
    "internal": "Nothing of the request remains; penstock status shows the incident and its cause.",
    "readonly-violation": "Remove @readonly, or the change.",
    "operational": "Try again; requests keep their id and take effect once.",
    "log-unavailable": "Look at the disk of the data directory; then try again with the same id.",
    "journal-unavailable": "Look at the disk of the data directory; nothing acknowledged is lost.",
    "state-unavailable": "Look at the disk; local state is rebuilt from the journal by itself.",
    "timed-out": "Is penstock run running? Ask again with the same --request-id.",
    "unreachable": "Is penstock run running, and is the URL its own? Then ask again as it is.",
    "overloaded": "Send more slowly; what was refused can be sent again as it is.",
    "stopping": "Send it again with the same request id, when it has started again.",
    "view-unavailable": "Is penstock run running? A view that was lost is rebuilt by itself.",
    "fenced": "Stop the other driver of this application, or use another --data.",
    "epoch-failed": "The log keeps every request: see the messages above, then start it again.",
    "integrity": "Do not delete anything; restore what is named from a backup.",
    "corrupt": "Do not delete anything; restore what is named from a backup.",
    "diverged": "Keep log and journal as they are, and report this.",
    "truncated": "Restore the log from a backup that reaches back far enough.",
}
"""The next step for each code."""


def exit_code_of(error: PenstockError) -> int:
    """Return 2 if the caller must change something, else 1."""
    return USER_ERROR if isinstance(error, UserError) else OTHER_ERROR


def text_of(error: Exception) -> str:
    """Return the message of an error with its code, and the advice on the last line."""
    if isinstance(error, PenstockError):
        advice = ADVICE.get(error.code, ADVICE["penstock"])
        return f"error [{error.code}] {error}\n{advice}"
    return f"error [internal] {type(error).__name__}: {error}\n{ADVICE['penstock']}"


def show(error: Exception, console: Console | None = None) -> None:
    """Print an error on standard error, or on another console."""
    message, _, advice = text_of(error).removeprefix("error").rpartition("\n")
    text = Text.assemble(("error", "bold red"), message, "\n", (advice, "dim"))
    console = console or Console(stderr=True)
    console.print(text, highlight=False, soft_wrap=True)
