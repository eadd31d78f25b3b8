"""What the answers of an object store mean: the decisions of `store_root`, without input, output or clock.

An answer is a value, or an `OSError` of three kinds: `ConditionFailed`, `Refused`, and any other one, which is unclear.

`creating` is the fence of the whole application, so it must be right also if an answer is wrong. An answer may be lost after
the write, come late, or be wrong: S3 says "conflict" although nothing was written, and a proxy says 500 although the
object is there. So an answer that is not a plain yes is never believed: the bytes under the name are compared, and while the name
does not exist, the same bytes are put again under the same condition. Two calls with different bytes never both
return True, if the store honours the condition.
"""

import errno
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from penstock.base.decision import Now, Pause
from penstock.files.shared_root import Found, UnclearOutcome

_PAUSE_FIRST_S: Final = 0.02
_PAUSE_LAST_S: Final = 1.0


class ConditionFailed(OSError):
    """The answer: the condition of the request does not hold. It may be wrong."""


class Refused(OSError):
    """The answer: nothing was written, and a repetition is in vain."""


class Put(msgspec.Struct, frozen=True):
    """Ask to put bytes under a name that does not exist, or has a tag; their own tag.

    Attributes:
        tag: The tag of the bytes to replace; None if the name must not exist.
    """

    name: str
    data: bytes
    tag: str | None = None


class Get(msgspec.Struct, frozen=True):
    """Ask for what a name has: `Found`."""

    name: str


class Request(msgspec.Struct, frozen=True):
    """Ask for any other request, which may be repeated."""

    send: Callable[[], Any]


Ask = Put | Get | Request | Now | Pause
Chance = Callable[[float, float], float]
"""Draws a number between two others."""


def creating(
    name: str, data: bytes, chance: Chance, patience_s: float, patience_of_get_s: float
) -> Generator[Ask, Any, bool]:
    """Create a name, or compare its bytes, as `SharedRoot.create` says.

    Args:
        patience_s: How long the outcome may stay unclear.
        patience_of_get_s: How long a look at the bytes is repeated.
    """
    deadline = (yield Now()) + patience_s
    is_clear = True  # no request so far can have written, or can still write
    for pause_s in pauses(chance):
        try:
            yield Put(name, data)
        except ConditionFailed as error:
            # A conflict may come for a write of our own whose answer was lost, and although nothing was written.
            reason: OSError = error
            with suppress(OSError):
                present = yield from repeating(Get(name), chance, patience_of_get_s)
                if present.data is not None:
                    return bool(present.data == data)
        except OSError as error:
            if is_clear and isinstance(error, Refused):
                raise
            reason = error
        else:
            return True
        is_clear = False
        if isinstance(reason, Refused) or (yield Now()) + pause_s > deadline:
            raise UnclearOutcome(errno.EIO, reason.strerror) from reason
        yield Pause(pause_s)
    raise AssertionError("the pauses have no end")


def changing(
    name: str,
    edit: Callable[[bytes | None], bytes | None],
    chance: Chance,
    patience_s: float,
    known: Found | None = None,
) -> Generator[Ask, Any, Found]:
    """Replace the bytes of a name by those that `edit` returns, as `SharedRoot.change` says."""
    asked = None if known is None else edit(known.data)
    if known is not None and asked is not None and asked != known.data:
        # The condition tells whether the name still has what is known.
        with suppress(ConditionFailed):
            put = Put(name, asked, known.tag)
            return Found(asked, (yield from repeating(put, chance, patience_s)))
    return (yield from _changing_present(name, edit, chance, patience_s, asked))


def _changing_present(
    name: str,
    edit: Callable[[bytes | None], bytes | None],
    chance: Chance,
    patience_s: float,
    asked: bytes | None,
) -> Generator[Ask, Any, Found]:
    """Do what `changing` does, from what the name has now.

    Args:
        asked: The bytes that were perhaps put already.
    """
    tag: str | None = ""  # of the bytes that were to be replaced last
    for_s = pauses(chance)
    deadline = (yield Now()) + patience_s
    while True:
        present: Found = yield from repeating(Get(name), chance, patience_s)
        if (
            asked is not None and present.data == asked
        ):  # the answer was lost, the repetition refused
            return present
        if present.tag != tag:  # others change the name, so it is worth while
            tag, for_s, deadline = present.tag, pauses(chance), (yield Now()) + patience_s
        asked = edit(present.data)
        if asked is None or asked == present.data:
            return present
        try:
            written = yield from repeating(Put(name, asked, tag), chance, patience_s)
        except ConditionFailed:
            # Perhaps nobody has changed the name: S3 also says "conflict" of requests that it has not compared.
            pause_s = next(for_s)
            if (yield Now()) + pause_s > deadline:
                raise
            yield Pause(pause_s)
        else:
            return Found(asked, written)


def repeating(
    ask: Put | Get | Request, chance: Chance, patience_s: float
) -> Generator[Ask, Any, Any]:
    """Repeat a request that may be repeated, for some seconds.

    Raises:
        ConditionFailed: The condition of the request does not hold.
        OSError: The store refuses, or does not answer.
    """
    deadline = (yield Now()) + patience_s
    for pause_s in pauses(chance):
        try:
            return (yield ask)
        except (FileNotFoundError, ConditionFailed, Refused):
            raise
        except OSError:
            if (yield Now()) + pause_s > deadline:
                raise
        yield Pause(pause_s)
    raise AssertionError("the pauses have no end")


def pauses(chance: Chance) -> Iterator[float]:
    """Yield longer and longer pauses, with chance in them: hosts that failed together do not come back together."""
    pause_s = _PAUSE_FIRST_S
    while True:
        yield pause_s * chance(0.5, 1)
        pause_s = min(2 * pause_s, _PAUSE_LAST_S)
