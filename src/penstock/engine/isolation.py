"""Isolation: undoes the changes that a handler makes to its process.

Each transaction runs in its own context (`contextvars`), a copy of the context in which the application
was built, and with its own decimal context. After each transaction the settings of the interpreter that
are cheap to read are compared, and restored if they differ. Cyclic garbage is collected only between
transactions.

The settings of the interpreter are changed only between `begin` and `end`. `process.tampering` handles
settings of the operating system; docs/guide/process.md lists the settings that are not checked.
"""

import decimal
import gc
import sys
import warnings
from contextvars import Context
from typing import Any, Final

from penstock.engine.namespaces import Namespaces, builtin_names, namespaces_of
from penstock.model.application import App

_collects: Final = gc.isenabled
_recursion: Final = sys.getrecursionlimit
_limit_recursion: Final = sys.setrecursionlimit
_TooLow: Final = RecursionError
_number: Final = int
_interval: Final = sys.getswitchinterval
_digits: Final = sys.get_int_max_str_digits
_trace: Final = sys.gettrace
_profile: Final = sys.getprofile
_DECIMAL: Final = "decimal_context"


class Isolation:
    """Keeps the transactions of one executor apart.

    Attributes:
        restored: A name that was restored since the caller has set it to "".
    """

    __slots__ = (
        "_app",
        "_base",
        "_begun",
        "_builtins",
        "_collects",
        "_decimal",
        "_depth",
        "_filtered",
        "_filters",
        "_recursion",
        "_settings",
        "_spaces",
        "_watching",
        "restored",
    )

    def __init__(self, app: App, depth: int) -> None:
        self._app = app
        self._depth = depth  # frames that a handler may use
        self._begun = False
        self.restored = ""
        self._settings: tuple[Any, ...] = ()
        self._filters: Any = None
        self._filtered: list[Any] = []
        self._builtins = builtin_names()
        self._spaces: tuple[Namespaces, ...] = ()
        self._base = Context()
        self._decimal: decimal.Context | None = None
        for variable, value in app.context.items():
            if variable.name != _DECIMAL:
                self._base.run(variable.set, value)
            elif repr(value) != repr(decimal.DefaultContext):  # else CPython makes it at first use
                self._decimal = value

    def context(self) -> Context:
        """Return the context of the next transaction."""
        return self._base.copy()

    def fresh_context(self) -> Context:
        """Return the context of a handler that runs again inside of a transaction."""
        context = self.context()
        if self._decimal is not None:
            context.run(decimal.setcontext, self._decimal.copy())
        return context

    def begin(self) -> None:
        """Remember the settings of the interpreter, and set those of transactions."""
        self._recursion = sys.getrecursionlimit()
        self._collects = gc.isenabled()
        self._filters = warnings.filters
        self._filtered = [*warnings.filters]
        self._spaces = namespaces_of(self._app)
        for names in (self._builtins, *self._spaces):
            names.learn()
        self._settings = ()  # the first transaction measures them: only there is the depth of the stack known
        self._watching = (_trace(), _profile())
        self._begun = True
        self.restored = ""
        gc.disable()  # else the finalizers of one transaction would run inside another one

    def end(self) -> None:
        """Restore all settings and names as they were before `begin`."""
        self.restore_names()
        self._begun = False
        _limit_recursion(self._recursion)
        if self._collects:
            gc.enable()

    def enter(self) -> None:
        """Prepare for a transaction: its handlers have as many frames as those of every other, wherever it runs."""
        if self._begun:
            limit = _depth() + self._depth
            if not self._settings:
                _limit_recursion(limit)
                now = _settings()
                self._settings = (*now[:4], *self._watching, *now[6:])
            elif limit != self._settings[1]:
                _limit_recursion(limit)
                self._settings = (self._settings[0], limit, *self._settings[2:])
        if self._decimal is not None:
            decimal.setcontext(self._decimal.copy())

    def leave(self) -> None:
        """Restore the settings that the ended transaction has changed."""
        if self._begun and (_settings() != self._settings or self._filters != self._filtered):
            self._put_back()

    def _put_back(self) -> None:
        collects, recursion, interval, digits, trace, profile, filters, *streams = self._settings
        _limit_recursion(recursion)
        sys.setswitchinterval(interval)
        sys.set_int_max_str_digits(digits)
        sys.settrace(trace)
        sys.setprofile(profile)
        sys.stdin, sys.stdout, sys.stderr = streams
        filters[:] = self._filtered
        warnings.filters = filters
        warnings._filters_mutated()  # type: ignore[attr-defined]  # noqa: SLF001 -- as it does
        assert not collects, "garbage waits"
        gc.disable()

    def restore_names(self, *, everywhere: bool = True, libraries: bool = True) -> None:
        """Restore names that a handler has replaced; then `restored` names one of them.

        Args:
            everywhere: Check all names, and not only Python's built-in names.
            libraries: Then check also those of Python and Penstock. This costs as much as some transactions.
        """
        if not self._begun:
            return
        self.restored = self._builtins.restore() or self.restored
        if everywhere:
            for names in self._spaces if libraries else self._spaces[1:]:
                self.restored = names.restore() or self.restored

    def collect(self) -> None:
        """Let CPython collect garbage now, if there is enough."""
        if self._begun and self._collects:
            gc.enable()
            _Garbage()  # the allocation lets CPython check
            gc.disable()


def _settings() -> tuple[Any, ...]:
    """Return the settings that are cheap to read."""
    return (
        _collects(),
        _recursion(),
        _interval(),
        _digits(),
        _trace(),
        _profile(),
        warnings.filters,
        sys.stdin,
        sys.stdout,
        sys.stderr,
    )


class _Garbage:
    """An object to allocate."""


def _depth() -> int:
    """Return the interpreter's depth of recursion, calls from C included."""
    try:
        _limit_recursion(1)
    except _TooLow as error:  # its text is the only place that tells
        return _number(error.args[0].partition(":")[0].rpartition(" ")[2])
    raise AssertionError("nothing runs at depth 0")
