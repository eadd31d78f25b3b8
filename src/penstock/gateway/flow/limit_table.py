"""`LimitTable`: the limits of an application and its settings, found by method.

Promises that a request is counted by all limits of its method or by none, and that a method without
limits costs one look-up.
"""

import heapq
import math
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import msgspec

from penstock.errors import ConfigError, RequestError
from penstock.model.application import App, unknown
from penstock.model.declaration import RESERVED
from penstock.model.limit import (
    EVERYTHING,
    KEY,
    PRINCIPAL,
    STREAMS,
    Limit,
    key_complaint,
    parse_limits,
)

Group = str | bytes
"""A principal's namespace, the fingerprint of a key, or empty text."""

GROUPS_MAX: Final = 100_000
"""The largest number of groups that a rate limiter remembers, about 20 MB."""

AGAIN_S: Final = 1.0
"""The pause after a refusal for requests under way, whose end is unknown."""


class Limiter(Protocol):
    """Counts the requests of each group."""

    def wait_s(self, group: Group, now_s: float) -> float:
        """Return the seconds until the limit admits a request of a group; 0 if it does now."""

    def take(self, group: Group, now_s: float) -> None:
        """Count an admitted request."""

    def release(self, group: Group) -> None:
        """End the time under way of an admitted request."""


