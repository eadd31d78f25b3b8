"""Statistics of calls: they count real calls, agree with the plan, and change no outcome."""

import cProfile
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from penstock import App, Entity, key, readonly, transactional
from penstock.base.ids import EntityKey, RequestId
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.graph import Plan
from penstock.deployment.loading import load_app
from penstock.engine.calls import (
    HEAVY,
    SAMPLED_EVERY,
    SAMPLED_RUN,
    WINDOW_S,
    CallMemory,
    CallSampler,
    Sample,
    estimate,
    members_of,
)
from penstock.engine.execute import Executor, Limits, Outcome
from tests.golden.workshop import app as workshop
from tests.unit.dataflow.test_plan_covers_runs import CALLS

Call = tuple[str, object, str, tuple[Any, ...], dict[str, Any]]


class Named:
    """A plain class that two entities inherit from."""

    def name(self) -> str:
        return type(self).__name__


class Leaf(Named, Entity):
    leaf_id: str = key()
    seen: int = 0

    def touch(self) -> int:
        self.seen += 1
        return self.seen

    @readonly
    def peek(self) -> int:
        return self.seen

    def itself(self) -> "Leaf":
        return self

    def unobserved(self) -> None:
        if sys.version_info >= (3, 12):
            sys.monitoring.free_tool_id(sys.monitoring.PROFILER_ID)
        else:
            sys.setprofile(None)

    def frames(self) -> bool:
        return sys._getframe().f_back is not None


class Tree(Named, Entity):
    tree_id: str = key()
    leaves: list[Leaf] = []

    def worth(self) -> int:
        return sum(one.touch() for one in (leaf.itself() for leaf in self.leaves))

    def shake(self) -> int:
        return sum(leaf.touch() for leaf in self.leaves)

    def deep(self, depth: int) -> int:
        return down(self.leaves[0], depth)

    def look(self) -> int:
        def every() -> list[int]:
            return [leaf.peek() for leaf in self.leaves]

        return sum(every())

    def fall(self, depth: int) -> int:
        try:
            return 1 + self.fall(depth + 1)
        except RecursionError:
            return depth

    def pick(self) -> str:
        values = locals()
        values.pop("self")
        return self.name() + ",".join(values) + str(len(self.leaves))


def down(leaf: Leaf, depth: int) -> int:
    return leaf.touch() if depth == 0 else down(leaf, depth - 1)


@transactional
def plant(name: str) -> bool:
    leaves = [Leaf.create(f"{name}{n}") for n in range(3)]
    Tree.upsert(name, leaves=leaves)
    shake_all([name])
    return Leaf.exists(name)


@transactional
def shake_all(names: list[str]) -> int:
    total = 0
    for name in names:
        total += Tree(name).shake()
    return total


FOREST = App("forest", Leaf, Tree, plant, shake_all)
SHOP = load_app("examples/shop")
SHOPPING: list[Call] = [
    ("", None, "init_items", (5, 100, 1), {}),
    ("", None, "init_users", (5, 100), {}),
    ("", None, "init_orders", (5, 5, 5, 1), {}),
    *[("Order", str(number), "checkout", (), {}) for number in range(5)],
    ("User", "1", "pay", (1_000,), {}),
]
PLANTED: Call = ("", None, "plant", ("t",), {})

CALL_KINDS: list[Call] = [
    ("Tree", "t", "pick", (), {}),
    ("Tree", "t", "look", (), {}),
    ("Leaf", "t0", "frames", (), {}),
    ("Tree", "t", "shake", (), {}),
]
TOUCHED: Call = ("Leaf", "t0", "touch", (), {})


def run(app: App, calls: Sequence[Call], *, counted: bool) -> tuple[list[Outcome], dict[str, int]]:
    """Run calls in order; return their outcomes and the counted edges."""
    state: dict[EntityKey, bytes | None] = {}
    executor = Executor(app, state.get, Limits())
    sampler = CallSampler(members_of(app))
    if counted:
        executor.sampler = sampler
    outcomes, roots = [], dict[str, int]()
    for number, call in enumerate(calls):
        body, _ = app.request(*call)
        outcomes.append(executor.run(RequestId(f"r{number}"), body, 0))
        state.update(outcomes[-1].writes)
        if executor.root is not None:
            roots[executor.root] = roots.get(executor.root, 0) + 1
    return outcomes, estimate([roots], [sampler.samples()])


def counts(*calls: Call) -> dict[str, int]:
    """Return the counted edges of calls after `plant`."""
    _, before = run(FOREST, [PLANTED], counted=True)
    outcomes, after = run(FOREST, [PLANTED, *calls], counted=True)
    assert [one.error for one in outcomes] == [None] * len(outcomes)
    assert all(after[edge] >= count for edge, count in before.items())
    return {edge: more for edge, n in after.items() if (more := n - before.get(edge, 0))}


def edges_in(plan: Plan) -> set[str]:
    return {f"{edge.source.text}>{edge.target.text}" for edge in plan.edges}


