"""One request again, in a process with other surroundings: what `probe` starts.

    python -m penstock.history.determinism_run < experiment > results

The hash seed and the environment are those that the process was started with; the clock stands
still at the time that the experiment names. Standing still, it can be told from chance. What user
code prints goes to standard error.
"""

import datetime
import sys
import time
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import msgspec

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Executor, Limits
from penstock.history.audit_hook import refuse_other_threads
from penstock.history.sandbox import Sandbox
from penstock.process.guard import Guard
from penstock.process.loading import load_app
from penstock.process.question import receive_question


class Experiment(msgspec.Struct, frozen=True):
    """What is to be run.

    Attributes:
        spec: The application, as on the command line.
        states: The entities that the request touched; others do not exist.
        runs: How often.
        clock_ns: What every clock says, nanoseconds since the Unix epoch.
        secret: The journal's.
    """

    spec: str
    request_id: str
    body: bytes
    time_us: int
    states: Mapping[EntityKey, bytes | None]
    runs: int
    clock_ns: int
    limits: Limits
    secret: bytes


class Result(msgspec.Struct, frozen=True):
    """How one run ended."""

    error: str | None
    reply: bytes
    writes: Mapping[EntityKey, bytes | None]


_DATETIME: Final = datetime.datetime
_DATE: Final = datetime.date


def main() -> None:
    """Run the experiment on standard input."""
    experiment, results_file = receive_question(Experiment)
    known = set(sys.modules)
    stop_time(experiment.clock_ns)
    app = load_app(experiment.spec)
    for name in sorted(sys.modules.keys() - known):
        stop_dates(sys.modules[name], experiment.clock_ns)
    executor = Executor(app, experiment.states.get, experiment.limits)
    executor.secret = experiment.secret
    results = []
    refuse_other_threads()
    with Guard(executor, experiment.limits), Sandbox(executor):
        for _ in range(experiment.runs):
            outcome = executor.run(
                RequestId(experiment.request_id), experiment.body, experiment.time_us
            )
            results.append(Result(outcome.error, outcome.reply, outcome.writes))
    with results_file:
        results_file.write(msgspec.msgpack.encode(results))


def stop_time(clock_ns: int) -> None:
    """Let the module `time` say the same for ever, also to who imports its functions later."""
    seconds = clock_ns / 1_000_000_000
    broken_down: dict[str, Callable[..., Any]] = {
        name: getattr(time, name) for name in ("gmtime", "localtime", "ctime")
    }
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        setattr(time, name, lambda: seconds)
        setattr(time, f"{name}_ns", lambda: clock_ns)
    for name, function in broken_down.items():
        setattr(time, name, _of_moment(function, seconds))


def _of_moment(function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    return lambda moment=None: function(seconds if moment is None else moment)


def stop_dates(module: ModuleType, clock_ns: int) -> None:
    """Let the dates that a module of the application has imported stand still.

    Types cannot be exchanged before: annotations mean the real ones.
    """
    still = {_DATETIME: _still_datetime(clock_ns), _DATE: _still_date(clock_ns)}
    for name, thing in list(vars(module).items()):
        if thing is datetime:
            inside = {**vars(datetime), "datetime": still[_DATETIME], "date": still[_DATE]}
            setattr(module, name, SimpleNamespace(**inside))
        elif thing is _DATETIME or thing is _DATE:
            setattr(module, name, still[thing])


class _Still(type):
    """Of a class that stands for its parent: instances are the parent's."""

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
    main()
