"""The audit hook of the sandbox: it receives every call to the outside before the call happens.

CPython cannot remove an audit hook. So each process adds one at its first sandbox, and the hook acts
only while a sandbox is entered. The sandbox decides about calls of its own thread. Calls of other
threads, for example the sender of a message queue, fail.
"""

import _posixsubprocess
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final
from weakref import WeakSet

from penstock.history.audit_events import ANNOUNCING, describe_event

Refuse = Callable[[str], None]
"""Receives the text of a call before it happens."""

_entered: Final[list[tuple[threading.Thread, Refuse]]] = []
_others: Final[WeakSet[threading.Thread]] = WeakSet()
_until_exit: Final[list[bool]] = []


def refuse_other_threads() -> None:
    """Refuse calls of other threads until the process ends; for processes of a single command.

    A thread that a handler has started may send the handler's messages after the sandbox was left.
    """
    _until_exit.append(True)


def enter(refuse: Refuse) -> None:
    """Enter a sandbox; `refuse` of the innermost sandbox receives the calls."""
    _add_hook()
    _entered.append((threading.current_thread(), refuse))
    _remember_threads()


def leave() -> None:
    """Leave the innermost sandbox."""
    _remember_threads()
    _entered.pop()


def _remember_threads() -> None:
    if _until_exit:
        current = threading.current_thread()
        _others.update(thread for thread in threading.enumerate() if thread is not current)


@cache
def _add_hook() -> None:
    start = _posixsubprocess.fork_exec

    def announced(*arguments: Any) -> int:
        sys.audit("penstock.fork_exec", arguments[0])
        return start(*arguments)

    # `multiprocessing` starts processes with this function, which raises no audit event.
    _posixsubprocess.fork_exec = announced
    sys.addaudithook(_look)


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    # First, because each entity that a transaction loads is an event (`object.__setattr__`).
    if event not in ANNOUNCING or not (_entered or _others):
        return
    what = describe_event(event, arguments)
    if what is None:
        return
    thread = threading.current_thread()
    if _entered:
        owner, refuse = _entered[-1]
        refuse(what)
        if thread is owner:
            return
    if _entered or thread in _others:
        raise PermissionError(f"a thread {what}; a rerun refuses such calls")
