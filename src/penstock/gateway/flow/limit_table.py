"""`LimitTable`: the limits of an application and its settings, found by method.

Promises that a request is counted by all limits of its method or by none, and that a method without
limits costs one look-up.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import ConfigError, RequestError
from penstock.gateway.flow.limiters import ConcurrencyLimiter, Group, Limiter, RateLimiter
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


@dataclass(frozen=True, slots=True)
class _Rule:
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


@dataclass(frozen=True, slots=True)
class Excess:
    """A limit that is reached, and the seconds until it admits the request."""

    limit: Limit
    wait_s: float


class LimitTable:
    """Applies limits. For one thread."""

    def __init__(
        self, limits: Iterable[Limit], gateways: int = 1, former: "LimitTable | None" = None
    ) -> None:
        """Take the limits of an application.

        Args:
            gateways: The number of gateways. Each of them enforces its share.
            former: The table before this one; a limit that it has, too, goes on with its counts.
        """
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
    return RateLimiter(limit.rate_per_s / gateways, math.ceil(limit.burst / gateways))
