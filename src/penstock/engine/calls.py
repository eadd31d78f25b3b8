"""Call statistics: how often the edges of the dataflow graph are used at run time.

Inside a transaction a call between entities is a plain Python call, which cannot be counted directly.
So a sample of the transactions runs under CPython's call counter (`_lsprof`, written in C: it adds no
frame, changes no variable and raises nothing, so it changes no outcome). The counts of the sample are
scaled by how often each root ran. The sample contains the first `SAMPLED_RUN` transactions of each
root in a task, so small epochs are counted exactly, and later runs of as many consecutive
transactions, because the interpreter must warm up again after each observation.

Names are those of the plan: `Order.checkout`, or the name of a function. A call through other code
(nested functions, code that classes share by `super()`) counts for the method that made it. A method
that several entity classes inherit from one plain class is not counted, because its code object does
not tell the class.
"""

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from cProfile import Profile
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from penstock.model.application import App
from penstock.model.declaration import CREATIONS, RESERVED
from penstock.model.entity import WAKING
from penstock.model.entity_type import EntityType
from penstock.model.signature import Signature

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SAMPLED_RUN: Final = 8
HEAVY: Final = 200
"""Touched entities after which a root is not observed again: observation doubles a handler's time, which
matters for large handlers only."""

SAMPLED_EVERY: Final = 4_093
"""Transactions between two observations; a prime, so that a period in the requests does not bias them."""

Site = tuple[str, int, str, int]
"""File, first line, qualified name and first column of a function's code: code objects are equal to
their copies, and two generator expressions of one line differ only in their columns."""


class Member(NamedTuple):
    """The names of a function in the plan: as source of edges, and as target."""

    source: str
    target: str


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """The calls of all observed transactions of one root: the count of each edge."""

    transactions: int
    calls: dict[str, float]


_NOBODY: Final = Member("", "")


def members_of(app: App) -> dict[Site, Member]:
    """Return the code sites of the methods and functions in the plan."""
    members: dict[Site, Member] = {}
    for entity in app.entities.values():
        for name, function in _methods_of(entity):
            site = _site_of(function.__code__)
            member = Member(f"{entity.name}.{name}", f"{entity.name}.{name}")
            if name in CREATIONS:  # they run the same methods of the class as `create`
                member = Member(f"{entity.name}.create", member.target)
            members[site] = member if site not in members else _NOBODY
    for name, signature in app.functions.items():
        function = inspect.unwrap(signature.function)
        members[_site_of(function.__code__)] = Member(name, name)
    return members


def _methods_of(entity: EntityType) -> Iterator[tuple[str, FunctionType]]:
    for name, member in inspect.getmembers_static(entity.cls):
        special = name.startswith("__") and name.endswith("__")
        thing = member.fget if isinstance(member, property) else member
        if isinstance(thing, classmethod) and name in RESERVED:
            thing = thing.__func__
        if isinstance(thing, FunctionType) and not special:
            yield name, inspect.unwrap(thing)


class CallSampler:
    """Observes some of the transactions of one task.

    Attributes:
        settled: The roots of which enough is known, so that only one in `SAMPLED_EVERY` transactions
            needs `begin`. A creation's signature is that of two roots, so it is never here.
        running: The active call counter, if any.
    """

    def __init__(self, members: Mapping[Site, Member], heavy: set[str] | None = None) -> None:
        self._heavy = set() if heavy is None else heavy  # shared by all tasks of a process
        self._root = ""
        self.settled: dict[Signature, str] = {}
        self.running: Profile | None = None
        self._members = members
        self._looks: dict[tuple[str, str], _Look] = {}

    def begin(self, entity: str, method: str, signature: Signature, number: int) -> str:
        """Observe the handler that starts now if it is in the sample; return the name of its root."""
        look = self._looks.get((entity, method))
        if look is None:
            look = self._looks[entity, method] = _Look(f"{entity}.{method}" if entity else method)
        if look.root in self._heavy:
            pass
        elif look.transactions < SAMPLED_RUN or number % SAMPLED_EVERY < SAMPLED_RUN:
            self._look_at(look)
        elif method not in RESERVED:
            self.settled[signature] = look.root
        return look.root

    def end(self, touched: int) -> None:
        """Stop observing: the handler has ended and has touched `touched` entities."""
        if self.running is not None:
            with suppress(ValueError):  # the handler has ended the observation itself
                self.running.disable()
            self.running = None
            if touched > HEAVY:
                self._heavy.add(self._root)

    def samples(self) -> dict[str, Sample]:
        """Return the sample of each root."""
        return {
            look.root: Sample(look.transactions, _edges(look.profile, self._members))
            for look in self._looks.values()
            if look.transactions
        }

    def _look_at(self, look: "_Look") -> None:
        if sys.getprofile() is not None:  # another profiler is active
            return
        try:  # CPython 3.14 forgets what the constructor was told
            look.profile.enable(subcalls=True, builtins=False)
        except ValueError:  # another one is active: CPython 3.12 and later have one at a time
            return
        look.transactions += 1
        self._root = look.root
        self.running = look.profile


