"""What is recorded of a transaction that was undone: where user code ends, whatever it did.

A failure's text is part of the reply, so it holds nothing that differs between two runs.
"""

import re
from typing import Final

from penstock.base.ids import EntityKey
from penstock.errors import Aborted, LimitExceeded, PenstockError
from penstock.model.request import Failure

_ADDRESS: Final = re.compile(r"0x[0-9a-f]{6,}")
_LENGTH_MAX: Final = 2_000


class Escape(BaseException):
    """The transaction touched an entity that cannot be read here; carries which."""

    def __init__(self, key: EntityKey) -> None:
        self.key = key
        super().__init__(key)


class Interrupted(BaseException):
    """The transaction used more than it may; carries why."""


ANYTHING: Final = (Exception, SystemExit, GeneratorExit, Interrupted, Escape)
"""All that can leave a handler. `KeyboardInterrupt` is for who runs the process."""


def failure_of(raised: BaseException, memory_bytes: int, depth: int) -> Failure:
    """Return what is recorded for what left a handler, under these limits."""
    match raised:
        case Interrupted():
            return exceeded(str(raised))
        case MemoryError():
            return exceeded(f"allocated more than memory_bytes = {memory_bytes}")
        case RecursionError():
            return exceeded(f"recursed deeper than depth = {depth}")
        case _:
            code = raised.code if isinstance(raised, PenstockError) else Aborted.code
            return Failure(code, type(raised).__name__, _text_of(raised))


def exceeded(why: str) -> Failure:
    """Return the failure of a transaction that used more than it may."""
    return Failure(LimitExceeded.code, LimitExceeded.__name__, why)


def _text_of(raised: BaseException) -> str:
    if isinstance(raised, SystemExit | GeneratorExit):
        return f"the handler raised {type(raised).__name__}, which stops nothing here"
    try:
        text = str(raised)
    except ANYTHING as error:  # a `__str__` of user code
        text = f"(its text raised {type(error).__name__})"
    return _ADDRESS.sub("0x…", text)[:_LENGTH_MAX].encode("utf-8", "replace").decode()
