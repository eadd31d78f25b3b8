"""Executes one request with its cascade several times in a process with a chosen clock, hash seed and environment.

`history.nondeterminism` starts this process with the hash seed and the environment. The clock stands
still, so that an influence of the clock differs from randomness. The text that the application prints
goes to standard error.
"""

import datetime
import hashlib
import sys
import time
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any, BinaryIO, Final

import msgspec

from penstock.base.ids import EntityKey, Lsn, RequestId
from penstock.deployment.loading import Location, load
from penstock.engine.execute import Limits, Outcome
from penstock.engine.replay import Replayer, RequestRow
from penstock.engine.streams.cascade import Cascade
from penstock.engine.streams.recorded_cascade import sent_of
from penstock.history.audit_hook import refuse_other_threads
from penstock.history.sandbox import Sandbox
from penstock.process.guard import Guard
from penstock.process.question import answer_question


class Experiment(msgspec.Struct, frozen=True):
    """A request and its dependencies.

    Attributes:
        states: The entities and rows that the request and its cascade read; others do not exist.
        runs: How often the request is executed.
        clock_ns: The time of every clock, nanoseconds since the Unix epoch.
    """

    location: Location
    request_id: str
    body: bytes
    time_us: int
    states: Mapping[EntityKey, bytes | None]
    runs: int
    clock_ns: int
    limits: Limits
    secret: bytes


class Result(msgspec.Struct, frozen=True):
    """The outcome of one execution.

    Attributes:
        error, reply: Those of the request.
        writes: The changes of the request and of its cascade.
        cascade: A hash of the atoms, sent requests and later records of the cascade.
    """

    error: str | None
    reply: bytes
    writes: Mapping[EntityKey, bytes | None]
    cascade: bytes


def result_of(outcome: Outcome, cascade: Cascade | None) -> Result:
    """Return the result of a request that has run with its cascade."""
    published, later = ((), ()) if cascade is None else (cascade.published, cascade.later)
    caused = msgspec.msgpack.encode((published, sent_of(cascade), later))
    return Result(outcome.error, outcome.reply, outcome.writes, hashlib.sha256(caused).digest())


_DATETIME: Final = datetime.datetime
_DATE: Final = datetime.date


def _results(experiment: Experiment, _: BinaryIO) -> list[Result]:
    known = set(sys.modules)
    stop_time(experiment.clock_ns)
    app = load(experiment.location)
    for name in sorted(sys.modules.keys() - known):
        stop_dates(sys.modules[name], experiment.clock_ns)
    state = {key: data for key, data in experiment.states.items() if data is not None}
    replayer = Replayer(app, state, experiment.limits)
    replayer.executor.secret = experiment.secret
    request_id = RequestId(experiment.request_id)
    row = RequestRow(Lsn(0), request_id, experiment.time_us, experiment.body, None, b"")
    results = []
    refuse_other_threads()
    with Guard(replayer.executor, experiment.limits), Sandbox(replayer.executor):
        for _run in range(experiment.runs):
            outcome = replayer.run(row)
            results.append(result_of(outcome, replayer.cascade))
            replayer.written.clear()
    return results


def stop_time(clock_ns: int) -> None:
    """Replace the clocks of module `time`; later imports of its functions get the replaced ones."""
    seconds = clock_ns / 1_000_000_000
    broken_down: dict[str, Callable[..., Any]] = {
        name: getattr(time, name) for name in ("gmtime", "localtime", "ctime")
    }
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        setattr(time, name, lambda: seconds)
        setattr(time, f"{name}_ns", lambda: clock_ns)
    for name, function in broken_down.items():
        setattr(time, name, _with_default(function, seconds))


def _with_default(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    return lambda time_s=None: function(seconds if time_s is None else time_s)


def stop_dates(module: ModuleType, clock_ns: int) -> None:
    """Replace `datetime` and `date` in a loaded module by classes whose clock stands still."""
    # The module is loaded already, because its annotations need the real classes.
    still = {_DATETIME: _still_datetime(clock_ns), _DATE: _still_date(clock_ns)}
    for name, value in list(vars(module).items()):
        if value is datetime:
            inside = {**vars(datetime), "datetime": still[_DATETIME], "date": still[_DATE]}
            setattr(module, name, SimpleNamespace(**inside))
        elif value is _DATETIME or value is _DATE:
            setattr(module, name, still[value])


class _Still(type):
    """The metaclass of a replaced class: calls and instance checks go to the real class."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        return cls.__mro__[1](*arguments, **named)


def _still_datetime(clock_ns: int) -> type:
    def now(tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return _DATETIME.fromtimestamp(clock_ns / 1_000_000_000, tz)

    def utcnow() -> datetime.datetime:
        return now(datetime.UTC).replace(tzinfo=None)

    functions = {"now": staticmethod(now), "utcnow": staticmethod(utcnow)}
    return _Still("datetime", (_DATETIME,), {**functions, "today": staticmethod(now)})


def _still_date(clock_ns: int) -> type:
    def today() -> datetime.date:
        return _DATE.fromtimestamp(clock_ns / 1_000_000_000)

    return _Still("date", (_DATE,), {"today": staticmethod(today)})


if __name__ == "__main__":
    answer_question(Experiment, _results)
