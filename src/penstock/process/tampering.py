"""Settings of the process that a handler can change, and that cost too much to look at each time.

Changes of the environment, of the locale, of signal handlers and timers, of the state of `random`, of audit hooks, and
of Python's built-in names are refused: a signal that raises would end the next transactions, too. Others are compared
behind the last transaction of a task, and restored. A change that cannot be restored, such as a lower limit that only an administrator
may raise, is named, so that the process ends. The functions for that are taken when this module is imported, so that a
handler which replaces them replaces nothing here.
"""

import _signal  # type: ignore[import-not-found]
import builtins
import decimal
import gc
import locale
import logging
import os
import random
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import cache, wraps
from os import O_RDWR, chdir, close, devnull, fstat, getcwd, pipe, umask
from os import open as open_file
from types import ModuleType
from typing import Any, Final, NamedTuple

from penstock.errors import UserError
from penstock.model.context import active

_REFUSED: Final = (
    (os, "putenv", "the environment"),
    (os, "unsetenv", "the environment"),
    (locale, "_setlocale", "the locale"),
    (_signal, "signal", "signal handlers"),
    *(
        (module, name, "timers")
        for module in (_signal, signal)
        for name in ("setitimer", "alarm", "set_wakeup_fd")
    ),
    (random, "seed", "the state of the module random"),
    (random, "setstate", "the state of the module random"),
    (sys, "addaudithook", "audit hooks"),
)
"""The functions that a transaction may not call; `os.environ`, `locale.setlocale` and `signal.signal` end in them. They
are replaced once for the process; outside of transactions they work as before."""

setitimer: Final = signal.setitimer
"""The function for the timers of handlers. `signal` may have a refusing one before another module takes it by name."""

set_handler: Final = _signal.signal
handler_of: Final = _signal.getsignal
mask_signals: Final = _signal.pthread_sigmask
take_pending: Final = getattr(_signal, "sigtimedwait", lambda *_: None)  # macOS lacks it
"""The functions for the handlers of signals. Those of `signal` look for a name of each number and each handler, which
costs more than the calls to the operating system."""

_REMEDIES: Final = {
    "the state of the module random": "use random.Random(seed), or penstock.random()",
    "the state of numpy.random": "use numpy.random.default_rng(seed)",
}
"""The remedies, if it is another than to set the value before the process starts."""

_PRIVATE: Final = 0o077
_STREAMS: Final = (0, 1, 2)


class OpenFiles:
    """The open files of the process, of which a handler may close any: Spark's sockets, stores, the journal.

    A file of this object stands for all of them: a handler that closes only its own files does not close it.
    """

    def __init__(self) -> None:
        self._open()

    def were_closed(self) -> bool:
        """Say whether files were closed since the last call, and open the standard streams that are missing.

        A stream that is missing is dangerous: the next socket would get its number, and text for the standard output
        would be written into the protocol.
        """
        for stream in _STREAMS:
            if _identity(stream) is None:
                open_file(devnull, O_RDWR)  # the lowest free number: that of the stream
        if _identity(self._file) == self._named:
            return False
        self._open()
        return True

    def _open(self) -> None:
        self._file, end = pipe()
        close(end)
        self._named = _identity(self._file)


def _identity(descriptor: int) -> tuple[int, int] | None:
    """Return the identity of an open file; None if it is not open."""
    try:
        status = fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class _Setting(NamedTuple):
    """A setting of the process.

    Attributes:
        get: Returns its value, of built-in types, so that a comparison runs no code of a user.
        put: Restores a value; raises `OSError` or `ValueError` where that is impossible.
    """

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], object]


def _mask() -> int:
    mask = umask(_PRIVATE)
    umask(mask)
    return mask


def _folder() -> str:
    try:
        return getcwd()  # noqa: PTH109 -- `Path` would look it up by name
    except OSError:  # it was removed
        return ""


def _put_folder(folder: str) -> None:
    if folder:
        chdir(folder)


_limit_of: Final = resource.getrlimit
_put_limit: Final = resource.setrlimit
_LIMITS: Final = (
    *(
        value
        for name, value in sorted(vars(resource).items())
        if name.startswith("RLIMIT_") and value != resource.RLIMIT_DATA  # which the guard sets
    ),
)


def _limits() -> list[tuple[int, int]]:
    return [*map(_limit_of, _LIMITS)]


def _put_limits(limits: list[tuple[int, int]]) -> None:
    for which, limit in zip(_LIMITS, limits, strict=True):
        if _limit_of(which) != limit:
            _put_limit(which, limit)


_DECIMALS: Final = (decimal.DefaultContext, decimal.BasicContext, decimal.ExtendedContext)
_DECIMAL_NAMES: Final = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
_FLAGS: Final = len(_DECIMAL_NAMES)
"""The place of the flags, which computing sets, among the values by which a context is copied."""


def _decimals() -> list[tuple[Any, ...]]:
    copied = [context.__reduce__()[1] for context in _DECIMALS]
    return [(values[:_FLAGS], values[_FLAGS + 1]) for values in copied]


