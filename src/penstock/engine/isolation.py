"""Isolation: undoes the changes that a handler makes to its process.

Each transaction runs in its own context (`contextvars`), a copy of the context in which the application
was built, and with its own decimal context. After each transaction the settings of the interpreter that
are cheap to read are compared, and restored if they differ. Cyclic garbage is collected only between
transactions, so that finalizers of one transaction never run inside another.

The settings of the interpreter are changed only between `begin` and `end`. `process.tampering` handles
settings of the operating system; docs/GUIDE.md lists the settings that are not checked.
"""

import builtins
import decimal
import gc
import sys
import warnings
from contextvars import Context
from functools import cache
from types import ModuleType
from typing import Any, Final

_collects: Final = gc.isenabled
_recursion: Final = sys.getrecursionlimit
_limit_recursion: Final = sys.setrecursionlimit
_TooLow: Final = RecursionError
_number: Final = int
_interval: Final = sys.getswitchinterval
_digits: Final = sys.get_int_max_str_digits
_trace: Final = sys.gettrace
_profile: Final = sys.getprofile
_TRUSTED: Final = (
    "penstock.base.lowering",
    "penstock.base.schema",
    "penstock.engine.execute",
    "penstock.engine.failure",
    "penstock.engine.isolation",
    "penstock.engine.sizes",
    "penstock.engine.streams.cascade",
    "penstock.engine.streams.cascade_runner",
    "penstock.engine.streams.derived_ids",
    "penstock.engine.streams.direct_task",
    "penstock.engine.streams.flow_events",
    "penstock.engine.streams.handler_start",
    "penstock.engine.streams.handler_turns",
    "penstock.engine.streams.held_state",
    "penstock.engine.streams.key_shares",
    "penstock.engine.streams.paused_flows",
    "penstock.engine.streams.resumption",
    "penstock.engine.streams.step_output",
    "penstock.engine.streams.step_runner",
    "penstock.engine.streams.step_services",
    "penstock.engine.streams.waiting",
    "penstock.engine.streams.routed_events",
    "penstock.engine.streams.stored_cascade",
    "penstock.engine.streams.waits",
    "penstock.engine.streams.workflow_step",
    "penstock.engine.task",
    "penstock.model.application",
    "penstock.model.context",
    "penstock.model.contents",
    "penstock.model.derived_values",
    "penstock.model.entity",
    "penstock.model.entity_type",
    "penstock.model.request",
    "penstock.model.savepoint",
    "penstock.model.signature",
    "penstock.model.streams.ask",
    "penstock.model.streams.event_type",
    "penstock.model.streams.portal",
    "penstock.model.streams.task_state",
    "penstock.model.streams.task_type",
    "msgspec",
    "msgspec.msgpack",
)
"""Modules that process a transaction, with their classes."""

_names_of: Final = vars
_kind_of: Final = type
_put_in_class: Final = type.__setattr__
_drop_from_class: Final = type.__delattr__
_DECIMAL: Final = "decimal_context"
_MUTABLE: Final = 1 << 9
"""CPython's flag of classes that are created at run time and can be changed (Py_TPFLAGS_HEAPTYPE)."""


class Isolation:
    """Keeps the transactions of one executor apart.

    Attributes:
        restored: Whether names were restored since the caller has set it to False.
    """

    __slots__ = (
        "_base",
        "_begun",
        "_collects",
        "_decimal",
        "_depth",
        "_filtered",
        "_filters",
        "_recursion",
        "_settings",
        "_watched",
        "_watching",
        "restored",
    )

    def __init__(self, context: Context, depth: int) -> None:
        """Begin.

        Args:
            context: The context in which the application was built.
            depth: Frames that a handler may use.
        """
        self._depth = depth
        self._begun = False
        self.restored = False
        self._settings: tuple[Any, ...] = ()
        self._filters: Any = None
        self._filtered: list[Any] = []
        self._watched = _watched()
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
        for names in self._watched:
            names.learn()
        self._settings = ()
        self._watching = (_trace(), _profile())
        self._begun = True
        self.restored = False
        gc.disable()

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

    def restore_names(self, *, everywhere: bool = True) -> None:
        """Restore names that a handler has replaced; if there are any, set `restored`.

        Args:
            everywhere: Check Penstock's modules and classes, and not only Python's built-in names.
                This costs half as much as a small transaction.
        """
        if not self._begun:
            return
        for names in self._watched if everywhere else self._watched[:1]:
            if names.restore():
                self.restored = True

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


class _Names:
    """The names of a module or a class.

    Python's functions are called by the names of this module, because a handler may have replaced the
    built-in names.
    """

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._is_class = isinstance(owner, type)
        self._names: dict[str, Any] = {}
        self._values: list[Any] = []

    def learn(self) -> None:
        """Remember the current names."""
        if self._differ():
            self._names = {**_names_of(self._owner)}
            self._values = [*self._names.values()]

    def restore(self) -> bool:
        """Restore the names that differ from the remembered names; return whether any did."""
        if not self._differ():
            return False
        now = _names_of(self._owner)
        added = [name for name in now if name not in self._names]
        imported = [name for name in added if _kind_of(now[name]) is ModuleType]
        if imported:  # a handler may import a submodule; the package keeps it
            self._names.update({name: now[name] for name in imported})
            self._values = [self._names[name] for name in now if name in self._names]
            return self.restore()
        for name in added:
            self._drop(name)
        for name, value in self._names.items():
            if name not in now or now[name] is not value:
                self._put(name, value)
        self.learn()  # in the order that they have now
        return True

    def _differ(self) -> bool:
        try:
            return [*_names_of(self._owner).values()] != self._values  # mostly by identity, in C
        except BaseException:  # noqa: BLE001 -- an object of a handler's that cannot be compared
            return True

    def _put(self, name: str, value: Any) -> None:
        if self._is_class:
            _put_in_class(self._owner, name, value)
        else:
            _names_of(self._owner)[name] = value

    def _drop(self, name: str) -> None:
        if self._is_class:
            _drop_from_class(self._owner, name)
        else:
            del _names_of(self._owner)[name]


@cache
def _watched() -> list[_Names]:
    """Return the namespaces to check: Python's built-in names first."""
    modules = [sys.modules[name] for name in _TRUSTED if name in sys.modules]
    classes = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and value.__flags__ & _MUTABLE
    ]
    return [_Names(owner) for owner in (builtins, *modules, *classes)]


class _Garbage:
    """An object to allocate."""


def _depth() -> int:
    """Return the interpreter's depth of recursion, calls from C included."""
    try:
        _limit_recursion(1)
    except _TooLow as error:  # its text is the only place that tells
        return _number(error.args[0].partition(":")[0].rpartition(" ")[2])
    raise AssertionError("nothing runs at depth 0")
