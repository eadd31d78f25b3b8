"""The audit hook of looking back: it is told of every call to the outside before that happens.

CPython cannot remove a hook. So each process has a single one, from its first isolation on, and it acts
only during an isolation. A call of the isolating thread is left to the isolation. Other threads belong
to the application (an example is a sender of messages from a queue), and their calls fail.
"""

import _posixsubprocess
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final
from weakref import WeakSet

from penstock.history.audit_events import describe_event

Refuse = Callable[[str], None]
"""Is told of a call as text, before it happens."""

_entered: Final[list[tuple[threading.Thread, Refuse]]] = []
_others: Final[WeakSet[threading.Thread]] = WeakSet()
_alone: Final[list[bool]] = []


def refuse_other_threads() -> None:
    """Say that this process belongs to one command.

    Its other threads are then isolated until it ends, since they may send a handler's messages
    later.
    """
    _alone.append(True)


def enter(refuse: Refuse) -> None:
    """Isolate from now on; the innermost isolation is told."""
    _add_hook()
    _entered.append((threading.current_thread(), refuse))
    _remember_threads()


def leave() -> None:
    """End the innermost isolation."""
    _remember_threads()
    _entered.pop()


def _remember_threads() -> None:
    if _alone:
        current = threading.current_thread()
        _others.update(one for one in threading.enumerate() if one is not current)


@cache
def _add_hook() -> None:
    start = _posixsubprocess.fork_exec

    def announced(*arguments: Any) -> int:
        sys.audit("penstock.fork_exec", arguments[0])
        return start(*arguments)

    # `multiprocessing` starts processes by it, and alone of all does not announce that.
    _posixsubprocess.fork_exec = announced
    sys.addaudithook(_look)


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if not _entered and not _others:
        return
    what = describe_event(event, arguments)
    if what is None:
        return
    thread = threading.current_thread()
    if _entered:
        isolating, refuse = _entered[-1]
        refuse(what)
        if thread is isolating:
            return
    if _entered or thread in _others:
        raise PermissionError(f"a thread {what}, which looking back refuses")
