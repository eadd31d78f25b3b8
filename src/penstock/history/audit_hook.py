"""The audit hook of the sandbox: it receives every call to the outside before the call happens.

CPython cannot remove an audit hook. So each process adds one at its first sandbox, and the hook acts
only while a sandbox is entered. The sandbox decides about calls of its own thread. Calls of other
threads, for example the sender of a message queue, fail.
"""

import _posixsubprocess
import os
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

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
        # A thread that a handler has started may call the outside after the sandbox was left.
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
        # Before the thread is looked at: the request fails also if its helper thread makes the
        # call.
        refuse(what)
        if thread is owner:
            return
    if _entered or thread in _others:
        raise PermissionError(f"a thread {what}; a rerun refuses such calls")


_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_TEXT_MAX: Final = 200

Arguments = tuple[Any, ...]


def describe_event(event: str, arguments: Arguments) -> str | None:
    """Return the text of an outside call, to follow "the handler"; None for all other events."""
    describe = _EVENTS.get(event)
    text = None if describe is None else describe(arguments)
    return None if text is None else text[:_TEXT_MAX]


def _connected(arguments: Arguments) -> str:
    return f"opened a connection to {_address(arguments[1])}"


def _named(arguments: Arguments) -> str:
    return f"opened a connection to {_address((*arguments[1:3],))}"


def _spoke(arguments: Arguments) -> str:
    host, port = (getattr(arguments[0], name, None) for name in ("host", "port"))
    return f"sent something to {_address((host, port)) if host else 'another process'}"


def _looked_up(arguments: Arguments) -> str | None:
    host = arguments[0]
    if host is None or _is_number(_text(host)):
        return None  # no name server is asked
    return f"asked for the address of {_address(tuple(arguments[:2]))}"


def _sent(arguments: Arguments) -> str:
    return f"sent a message to {_address(arguments[1])}"


def _address(address: Any) -> str:
    match address:
        case (host, int() | str() as port, *_):
            return f"{_text(host)}:{port}"
        case (host, *_):
            return _text(host)
        case None:
            return "another process"
        case _:
            return _text(address)


def _is_number(host: str) -> bool:
    return ":" in host or all(part.isdigit() for part in host.split("."))


def _program(position: int) -> Callable[[Arguments], str]:
    def describe(arguments: Arguments) -> str:
        program = arguments[position]
        if not program and len(arguments) > position + 1:
            program = arguments[position + 1]
        if isinstance(program, list | tuple):
            program = program[0] if program else ""
        words = _text(program).split() or ["?"]
        return f"started the process {Path(words[0]).name}"

    return describe


def _forked(_: Arguments) -> str:
    return "started a process"


def _opened(arguments: Arguments) -> str | None:
    path, mode, flags = arguments
    if isinstance(path, int) or _text(path) == os.devnull:
        return None  # an open descriptor, or the null device
    writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else flags & _WRITES
    return f"wrote the file {_text(path)}" if writes else None


def _opened_database(arguments: Arguments) -> str | None:
    path = _text(arguments[0])
    return None if path == ":memory:" else f"opened the database {path}"


def _did(what: str) -> Callable[[Arguments], str]:
    def describe(arguments: Arguments) -> str:
        return f"{what} {_text(arguments[0])}" if arguments else what

    return describe


def _text(value: Any) -> str:
    match value:
        case bytes():
            return value.decode(errors="replace")
        case str() | int() | os.PathLike():
            return str(value)
        case _:
            return f"<{type(value).__name__}>"


_EVENTS: Final[Mapping[str, Callable[[Arguments], str | None]]] = {
    "socket.connect": _connected,
    "socket.bind": lambda arguments: f"listened on {_address(arguments[1])}",
    "socket.sendto": _sent,
    "socket.sendmsg": _sent,
    "socket.getaddrinfo": _looked_up,
    "socket.gethostbyname": _looked_up,
    "socket.gethostbyaddr": lambda arguments: f"asked for the name of {_address(arguments)}",
    "socket.getnameinfo": lambda arguments: f"asked for the name of {_address(arguments[0])}",
    **dict.fromkeys(
        ("http.client.connect", "smtplib.connect", "ftplib.connect", "poplib.connect"), _named
    ),
    **dict.fromkeys(("imaplib.open", "nntplib.connect", "telnetlib.Telnet.open"), _named),
    **dict.fromkeys(("http.client.send", "smtplib.send", "ftplib.sendcmd"), _spoke),
    **dict.fromkeys(("poplib.putline", "imaplib.send", "nntplib.putline"), _spoke),
    "telnetlib.Telnet.write": _spoke,
    "webbrowser.open": _did("opened"),
    "syslog.syslog": lambda _: "wrote to the system's log",
    "subprocess.Popen": _program(0),
    "penstock.fork_exec": _program(0),
    "os.system": _program(0),
    "os.exec": _program(0),
    "os.posix_spawn": _program(0),
    "os.spawn": _program(1),
    "os.startfile": _did("opened"),
    "pty.spawn": _program(0),
    "os.fork": _forked,
    "os.forkpty": _forked,
    "os.kill": _did("sent a signal to process"),
    "os.killpg": _did("sent a signal to process group"),
    "open": _opened,
    "sqlite3.connect": _opened_database,
    **{
        f"os.{name}": _did(f"{verb} the file")
        for name, verb in {
            "remove": "removed",
            "rename": "renamed",
            "truncate": "truncated",
            "chmod": "changed the mode of",
            "chown": "changed the owner of",
            "link": "linked",
            "symlink": "linked",
            "utime": "changed the time of",
            "setxattr": "changed attributes of",
            "removexattr": "changed attributes of",
        }.items()
    },
    "os.mkdir": _did("made the directory"),
    "os.rmdir": _did("removed the directory"),
    "tempfile.mkstemp": _did("wrote the file"),
    "tempfile.mkdtemp": _did("made the directory"),
    "shutil.rmtree": _did("removed the directory"),
    "shutil.move": _did("moved the file"),
}

ANNOUNCING: Final = frozenset(_EVENTS)
"""The events that may announce a call to the outside."""
