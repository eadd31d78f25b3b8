"""`@effect`: a function that calls the outside, after the transaction that sent it has taken effect.

A handler may run again, so it cannot call the outside. It sends the effect, and a process of its own calls the function,
until it returns or is given up. The outcome is a request of its own:

```python
@effect(tries=8, timeout=timedelta(seconds=10))
def charge(order: str, cents: int) -> str: ...


class Order(Entity):
    def check_out(self) -> None:
        send(charge, self.order_id, self.total).then(self.charged)

    def charged(self, outcome: Outcome[str]) -> None: ...
```

This module has the declaration, and the functions that an effect can use while it runs. `effects` calls it.
"""

import functools
import inspect
import typing
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeVar, overload

import msgspec

from penstock.errors import (
    ConfigError,
    DefinitionError,
    OutsideTransaction,
    RequestError,
    UserError,
)
from penstock.model.context import active
from penstock.model.declaration import caller_place, where_of
from penstock.model.handler import check_marked
from penstock.model.limit import Limit, parse_limit
from penstock.model.running_step import DELAY_MAX

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

TRIES: typing.Final = 8
"""The tries of an effect that declares neither `tries` nor `until`."""

TRIES_MAX: typing.Final = 1_000
TIMEOUT: typing.Final = timedelta(seconds=30)
MARK: typing.Final = "__effect__"


class Final(Exception):
    """Raised by an effect: it has failed, and no further try would help."""


class RetryAfter(Exception):
    """Raised by an effect: it has failed, and the other side has said when the next try makes sense.

    Attributes:
        seconds: The pause before the next try.
    """

    def __init__(self, seconds: float, why: str = "") -> None:
        self.seconds = max(0.0, float(seconds))
        super().__init__(why or f"the other side asks for a pause of {self.seconds:g} s")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """How an effect has ended; the method of `.then` gets it.

    Attributes:
        status: `done`: the function has returned. `failed`: it was given up. `unknown`: a `once=True` effect was called, and
            its process ended before its result was noted.
        value: The result of the function; None if it is not done.
        error: Why it is not done; else empty.
        tries: How often the function was called.
        effect: The id of the effect, which `effect_id()` has returned in it.
    """

    status: Literal["done", "failed", "unknown"]
    value: T | None = None
    error: str = ""
    tries: int = 0
    effect: str = ""

    @property
    def done(self) -> bool:
        """Whether the function has returned."""
        return self.status == "done"

    @property
    def failed(self) -> bool:
        """Whether the effect was given up."""
        return self.status == "failed"

    @property
    def unknown(self) -> bool:
        """Whether the function may have done its work or not."""
        return self.status == "unknown"


class EffectPlan(msgspec.Struct, frozen=True):
    """The declaration of an effect.

    Attributes:
        tries: The most calls of the function.
        timeout_s: The time of one call, in seconds.
        until_s: The time from the send on after which no further try begins, in seconds; None without such a bound.
        once: Whether a call without a noted end stays the only call.
        is_async: Whether the function is `async def`.
    """

    tries: int
    timeout_s: float
    until_s: float | None
    once: bool
    is_async: bool