class RateLimiter:
    """Limits a rate with the generic cell rate algorithm (ITU-T I.371), the leaky bucket as a meter.

    It stores one time for each group: when the group's bucket is empty again. A call takes about a
    microsecond for any number of groups, and the memory is bounded.

    Args:
        rate_per_s: The requests per second in the long run.
        burst: The requests that are admitted at once after a rest.
    """

    def __init__(self, rate_per_s: float, burst: int) -> None:
        self._interval_s = 1 / rate_per_s
        self._slack_s = (burst - 1) / rate_per_s
        self._empty_at_s: dict[Group, float] = {}
        self._prune_at = 1_024

    def __len__(self) -> int:
        return len(self._empty_at_s)

    def wait_s(self, group: Group, now_s: float) -> float:
        """Return the seconds until the limit admits a request of a group; 0 if it does now."""
        wait_s = self._empty_at_s.get(group, now_s) - now_s - self._slack_s
        # The subtraction of large times rounds; a thousandth of the interval must not refuse a request.
        return wait_s if wait_s > self._interval_s * 1e-3 else 0.0

    def take(self, group: Group, now_s: float) -> None:
        """Count an admitted request."""
        self._empty_at_s[group] = max(self._empty_at_s.get(group, now_s), now_s) + self._interval_s
        if len(self._empty_at_s) > self._prune_at:
            self._prune(now_s)

    def release(self, group: Group) -> None:
        """Do nothing: a rate counts a request once."""

    def _prune(self, now_s: float) -> None:
        """Forget the groups that have rested, and those nearest to rest if there are too many."""
        kept = {group: at_s for group, at_s in self._empty_at_s.items() if at_s > now_s}
        if len(kept) > GROUPS_MAX:
            longest = heapq.nlargest(GROUPS_MAX // 2, kept.items(), key=lambda item: item[1])
            kept = dict(longest)
        self._empty_at_s = kept
        self._prune_at = min(max(1_024, 2 * len(kept)), GROUPS_MAX)


class ConcurrencyLimiter:
    """Limits the requests that are under way; it remembers only groups that have some."""

    def __init__(self, at_once: int) -> None:
        """Admit at most `at_once` requests of each group."""
        self._at_once = at_once
        self._counts: dict[Group, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def wait_s(self, group: Group, now_s: float) -> float:
        """Return the seconds after which a request of a group may be sent again; 0 if it may now."""
        return AGAIN_S if self._counts.get(group, 0) >= self._at_once else 0.0

    def take(self, group: Group, now_s: float) -> None:
        """Count an admitted request."""
        self._counts[group] = self._counts.get(group, 0) + 1

    def release(self, group: Group) -> None:
        """End the time under way of an admitted request."""
        left = self._counts[group] - 1
        if left:
            self._counts[group] = left
        else:
            del self._counts[group]


class Caller(NamedTuple):
    """The facts of a request that limits, pauses and fair shares use.

    Attributes:
        principal: The namespace of the principal; empty for the anonymous principal.
        entity: The name of the class; empty for a function. For an append, `streams/` and the name of the stream.
        method: The name of the method or function.
        key: The fingerprint of the entity's key, 8 bytes; empty for a function or a derived key.
        former: A former name of the class, which limits and pauses may have; empty if it has none.
    """

    principal: str
    entity: str
    method: str
    key: bytes = b""
    former: str = ""

    @property
    def target(self) -> str:
        """The method as limits and pauses name it."""
        return f"{self.entity}.{self.method}" if self.entity else self.method


class _Rule(msgspec.Struct, frozen=True):
    """A limit with its counts."""

    limit: Limit
    limiter: Limiter

    def group_of(self, caller: Caller) -> Group | None:
        """Return the group of a request; None if the limit does not count it."""
        if self.limit.per == PRINCIPAL:
            return caller.principal
        if self.limit.per == KEY:
            return caller.key or None
        return ""


Held = tuple[tuple[Limiter, Group], ...]
"""The counts that an admitted request holds until its time under way ends."""


class Excess(msgspec.Struct, frozen=True):
    """A limit that is reached, and the seconds until it admits the request."""

    limit: Limit
    wait_s: float


class LimitTable:
    """Applies limits. For one thread.

    Args:
        gateways: The number of gateways. Each of them enforces its share.
        former: The table before this one; a limit that it has, too, goes on with its counts.
    """

    def __init__(
        self, limits: Iterable[Limit], gateways: int = 1, former: "LimitTable | None" = None
    ) -> None:
        self._rules: dict[str, list[_Rule]] = {}
        kept = {} if former is None else former.limiters()
        for limit in limits:
            limiter = kept.get(limit) or _limiter(limit, gateways)
            self._rules.setdefault(limit.target, []).append(_Rule(limit, limiter))
        self._of_method: dict[tuple[str, str], tuple[_Rule, ...]] = {}

    def limiters(self) -> dict[Limit, Limiter]:
        """Return the counts of each limit."""
        return {rule.limit: rule.limiter for rules in self._rules.values() for rule in rules}

    def admit(self, caller: Caller, now_s: float) -> Held | Excess:
        """Count a request of an existing method, and return the counts that it holds.

        If a limit is reached, no limit counts the request.
        """
        rules = self._of_method.get((caller.entity, caller.method))
        if rules is None:
            rules = self._rules_of(caller)
        if not rules:
            return ()
        taken: list[tuple[Limiter, Group]] = []
        for rule in rules:
            group = rule.group_of(caller)
            if group is None:
                continue
            # All limits are asked before one of them counts, so that a refused request is counted
            # by none.
            wait_s = rule.limiter.wait_s(group, now_s)
            if wait_s > 0:
                return Excess(rule.limit, wait_s)
            taken.append((rule.limiter, group))
        for limiter, group in taken:
            limiter.take(group, now_s)
        return tuple(taken)

    def _rules_of(self, caller: Caller) -> tuple[_Rule, ...]:
        names = [caller.entity or caller.method, caller.target]
        if caller.former:
            names += [caller.former, f"{caller.former}.{caller.method}"]
        targets = dict.fromkeys((EVERYTHING, *names))
        rules = tuple(rule for target in targets for rule in self._rules.get(target, ()))
        self._of_method[caller.entity, caller.method] = rules
        return rules


def limits_in_force(app: App, setting: str) -> tuple[Limit, ...]:
    """Return the limits of an application and those of the setting `gateway.limits`."""
    try:
        limits = parse_limits(setting)
        for limit in limits:
            check_target(app, limit.target)
            complaint = key_complaint(limit, app.functions)
            if complaint:
                raise RequestError(complaint)
    except RequestError as error:
        raise ConfigError(f"gateway.limits: {error}") from error
    return (*app.limits, *limits)


def check_target(app: App, target: str) -> None:
    """Check that an application has the class, method, function or open stream that a target names.

    Raises:
        RequestError: The application lacks it; the message suggests similar names.
    """
    if target.startswith(STREAMS):
        app.open_stream(target.removeprefix(STREAMS))
        return
    name, _, method = target.partition(".")
    if target == EVERYTHING or (not method and app.present_name(name) in app.entities):
        return
    if not method and name not in app.functions:
        raise RequestError(unknown("class or function", name, [*app.entities, *app.functions]))
    app.signature(name if method else "", method or name)


def targets_of(app: App) -> list[str]:
    """Return all targets but everything: the classes with their methods, the functions, the open streams."""
    classes = [
        target
        for name, entity_type in app.entities.items()
        for target in (
            name,
            *(f"{name}.{method}" for method in sorted({*entity_type.methods, *RESERVED})),
        )
    ]
    streams = [
        f"{STREAMS}{name}" for name, stream in app.topology.streams.items() if stream.is_open
    ]
    return [*classes, *app.functions, *streams]


def _limiter(limit: Limit, gateways: int) -> Limiter:
    if limit.at_once:
        return ConcurrencyLimiter(math.ceil(limit.at_once / gateways))
    # Each gateway enforces its share: a common count would be a wait for each request.
    return RateLimiter(limit.rate_per_s / gateways, math.ceil(limit.burst / gateways))
