"""The entities that requests really access are in the plan: the analysis against the executor."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from penstock import App
from penstock.base.ids import EntityKey, RequestId, split_entity_key
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.graph import Action, Edge, Endpoint, Plan
from penstock.engine.execute import Executor, Limits, Outcome
from tests.golden.workshop import app as workshop

Call = tuple[str, object, str, tuple[Any, ...], dict[str, Any]]
Part, Machine = workshop.entities["Part"].cls, workshop.entities["Machine"].cls

CALLS: Sequence[Call] = [
    ("Part", "screw", "create", (), {"price": 3, "stock": 5}),
    ("Machine", "lathe", "create", (), {}),
    ("Machine", "mill", "create", (), {"next": Machine("lathe")}),
    ("Part", "bolt", "create", (), {"price": 20, "made_by": Machine("mill")}),
    ("Job", None, "create", ("j1", [(Part("bolt"), 2), (Part("screw"), 1)]), {}),
    ("Part", "bolt", "take", (2,), {}),
    ("Machine", "mill", "chain", (), {}),
    ("Job", "j1", "total", (), {}),
    ("Job", "j1", "run", (), {}),
    ("Job", "j1", "split", (1,), {}),
]


def outcomes_of(app: App, calls: Sequence[Call]) -> Iterator[tuple[Call, Outcome]]:
    state: dict[EntityKey, bytes] = {}
    executor = Executor(app, state.get, Limits())
    for number, call in enumerate(calls):
        body, _ = app.request(*call)
        outcome = executor.run(RequestId(f"r{number}"), body, 0)
        state.update({key: data for key, data in outcome.writes.items() if data is not None})
        yield call, outcome


def reachable(plan: Plan, root: Endpoint) -> list[Edge]:
    """Return every edge of a method and of those that it leads to."""
    seen, pending, found = {root}, [root], []
    while pending:
        source = pending.pop()
        for edge in plan.edges:
            if edge.source == source:
                found.append(edge)
                if edge.target not in seen:
                    seen.add(edge.target)
                    pending.append(edge.target)
    return found


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]}.{call[2]}")
def test_run_touches_only_what_the_plan_says(call: Call) -> None:
    """Classes that a request read or wrote are targets of edges that its method leads to."""
    (outcome,) = [one for made, one in outcomes_of(workshop, CALLS) if made is call]
    assert outcome.error is None
    edges = reachable(analyze_app(workshop), Endpoint(call[0], call[2]))
    changing = (Action.WRITE, Action.CREATE, Action.DELETE)
    read = {split_entity_key(key)[0] for key in outcome.reads}
    written = {split_entity_key(key)[0] for key in outcome.writes}
    assert read <= {call[0], *(edge.target.operator for edge in edges)}
    created = {call[0]} if call[2] == "create" else set()
    assert written <= created | {edge.target.operator for edge in edges if edge.action in changing}
