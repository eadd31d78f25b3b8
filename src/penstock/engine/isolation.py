"""Isolation: what a handler changes in its process ends with its transaction.

Each transaction runs in a context of its own (`contextvars`), a copy of the one in which the
application was built, with a decimal context of its own. Cheap settings of the interpreter are
looked at behind each transaction, and put back where they differ. Cyclic garbage waits, so that
finalizers of one transaction never run inside another.

The interpreter's settings are touched between `begin` and `end` alone. Settings of the operating system
are left to `runtime.process`; docs/GUIDE.md lists what nobody looks at.
"""

import builtins
import decimal
import gc
import re
import sys
import warnings
from contextvars import Context
from typing import Any, Final

_DEPTH: Final = re.compile(r"at the recursion depth (\d+)")
_collects: Final = gc.isenabled
_recursion: Final = sys.getrecursionlimit
_interval: Final = sys.getswitchinterval
_digits: Final = sys.get_int_max_str_digits
_trace: Final = sys.gettrace
_profile: Final = sys.getprofile
_NAMES: Final = vars(builtins)
_DECIMAL: Final = "decimal_context"


class Isolation:
    """Keeps the transactions of one executor apart."""

    def __init__(self, context: Context, depth: int) -> None:
        """Begin.

        Args:
            context: The context in which the application was built.
            depth: Frames that a handler may use.
        """
        self._depth = depth
        self._begun = False
        self._settings: tuple[Any, ...] = ()
        self._base = Context()
        self._decimal: decimal.Context | None = None
        for variable, value in context.items():
            if variable.name != _DECIMAL:
                self._base.run(variable.set, value)
            elif repr(value) != repr(decimal.DefaultContext):  # else CPython makes it at first use
                self._decimal = value

    def context(self) -> Context:
        """Return the context of the next transaction."""
        return self._base.copy()

    def begin(self) -> None:
        """Remember the interpreter's settings, and keep to those that transactions have."""
        self._recursion = sys.getrecursionlimit()
        self._collects = gc.isenabled()
        self._filters: Any = warnings.filters
        self._filtered = [*warnings.filters]
        self._names, self._values = _NAMES.copy(), [*_NAMES.values()]
        self._settings = ()
        self._watching = (_trace(), _profile())
        self._begun = True
        gc.disable()

    def end(self) -> bool:
        """Put back all settings as they were before `begin`; say whether built-in names differed."""
        changed = self.restore_names()
        self._begun = False
        sys.setrecursionlimit(self._recursion)
        if self._collects:
            gc.enable()
        return changed

    def enter(self) -> None:
        """Prepare the transaction that begins; the caller's depth is the same for all of them.

        So handlers have the same number of frames wherever they run.
        """
        if self._begun and not self._settings:
            sys.setrecursionlimit(_depth() + self._depth)
            now = _settings()
            self._settings = (*now[:4], *self._watching, *now[6:])
        if self._decimal is not None:
            decimal.setcontext(self._decimal.copy())

    def leave(self) -> None:
        """Put back what the transaction that has ended changed."""
        if self._begun and (_settings() != self._settings or self._filters != self._filtered):
            self._put_back()

    def _put_back(self) -> None:
        collects, recursion, interval, digits, trace, profile, filters, *streams = self._settings
        sys.setrecursionlimit(recursion)
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

    def restore_names(self) -> bool:
        """Put back Python's built-in names, where a handler has found a way to change them.

        Returns:
            Whether that was so.
        """
        if not self._begun:
            return False
        try:
            changed = [*_NAMES.values()] != self._values
        except BaseException:  # noqa: BLE001 -- a handler's object that cannot be compared
            changed = True
        if changed:
            for name in [*_NAMES]:
                if name not in self._names:
                    del _NAMES[name]
            _NAMES.update(self._names)
            self._values = [*_NAMES.values()]
        return changed

    def collect(self) -> None:
        """Let garbage be collected now if there is enough of it."""
        if self._begun and self._collects:
            gc.enable()
            _Garbage()  # the allocation that makes CPython look
            gc.disable()


def _settings() -> tuple[Any, ...]:
    """Return what costs next to nothing to look at, and all at once."""
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
    """Something to allocate."""


def _depth() -> int:
    """Return the interpreter's depth of recursion, calls from C included."""
    try:
        sys.setrecursionlimit(1)
    except RecursionError as error:  # its text is the only place that tells
        found = _DEPTH.search(str(error))
        assert found is not None, "CPython has said so since 3.5"
        return int(found[1])
    raise AssertionError("nothing runs at depth 0")
