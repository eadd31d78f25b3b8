"""Finds out why a replay differs: the handler is nondeterministic, or the code has changed.

The request is executed several times in child processes that differ in one influence each: the hash
seed, the environment, the clock. An influence that changes the outcome is a cause. The suspicious
lines are warnings of the analysis for code that the request can reach.

A rare influence may not show in these runs. In this case the code is reported as changed, together
with the suspicious lines.
"""

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

from penstock.base.ids import EntityKey
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.graph import Endpoint, Hazard
from penstock.deployment.loading import Location
from penstock.engine.execute import Limits
from penstock.engine.replay import RequestRow
from penstock.errors import PenstockError, RequestError
from penstock.history.determinism_run import Experiment, Result
from penstock.model.application import App
from penstock.model.request import decode_request
from penstock.process.question import ChildEnded, ask_child

RUNS: Final = 4
TIMEOUT_S: Final = 120
_SEEDS: Final = ("1", "2", "3")
_LATER_NS: Final = (400 * 86_400 + 41_861) * 1_000_000_000
"""Another year, month, day, weekday, hour, minute and second."""

_KEPT: Final = ("PATH", "HOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME")


@unique
class Cause(StrEnum):
    """An influence that changes a request's outcome."""

    CHANCE = "chance"
    GLOBALS = "global variables"
    ORDER = "set order or hash()"
    ENVIRONMENT = "environment"
    CLOCK = "clock"
    OUTSIDE = "outside call"
    CODE = "code"


MEANING: Final = {
    Cause.CHANCE: "the outcome differs at every run: the handler uses randomness other than penstock.random()",
    Cause.GLOBALS: "the outcome depends on earlier requests of its process: state in global variables",
    Cause.ORDER: "the outcome depends on the hash seed: the order of a set, or hash()",
    Cause.ENVIRONMENT: "the outcome depends on environment variables",
    Cause.CLOCK: "the outcome depends on the real clock; use penstock.now()",
    Cause.OUTSIDE: "the handler calls the outside, which a rerun refuses",
    Cause.CODE: "the outcome is the same in every run: the code has changed since the request was processed",
}
ARCHIVED: Final = (
    "the outcome is the same in every run of the code of deployment {}: a library, a file, or a state "
    "outside of the journal has changed since"
)
"""The meaning of `CODE` if the archived code of a deployment has run."""
_UNORDERED: Final = {Hazard.HASH, Hazard.SET_ORDER}
_HAZARDS: Final = {
    Cause.CHANCE: {Hazard.CHANCE, Hazard.UUID, Hazard.OUTSIDE, *_UNORDERED},
    Cause.GLOBALS: {Hazard.GLOBAL},
    Cause.ORDER: _UNORDERED,
    Cause.ENVIRONMENT: {Hazard.ENVIRONMENT},
    Cause.CLOCK: {Hazard.CLOCK},
    Cause.OUTSIDE: {Hazard.OUTSIDE},
    Cause.CODE: set[Hazard](),
}
"""The hazards that the analysis finds in source code, by the cause that they can be."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The cause of a difference.

    Attributes:
        request_id: The request that causes it.
        causes: At least one; `CODE` alone if the request is deterministic today.
        lines: Suspicious lines as `file:line: method: warning`; may be empty.
    """

    request_id: str
    causes: tuple[Cause, ...]
    lines: tuple[str, ...]


def find_causes(
    location: Location,
    row: RequestRow,
    states: Mapping[EntityKey, bytes | None],
    replayed: Result,
    limits: Limits,
    secret: bytes,
) -> tuple[Cause, ...]:
    """Execute a request in several processes, and return the influences on its outcome.

    Args:
        states: The entities that it reads, as they were before it.
    """
    clock_ns = time.time_ns()
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    bare = {name: value for name, value in environment.items() if name in _KEPT}
    # Each other place differs from the first in a single influence.
    bare["PYTHONHASHSEED"] = "0"

    facts = location, row.request_id, row.body, row.time_us, states, RUNS
    # Two equal places: a difference between them is chance, and explains all the others.
    places = [(environment, clock_ns)] * 2
    places += [(bare, clock_ns), (environment, clock_ns + _LATER_NS)]
    places += [({**environment, "PYTHONHASHSEED": seed}, clock_ns) for seed in _SEEDS]
    # Threads only wait for the children, which run at the same time.
    with ThreadPoolExecutor(len(places)) as pool:
        runs = pool.map(
            lambda place: _results(Experiment(*facts, place[1], limits, secret), place[0]), places
        )
        first, *others = runs
    differing = [results != first for results in others]
    differs = {
        Cause.CHANCE: differing[0],
        Cause.GLOBALS: any(result != first[0] for result in first[1:]),
        Cause.ORDER: any(differing[3:]),
        Cause.ENVIRONMENT: differing[1],
        Cause.CLOCK: differing[2],
    }
    if differs[Cause.CHANCE]:
        return (Cause.CHANCE,)  # all other runs differ for the same reason
    causes = tuple(cause for cause, is_cause in differs.items() if is_cause)
    if not causes and first and replayed != first[0]:
        return (Cause.GLOBALS,)  # set by other requests
    return causes or (Cause.CODE,)


def _results(experiment: Experiment, environment: Mapping[str, str]) -> list[Result]:
    """Execute an experiment in a child process; one that fails has no results."""
    child = "penstock.history.determinism_run"
    try:
        return ask_child(
            child, experiment, list[Result], TIMEOUT_S, environment=environment, is_quiet=True
        )
    except (ChildEnded, TimeoutError, PenstockError):
        return []


def suspicious_lines(app: App, body: bytes, causes: tuple[Cause, ...]) -> tuple[str, ...]:
    """Return the warnings of the analysis for code that a request can reach.

    If some of them fit a cause, only these are returned.
    """
    try:
        request = decode_request(body)
    except RequestError:
        return ()
    plan = analyze_app(app)
    pending = [Endpoint(request.entity or request.method, request.method)]
    reached = set(pending)
    while pending:
        source = pending.pop()
        ahead = [edge.target for edge in plan.edges if edge.source == source]
        pending += [endpoint for endpoint in dict.fromkeys(ahead) if endpoint not in reached]
        reached.update(ahead)
    warnings = [warning for warning in plan.warnings if warning.source in reached]
    hazards = {hazard for cause in causes for hazard in _HAZARDS[cause]}
    fitting = [warning for warning in warnings if warning.hazard in hazards]
    return tuple(warning.text for warning in fitting or warnings)