def _put_decimals(contexts: list[tuple[Any, ...]]) -> None:
    for context, (values, trapped) in zip(_DECIMALS, contexts, strict=True):
        for name, value in zip(_DECIMAL_NAMES, values, strict=True):
            setattr(context, name, value)
        for signalled in context.traps:
            context.traps[signalled] = signalled in trapped


_environment: Final[Any] = os.environ


def _variables() -> tuple[bool, dict[Any, Any]]:
    return os.environ is _environment, {**_environment._data}  # noqa: SLF001 -- as a handler may


def _put_variables(variables: tuple[bool, dict[Any, Any]]) -> None:
    os.environ = _environment  # noqa: B003 -- the object of before
    _environment._data.clear()  # noqa: SLF001
    _environment._data.update(variables[1])  # noqa: SLF001


_priority: Final = os.getpriority
_set_threshold: Final = gc.set_threshold
_set_priority: Final = os.setpriority
_SETTINGS: Final = (
    _Setting("the environment", _variables, _put_variables),
    _Setting("the mask of file modes", _mask, umask),
    _Setting("the working directory", _folder, _put_folder),
    _Setting("the limits of the process", _limits, _put_limits),
    _Setting(
        "the priority of the process",
        lambda: _priority(os.PRIO_PROCESS, 0),
        lambda value: _set_priority(os.PRIO_PROCESS, 0, value),
    ),
    _Setting("the contexts of `decimal`", _decimals, _put_decimals),
    _Setting("the collector", gc.get_threshold, lambda value: _set_threshold(*value)),
    _Setting("the collector", gc.get_debug, gc.set_debug),
    _Setting("the time limit of sockets", socket.getdefaulttimeout, socket.setdefaulttimeout),
    _Setting("the stacks of threads", threading.stack_size, threading.stack_size),
    _Setting("the level of logging", lambda: logging.root.manager.disable, logging.disable),
)
_LISTS: Final[tuple[tuple[str, list[Any], bool], ...]] = (
    ("sys.path", sys.path, True),
    ("sys.meta_path", sys.meta_path, True),
    ("sys.path_hooks", sys.path_hooks, True),
    ("gc.callbacks", gc.callbacks, False),
)
"""Lists, and whether an import may append to them."""

_audit: Final = sys.audit


class ProcessSettings:
    """The settings of the process as they were when this object was made."""

    def __init__(self) -> None:
        self._before = [setting.get() for setting in _SETTINGS]
        self._lists = [[*contents] for _, contents, _ in _LISTS]

    def restore(self) -> tuple[str, str]:
        """Restore them where they differ.

        Returns:
            The name of a setting that was restored, and of a setting that cannot be; an empty text stands for no name.
        """
        restored = lost = ""
        for setting, before in zip(_SETTINGS, self._before, strict=True):
            if setting.get() == before:
                continue
            restored = setting.name
            try:
                setting.put(before)
            except (OSError, ValueError):
                lost = setting.name
        for (name, contents, may_grow), objects in zip(_LISTS, self._lists, strict=True):
            now = contents[: len(objects)] if may_grow else [*contents]
            if [*map(id, now)] != [*map(id, objects)]:
                contents[:] = objects
                restored = name
        return restored, lost or _missing()


def _missing() -> str:
    """Return the name of a means that the process has lost; empty if it can open files."""
    try:
        _audit("penstock.task")
        close(open_file(devnull, O_RDWR))
    except OSError:
        return "the open files of the process, of which no more can be opened"
    except BaseException:  # noqa: BLE001 -- of an audit hook, which no process can remove
        return "the audit hooks"
    return ""


def refuse_changes() -> None:
    """Let each function that ends in a change of the process refuse it in a transaction."""
    _refuse_changes()
    if "numpy.random" in sys.modules:  # numpy loads it when it is used first
        _refuse_changes_of_numpy()


@cache
def _refuse_changes() -> None:
    for module, name, what in _REFUSED:
        setattr(module, name, _refusing(getattr(module, name), what))
    builtins.__class__ = _Builtins


@cache
def _refuse_changes_of_numpy() -> None:
    numbers = sys.modules["numpy.random"]
    for name in ("seed", "set_state"):
        setattr(numbers, name, _refusing(getattr(numbers, name), "the state of numpy.random"))


def _refusing(allowed: Callable[..., Any], what: str) -> Callable[..., Any]:
    @wraps(allowed)  # by its name the analysis of sources knows it
    def refuse(*arguments: Any, **named: Any) -> Any:
        asks = allowed.__name__ == "setlocale" and (len(arguments) < 2 or arguments[1] is None)
        if not asks:
            _check_outside(what)
        return allowed(*arguments, **named)

    return refuse


class _Builtins(ModuleType):
    """The class of the module `builtins`: its names cannot be replaced in a transaction."""

    def __setattr__(self, name: str, value: object) -> None:
        _check_outside("Python's built-in names")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        _check_outside("Python's built-in names")
        super().__delattr__(name)


def _check_outside(what: str) -> None:
    if active() is not None:
        raise UserError(
            f"a handler cannot change {what}, which other transactions see; "
            f"{_REMEDIES.get(what, 'set it before the process starts')}"
        )