class _Mark(Protocol):
    """The decorator; the type of an `async def` effect is that of its result, which its outcome has."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Callable[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def effect(function: Callable[P, Coroutine[Any, Any, R]], /) -> Callable[P, R]: ...
@overload
def effect(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def effect(
    *,
    tries: int | None = None,
    timeout: timedelta = TIMEOUT,
    until: timedelta | None = None,
    once: bool = False,
) -> _Mark: ...
def effect(
    function: Callable[..., Any] | None = None,
    /,
    *,
    tries: int | None = None,
    timeout: timedelta = TIMEOUT,
    until: timedelta | None = None,
    once: bool = False,
) -> Any:
    """Mark a function as an effect: the goal of `send`, of `send_after`, and of `await ask(…)` in a workflow.

    The function runs outside of transactions, in a process of its own, once for each send and again after a failure. Its
    arguments and its result are values, as those of a request. It is a member of the `App`.

    Args:
        tries: The most calls; 8 if `until` is not given either, and else as many as fit in this time.
        timeout: The time of one call. A call that takes longer is ended, and is a failure.
        until: The time from the send on, after which no further try begins.
        once: Call the function once at most. The beginning is durable before the call; if the process ends before the
            result is noted, the outcome is `unknown`.

    Raises:
        DefinitionError: The marked object is not a function, or an argument is wrong.
    """
    where = caller_place()

    def mark(marked: Callable[..., Any]) -> Callable[..., Any]:
        check_marked(marked, "@effect", where)
        return marked_effect(marked, where, tries, timeout, until, once=once)

    return mark if function is None else mark(function)


def marked_effect(
    marked: Callable[..., Any],
    where: str,
    tries: int | None = None,
    timeout: timedelta = TIMEOUT,
    until: timedelta | None = None,
    *,
    once: bool = False,
) -> Callable[..., Any]:
    """Return a function as an effect; arguments and errors as in `effect`.

    Args:
        where: `file:line` of the declaration, for messages.
    """
    plan = _plan(marked, where, tries, timeout, until, once=once)

    @functools.wraps(marked)
    def called(*arguments: Any, **named: Any) -> Any:
        # A plain call works where no transaction runs: in a test of the function, and in the effect process.
        if active() is not None:
            raise UserError(
                f"{marked.__name__} is an effect, and a handler may run again; send it: send({marked.__name__}, …)"
            )
        return marked(*arguments, **named)

    setattr(called, MARK, plan)
    return called


def _plan(
    marked: Callable[..., Any],
    where: str,
    tries: int | None,
    timeout: timedelta,
    until: timedelta | None,
    *,
    once: bool,
) -> EffectPlan:
    complaints = [*_complaints(tries, timeout, until, once=once)]
    if inspect.isgeneratorfunction(marked) or inspect.isasyncgenfunction(marked):
        complaints.append("it is a generator; an effect returns its result")
    if complaints:
        name = marked.__name__
        raise DefinitionError([f"{where}: {name}: {complaint}" for complaint in complaints])
    most = TRIES if until is None else TRIES_MAX
    return EffectPlan(
        tries=1 if once else tries or most,
        timeout_s=timeout.total_seconds(),
        until_s=None if until is None else until.total_seconds(),
        once=once,
        is_async=inspect.iscoroutinefunction(marked),
    )


def _complaints(tries: Any, timeout: Any, until: Any, *, once: Any) -> Iterator[str]:
    """Yield the mistakes in the arguments of `@effect`."""
    if tries is not None and (type(tries) is not int or not 1 <= tries <= TRIES_MAX):
        yield f"tries={tries!r} must be a number from 1 to {TRIES_MAX}"
    for word, given in {"timeout": timeout, **({} if until is None else {"until": until})}.items():
        if not isinstance(given, timedelta) or not timedelta() < given <= DELAY_MAX:
            yield f"{word}={given!r} must be a timedelta from 1 us to 1,000 years"
    if type(once) is not bool:
        yield f"once={once!r} is neither True nor False"
    elif once and tries not in (None, 1):
        yield f"once=True calls the function once; omit tries={tries}"


def plan_of(function: object) -> EffectPlan | None:
    """Return the declaration of an effect; None for another function."""
    plan = getattr(function, MARK, None)
    return plan if isinstance(plan, EffectPlan) else None


def limits_of_effect(function: Callable[..., Any]) -> tuple[Limit, ...]:
    """Return the limits of an effect.

    Raises:
        RequestError: A text does not describe a limit, or the limit counts principals or keys.
    """
    texts: Iterable[str] = getattr(function, "__limits__", ())
    limits = tuple(map(parse_limit, texts))
    for each in limits:
        if each.per:
            raise RequestError(f"an effect has no {each.per}; remove `per {each.per}`")
    return limits


def complaints_of_effects(functions: Iterable[Callable[..., Any]]) -> Iterator[str]:
    """Yield the mistakes in the limits of effects."""
    for function in functions:
        try:
            limits_of_effect(function)
        except RequestError as error:
            yield f"{where_of(function)}: {function.__name__}: {error}"


class RunningEffect(NamedTuple):
    """The call of an effect that runs.

    Attributes:
        id: The id of the effect.
        secrets: Returns a secret by its name; None for an unknown name.
        sent_us: When it was sent, microseconds since the Unix epoch.
    """

    id: str
    secrets: Callable[[str], str | None]
    sent_us: int = 0


RUNNING: typing.Final[ContextVar[RunningEffect]] = ContextVar("penstock_effect")
"""The call of an effect that runs in this process; the effect process sets it."""


def _running(what: str) -> RunningEffect:
    try:
        return RUNNING.get()
    except LookupError:
        raise OutsideTransaction(f"only an effect has {what}, while it runs") from None


def effect_id() -> str:
    """Return the id of the running effect, for the `Idempotency-Key` of a call.

    All tries of one effect have the same id, also after restarts and in a restored directory. In a fork it is another.
    """
    return _running("an id").id


def secret(name: str) -> str:
    """Return a secret that the effect process has from its file of secrets, or from its environment.

    Its value is removed from every error and every outcome that leaves the effect process.

    Raises:
        ConfigError: The secret is missing.
    """
    running = _running("secrets")
    value = running.secrets(name)
    if value is None:
        raise ConfigError(
            f"the secret {name} is missing: add a line {name}=… to the file that the setting effects.secrets names, or set the "
            "variable in the environment"
        )
    return value
