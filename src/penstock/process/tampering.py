"""Settings of the process that a handler can change, and that cost too much to look at each time.

Changes of the environment, of the locale, of signal handlers and timers, and of Python's built-in names are refused:
a signal that raises would end the next transactions, too. Others are put back behind the last transaction, before
Penstock itself goes on. The functions for that are taken when this module is imported, so that a handler which replaces
them replaces nothing here.
"""

import _signal  # type: ignore[import-not-found]
import builtins
import locale
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from os import O_RDWR, chdir, close, devnull, fstat, getcwd, pipe, umask
from os import open as open_file
from types import ModuleType
from typing import Any, Final

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
)
"""The functions that a transaction may not call; `os.environ`, `locale.setlocale` and `signal.signal` end in them. They
are replaced once for the process; outside of transactions they work as before."""

_PRIVATE: Final = 0o077
_STREAMS: Final = (0, 1, 2)


class OpenFiles:
    """The open files of the process, of which a handler may close any: Spark's sockets, stores, the journal.

    A file of this object stands for all of them, because nobody closes it who closes only own files.
    """

    def __init__(self) -> None:
        self._open()

    def were_closed(self) -> bool:
        """Say whether files were closed since the last call, and open the standard streams that are missing.

        A stream that is missing is dangerous: the next socket would get its number, and whoever writes to the standard
        output would write into the protocol.
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
    """Return what tells an open file from all others; None if it is not open."""
    try:
        status = fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class ProcessSettings:
    """The working directory and the mask of file modes, as they are now."""

    def __init__(self) -> None:
        self._mask = umask(_PRIVATE)
        umask(self._mask)
        self._folder: str | None = None
        with suppress(OSError):  # it was removed
            self._folder = getcwd()  # noqa: PTH109 -- `Path` would look it up by name

    def restore(self) -> None:
        """Put them back where they differ."""
        umask(self._mask)
        with suppress(OSError):
            if self._folder is not None and getcwd() != self._folder:  # noqa: PTH109
                chdir(self._folder)


@cache
def refuse_changes() -> None:
    """Let each function that ends in a change of the process refuse it in a transaction."""
    for module, name, what in _REFUSED:
        setattr(module, name, _refusing(getattr(module, name), what))
    builtins.__class__ = _Builtins


def _refusing(allowed: Callable[..., Any], what: str) -> Callable[..., Any]:
    @wraps(allowed)  # by its name the analysis of sources knows it
    def refuse(*arguments: Any) -> Any:
        asks = allowed.__name__ == "setlocale" and (len(arguments) < 2 or arguments[1] is None)
        if not asks:
            _check_outside(what)
        return allowed(*arguments)

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
            "set it before the process starts"
        )