class _Look:
    """The observations of one root."""

    __slots__ = ("profile", "root", "transactions")

    def __init__(self, root: str) -> None:
        self.root = root
        self.transactions = 0
        self.profile = Profile()


def estimate(
    roots: Iterable[Mapping[str, int]], samples: Iterable[Mapping[str, Sample]]
) -> dict[str, int]:
    """Return how often each edge was used: `Order.checkout>Item.subtract`; `>…` from outside.

    Args:
        roots: How often each root is in the committed transactions; for each task.
        samples: The samples of each task, of all runs of its transactions.
    """
    times: dict[str, int] = {}
    for task_roots in roots:
        for root, count in task_roots.items():
            times[root] = times.get(root, 0) + count
    looked: dict[str, int] = {}
    seen: dict[tuple[str, str], float] = {}
    for task in samples:
        for root, sample in task.items():
            looked[root] = looked.get(root, 0) + sample.transactions
            for edge, calls in sample.calls.items():
                seen[root, edge] = seen.get((root, edge), 0.0) + calls
    inner: dict[str, float] = {}
    for (root, edge), calls in seen.items():
        inner[edge] = inner.get(edge, 0.0) + calls * times.get(root, 0) / looked[root]
    outer = {f">{root}": count for root, count in times.items()}
    return outer | {edge: round(calls) for edge, calls in inner.items() if round(calls)}


def _edges(profile: Profile, members: Mapping[Site, Member]) -> dict[str, float]:
    """Return the calls between members, including calls through helpers."""
    entries: list[Any] = [entry for entry in profile.getstats() if isinstance(entry.code, CodeType)]
    placed = [(_site_of(entry.code), entry) for entry in entries]
    total = {site: entry.callcount for site, entry in placed}
    ahead = {
        site: {_site_of(call.code): call.callcount for call in entry.calls or ()}
        for site, entry in placed
    }
    helpers = _helpers(members, ahead)
    shares = _shares(helpers, ahead, total)
    calls_by_edge: dict[str, float] = {}
    for site in filter(members.__contains__, ahead):
        source = members[site].source
        made = {target: float(calls) for target, calls in ahead[site].items()}
        for index, helper in enumerate(helpers):
            visits = sum(shares[step, index] * made.get(by, 0.0) for step, by in enumerate(helpers))
            for target, calls in ahead[helper].items() if visits else ():
                if target in members:
                    made[target] = made.get(target, 0.0) + visits * calls / total[helper]
        for target, calls in made.items():
            if source and members.get(target, _NOBODY).target:
                edge = f"{source}>{members[target].target}"
                calls_by_edge[edge] = calls_by_edge.get(edge, 0.0) + float(calls)
    return calls_by_edge


def _shares(
    helpers: Sequence[Site], ahead: Mapping[Site, Mapping[Site, int]], total: Mapping[Site, int]
) -> "npt.NDArray[np.floating[Any]]":
    """Return how often the second helper runs, on average, for each call of the first.

    Helpers that call each other are an absorbing Markov chain: this is its fundamental matrix
    (Kemeny & Snell, *Finite Markov Chains*, 1960, chapter 3). If observed helpers never leave each
    other, the matrix is singular, and calls through helpers are not counted.

    Returns:
        float64, shape (helpers, helpers).
    """
    import numpy as np  # noqa: PLC0415 -- tests of applications run handlers without numpy

    if not helpers:  # of most roots
        return np.empty((0, 0))
    index = {site: number for number, site in enumerate(helpers)}
    steps: npt.NDArray[np.float64] = np.eye(len(helpers))
    for site in helpers:
        for target, calls in ahead[site].items():
            if target in index:
                steps[index[site], index[target]] -= calls / total[site]
    try:
        inverse = np.linalg.inv(steps)
    except np.linalg.LinAlgError:
        return np.zeros_like(steps)
    return inverse if np.isfinite(inverse).all() else np.zeros_like(steps)


def _helpers(
    members: Mapping[Site, Member], ahead: Mapping[Site, Mapping[Site, int]]
) -> list[Site]:
    """Return the functions that are not members and have called a member, directly or indirectly."""
    behind: dict[Site, list[Site]] = {}
    for site, calls in ahead.items():
        if site not in members and site != _WAKING:
            for target in calls:
                behind.setdefault(target, []).append(site)
    helpers: dict[Site, None] = {}
    pending = [site for site in behind if site in members]
    while pending:
        fresh = [site for site in behind.get(pending.pop(), ()) if site not in helpers]
        helpers.update(dict.fromkeys(fresh))
        pending += fresh
    return list(helpers)


def _site_of(code: CodeType) -> Site:
    column = next((start for _, _, start, _ in code.co_positions() if start), 0)
    return code.co_filename, code.co_firstlineno, code.co_qualname, column


_WAKING: Final = _site_of(WAKING)
"""The function runs at the first touch after a savepoint, for any caller, so it does not count as a helper."""