def test_small_runs_are_counted_exactly() -> None:
    """Creations, functions and calls are counted as often as they happened, roots with no caller."""
    _, found = run(FOREST, [PLANTED], counted=True)
    assert found == {
        ">plant": 1,
        "plant>Leaf.create": 3,
        "plant>Tree.upsert": 1,
        "plant>shake_all": 1,
        "plant>Leaf.exists": 1,
        "shake_all>Tree.shake": 1,
        "Tree.shake>Leaf.touch": 3,
    }


def test_calls_through_helpers_count_for_the_method() -> None:
    """Recursive, nested and guarded functions in between leave the edge between the methods."""
    deep: Call = ("Tree", "t", "deep", (7,), {})
    assert counts(deep, deep) == {">Tree.deep": 2, "Tree.deep>Leaf.touch": 2}
    assert counts(("Tree", "t", "look", (), {})) == {">Tree.look": 1, "Tree.look>Leaf.peek": 3}
    assert counts(("Leaf", "t0", "peek", (), {})) == {">Leaf.peek": 1}


def test_two_generators_of_one_line_are_two_functions() -> None:
    """Nested generator expressions of one line are told apart, and their calls are counted."""
    assert counts(("Tree", "t", "worth", (), {})) == {
        ">Tree.worth": 1,
        "Tree.worth>Leaf.itself": 3,
        "Tree.worth>Leaf.touch": 3,
    }


def test_a_sampler_that_fails_is_dropped() -> None:
    """If the statistics fail, the request still has its outcome."""

    class Broken(CallSampler):
        def begin(self, *_: object) -> str:
            raise RuntimeError("no statistics today")

    executor = Executor(FOREST, lambda _: None, Limits())
    executor.sampler = Broken(members_of(FOREST))
    body, _ = FOREST.request(*PLANTED)
    assert executor.run(RequestId("r"), body, 0).error is None


def test_shared_methods_are_counted_for_nobody() -> None:
    """A method that two classes inherit is a root by its name, and no edge to either."""
    assert counts(("Tree", "t", "pick", (), {})) == {">Tree.pick": 1}
    assert counts(("Tree", "t", "name", (), {})) == {">Tree.name": 1}


def test_aborted_calls_are_counted() -> None:
    """A request that is undone has made its calls; one that names nothing has made none."""
    calls: list[Call] = [("Leaf", "nobody", "touch", (), {}), ("Leaf", "nobody", "create", (), {})]
    outcomes, found = run(FOREST, calls, counted=True)
    assert [one.error for one in outcomes] == ["no-such-entity", None]
    assert found == {">Leaf.touch": 1, ">Leaf.create": 1}
    executor = Executor(FOREST, lambda _: None, Limits())
    executor.sampler = CallSampler(members_of(FOREST))
    assert executor.run(RequestId("r"), b"nonsense", 0).error == "request"
    assert executor.root is None


def test_large_runs_are_scaled() -> None:
    """Of many transactions few are looked at, and the counts are still those of all."""
    many = SAMPLED_EVERY + 2 * SAMPLED_RUN
    found = counts(*[("Tree", "t", "shake", (), {})] * many)
    assert found == {">Tree.shake": many, "Tree.shake>Leaf.touch": 3 * many}


def test_counting_changes_no_outcome() -> None:
    """Replies and writes are the same with and without, at the limit of depth, and for `locals`."""
    calls = [
        PLANTED,
        *CALL_KINDS,
        ("Tree", "t", "fall", (0,), {}),
        ("Tree", "t", "deep", (10_000,), {}),
    ]
    without, nothing = run(FOREST, calls, counted=False)
    counted, _ = run(FOREST, calls, counted=True)
    assert counted == without
    assert nothing == {}


def test_profiled_application_is_left_alone() -> None:
    """Under a foreign profiler roots are counted, and the profiler goes on."""
    events: list[str] = []

    def profile(_frame: object, event: str, _argument: object) -> None:
        events.append(event)

    sys.setprofile(profile)
    try:
        _, found = run(FOREST, [PLANTED, PLANTED], counted=True)
        current: object = sys.getprofile()
    finally:
        sys.setprofile(None)
    assert current == profile
    assert "call" in events
    assert found == {">plant": 2}


def test_application_with_a_call_counter_is_left_alone() -> None:
    """Under another `cProfile` roots are counted: CPython 3.12 and later allow one at a time."""
    other = cProfile.Profile()
    other.enable()
    try:
        outcomes, found = run(FOREST, [PLANTED, TOUCHED], counted=True)
    finally:
        other.disable()
    assert [one.error for one in outcomes] == [None, None]
    assert found == {">plant": 1, ">Leaf.touch": 1}


def test_handler_that_ends_the_observation_harms_no_other() -> None:
    """A handler may take the call counter away from the interpreter; later transactions run."""
    outcomes, _ = run(
        FOREST, [PLANTED, ("Leaf", "t0", "unobserved", (), {}), TOUCHED], counted=True
    )
    assert [one.error for one in outcomes] == [None, None, None]


