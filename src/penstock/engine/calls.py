"""Call statistics: how often the edges of the dataflow graph are used at run time.

Inside a transaction a call between entities is a plain Python call, which cannot be counted directly.
So a sample of the transactions runs under CPython's call counter (`_lsprof`, written in C: it adds no
frame, changes no variable and raises nothing, so it changes no outcome). The counts of the sample are
scaled by how often each root ran. The sample contains the first `SAMPLED_RUN` transactions of each
root in a task, but no more than as many in a second of one process: a root that runs less often is counted
exactly, and a root that runs more often is scaled by its newest sample. In large tasks, it contains later runs of as many
consecutive transactions, because the interpreter must warm up again after each observation.

Names are those of the plan: `Order.checkout`, or the name of a function. A call through other code
(nested functions, code that classes share by `super()`) counts for the method that made it. A method
that several entity classes inherit from one plain class is not counted, because its code object does
not tell the class.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
WINDOW_S: Final = 1.0
"""In so many seconds, a process observes `SAMPLED_RUN` transactions of a root: observation takes as long as a small handler."""

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


class _Known:
    """The observations of one root in one process.

    Attributes:
        began_s: The begin of its window.
        observed: The transactions observed since then.
        sample: The newest sample; None before the first.
        is_former: Whether the sample is from an earlier window.
    """

    __slots__ = ("began_s", "is_former", "observed", "sample")

    def __init__(self) -> None:
        self.began_s = float("-inf")
        self.observed = 0
        self.sample: Sample | None = None
        self.is_former = True


class CallMemory:
    """The newest sample of each root, for all tasks of one process that have the same code.

    Args:
        clock: Returns seconds that only grow; without it, all tasks run in one second.
    """

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self._heavy: set[str] = set()
        self._roots: dict[str, _Known] = {}

    def takes(self, root: str) -> bool:
        """Say whether to observe a transaction of a root, and count it if so."""
        known = self._roots.get(root)
        if known is None:
            known = self._roots[root] = _Known()
        now_s = self._clock()
        if now_s - known.began_s >= WINDOW_S:
            known.began_s, known.observed, known.is_former = now_s, 0, True
        if known.observed >= SAMPLED_RUN:
            return False
        known.observed += 1
        return True

    def is_heavy(self, root: str) -> bool:
        """Say whether a transaction of a root has touched so many entities that no other one is observed."""
        return root in self._heavy

    def weigh(self, root: str, touched: int) -> None:
        """Take note of how many entities a transaction of a root has touched."""
        if touched > HEAVY:
            self._heavy.add(root)

    def keep(self, root: str, sample: Sample) -> None:
        """Keep a sample of a root, together with the others of its window."""
        known = self._roots.setdefault(root, _Known())
        former = None if known.is_former else known.sample
        known.sample = sample if former is None else _sum_of(former, sample)
        known.is_former = False

    def newest(self, root: str) -> Sample | None:
        """Return the newest sample of a root; None before the first."""
        known = self._roots.get(root)
        return None if known is None else known.sample


def _sum_of(first: Sample, second: Sample) -> Sample:
    calls = first.calls.copy()
    for edge, count in second.calls.items():
        calls[edge] = calls.get(edge, 0.0) + count
    return Sample(first.transactions + second.transactions, calls)


class CallSampler:
    """Observes some of the transactions of one task.

    Args:
        memory: The samples of the tasks before it in its process.

    Attributes:
        settled: The roots of which enough is known, so that only one in `SAMPLED_EVERY` transactions
            needs `begin`. A creation's signature is that of two roots, so it is never here.
        running: The active call counter, if any.
    """

    def __init__(self, members: Mapping[Site, Member], memory: CallMemory | None = None) -> None:
        self._memory = CallMemory() if memory is None else memory
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
        # The first transactions of a task have no turn by their number alone: most tasks are small.
        has_turn = number >= SAMPLED_EVERY and number % SAMPLED_EVERY < SAMPLED_RUN
        is_wanted = not self._memory.is_heavy(look.root) and (
            has_turn or (look.transactions < SAMPLED_RUN and self._memory.takes(look.root))
        )
        if is_wanted:
            self._look_at(look)
        else:
            look.is_partial = True
            if method not in RESERVED:
                self.settled[signature] = look.root
        return look.root

    def end(self, touched: int) -> None:
        """Stop observing: the handler has ended and has touched `touched` entities."""
        if self.running is not None:
            with suppress(ValueError):  # the handler has ended the observation itself
                self.running.disable()
            self.running = None
            self._memory.weigh(self._root, touched)

    def samples(self) -> dict[str, Sample]:
        """Return the sample of each root that ran; the newest one of the process, if not all of its transactions were observed."""
        samples: dict[str, Sample] = {}
        for look in self._looks.values():
            sample = None
            if look.profile is not None:
                sample = Sample(look.transactions, _edges(look.profile, self._members))
                self._memory.keep(look.root, sample)
            if look.is_partial:
                sample = self._memory.newest(look.root)
            if sample is not None:
                samples[look.root] = sample
        return samples

    def _look_at(self, look: "_Look") -> None:
        if sys.getprofile() is not None:  # another profiler is active
            return
        profile = Profile() if look.profile is None else look.profile
        try:  # CPython 3.14 forgets the arguments of the constructor
            profile.enable(subcalls=True, builtins=False)
        except ValueError:  # another one is active: CPython 3.12 and later have one at a time
            return
        look.transactions += 1
        self._root = look.root
        self.running = look.profile = profile


class _Look:
    """The observations of one root."""

    __slots__ = ("is_partial", "profile", "root", "transactions")

    def __init__(self, root: str) -> None:
        self.root = root
        self.transactions = 0
        self.is_partial = False
        self.profile: Profile | None = None  # of the first transaction that is observed


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
