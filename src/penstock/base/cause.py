"""The text of an error for a log line or a message: short, and with the cause, which stands last."""

import re
from typing import Final

CAUSE_MAX: Final = 1_000
"""The most characters of a cause."""

_JAVA_FRAME: Final = re.compile(r"^\s*(at [\w.$]+.*\(.*\)|\.\.\. \d+ more)\s*$\n?", re.MULTILINE)


def cause_text(error: object, longest: int = CAUSE_MAX) -> str:
    """Return the text of an error, its middle left out if it is too long.

    The error of a task of Spark begins with the number of the task, and then has the stack of the worker and those of Java.
    The exception of the worker is in its last lines, between stacks of Java, which are left out.
    """
    text = str(error) or repr(error)
    if len(text) > longest:
        text = _JAVA_FRAME.sub("", text).strip()
    if len(text) > longest:
        head = longest // 4
        text = f"{text[:head]} … {text[-(longest - head - 3) :]}"
    return text