def test_nothing_looks_after_a_run() -> None:
    """However a handler ends, the interpreter runs unobserved afterwards."""
    run(FOREST, [PLANTED, ("Tree", "t", "deep", (10_000,), {})], counted=True)
    assert sys.getprofile() is None


def test_runs_in_several_tasks_are_put_together() -> None:
    """Samples of all tasks and rounds give the calls of each root; only standing runs count as roots."""
    _, found = run(FOREST, [PLANTED], counted=True)
    sampler = CallSampler(members_of(FOREST))
    executor = Executor(FOREST, lambda _: None, Limits())
    executor.sampler = sampler
    for _ in range(2):
        executor.run(RequestId("r"), FOREST.request(*PLANTED)[0], 0)
    seen = sampler.samples()
    doubled = estimate([{"plant": 1}, {"plant": 1}], [seen, seen, {}])
    assert doubled == {edge: 2 * count for edge, count in found.items()}


@pytest.mark.parametrize(
    ("app", "calls"),
    [(FOREST, [PLANTED, *CALL_KINDS]), (workshop, CALLS), (SHOP, SHOPPING)],
    ids=["forest", "workshop", "shop"],
)
def test_counted_edges_are_in_the_plan(app: App, calls: Sequence[Call]) -> None:
    """Every counted edge is in the plan, with the same names; roots are the called methods."""
    _, found = run(app, calls, counted=True)
    inner = {edge for edge in found if not edge.startswith(">")}
    assert inner <= edges_in(analyze_app(app))
    assert found.keys() - inner <= {f">{call[0]}.{call[2]}".replace(">.", ">") for call in calls}


def test_shop_is_counted() -> None:
    """A checkout of an order of two items is five calls, and all of them are seen."""
    _, found = run(SHOP, SHOPPING, counted=True)
    assert found == {
        ">init_items": 1,
        ">init_users": 1,
        ">init_orders": 1,
        ">Order.checkout": 5,
        ">User.pay": 1,
        "init_items>Item.upsert": 5,
        "init_users>User.upsert": 5,
        "init_orders>Order.upsert": 5,
        "Order.checkout>Item.subtract": 10,
        "Item.subtract>Item.add": 10,
        "Order.checkout>User.pay": 5,
        "User.pay>User.add_funds": 5,
    }


class Process:
    """Runs calls as the tasks of one process do, on a clock of its own."""

    def __init__(self, app: App) -> None:
        self.now_s = 0.0
        self._app = app
        self._memory = CallMemory(lambda: self.now_s)
        self._state: dict[EntityKey, bytes | None] = {}

    def run(self, *calls: Call) -> tuple[dict[str, Sample], int]:
        """Return the samples of a task, and how many of its transactions were observed."""
        sampler = CallSampler(members_of(self._app), self._memory)
        executor = Executor(self._app, self._state.get, Limits())
        executor.sampler = sampler
        for call in calls:
            body, _ = self._app.request(*call)
            self._state.update(executor.run(RequestId("r"), body, 0).writes)
        observed = sum(one.transactions for one in sampler._looks.values())
        return sampler.samples(), observed


SHAKE: Call = ("Tree", "t", "shake", (), {})


def test_small_tasks_share_their_observations() -> None:
    """A process observes a root a few times in each second, however many tasks run it, and counts all of its calls."""
    process = Process(FOREST)
    process.run(PLANTED)
    roots, samples, observed = [], [], []
    for second in range(2):
        process.now_s = second * WINDOW_S
        for _ in range(5):
            found, count = process.run(*[SHAKE] * 6)
            roots.append({"Tree.shake": 6})
            samples.append(found)
            observed.append(count)
    assert observed == [6, 2, 0, 0, 0] * 2
    assert [one["Tree.shake"].transactions for one in samples] == [6, 8, 8, 8, 8] * 2
    assert estimate(roots, samples) == {">Tree.shake": 60, "Tree.shake>Leaf.touch": 180}


def test_a_sample_follows_what_a_root_does_now() -> None:
    """A later second replaces the sample, so the counts are those of the present calls."""
    process = Process(FOREST)
    process.run(PLANTED)
    process.run(*[SHAKE] * 20)
    process.run(("Tree", "t", "upsert", (), {"leaves": []}))
    process.now_s = WINDOW_S
    process.run(*[SHAKE] * SAMPLED_RUN)
    found, observed = process.run(*[SHAKE] * 20)
    assert observed == 0
    assert found == {"Tree.shake": Sample(SAMPLED_RUN, {})}


def test_heavy_roots_are_looked_at_once() -> None:
    """A root that touches very many entities is not slowed down again, and its sample counts for all tasks."""
    process = Process(SHOP)
    call: Call = ("", None, "init_items", (HEAVY + 1, 5, 1), {})
    looked = []
    for _ in range(2):
        looked.append(process.run(call, call, call))
        process.now_s += WINDOW_S
    sample = Sample(1, {"init_items>Item.upsert": HEAVY + 1.0})
    assert looked == [({"init_items": sample}, 1), ({"init_items": sample}, 0)]
