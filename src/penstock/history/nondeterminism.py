"""Why a replay differs: a handler that is not deterministic, or code that is not what it was.

The request runs again several times, in processes whose surroundings differ in one thing each: the
hash seed, the environment, the clock. What changes its outcome is the cause. The lines that may be
at fault are those that the compiler warns of, in what the request can reach.

It promises no proof: a cause that strikes rarely may not strike here. Then the code is said to have
changed, with the lines that are suspicious all the same.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final

import msgspec

from penstock.base.ids import EntityKey
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.graph import Endpoint
from penstock.engine.execute import Limits, Outcome
from penstock.engine.replay import RequestRow
from penstock.errors import RequestError
from penstock.history.determinism_run import Experiment, Result
from penstock.model.application import App
from penstock.model.request import decode_request

RUNS: Final = 4
TIMEOUT_S: Final = 120
_SEEDS: Final = ("1", "2", "3")
_LATER_NS: Final = (400 * 86_400 + 41_861) * 1_000_000_000
"""Another year, month, day, weekday, hour, minute and second."""

_KEPT: Final = ("PATH", "HOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME")


@unique
class Cause(StrEnum):
    """What makes the outcomes of one request differ."""

    CHANCE = "chance"
    GLOBALS = "global variables"
    ORDER = "set order or hash()"
    ENVIRONMENT = "environment"
    CLOCK = "clock"
    OUTSIDE = "outside call"
    CODE = "code"


MEANING: Final = {
    Cause.CHANCE: "it comes out otherwise at every run: randomness that is not penstock.random()",
    Cause.GLOBALS: "it depends on what its process ran before: state in global variables",
    Cause.ORDER: "it depends on the hash seed: the order of a set, or hash()",
    Cause.ENVIRONMENT: "it depends on environment variables",
    Cause.CLOCK: "it depends on the real clock, which is not penstock.now()",
    Cause.OUTSIDE: "it depends on what is outside, which looking back does not reach",
    Cause.CODE: "it comes out the same however it runs: the code is not what it was then",
}
_WARNED: Final = {
    Cause.CHANCE: ("differs at every run", "between processes", "reaches outside"),
    Cause.GLOBALS: ("no state",),
    Cause.ORDER: ("order of the set", "between processes"),
    Cause.ENVIRONMENT: ("surroundings",),
    Cause.CLOCK: ("real clock",),
    Cause.OUTSIDE: ("reaches outside",),
    Cause.CODE: (),
}
"""What the compiler's warnings of each cause say."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found out about a request.

    Attributes:
        causes: At least one; `CODE` alone where the request is deterministic today.
        lines: `file:line: method: what`, the likely ones; may be empty.
    """

    request_id: str
    causes: tuple[Cause, ...]
    lines: tuple[str, ...]


def find_causes(
    spec: str,
    row: RequestRow,
    states: Mapping[EntityKey, bytes | None],
    replayed: Outcome,
    limits: Limits,
    secret: bytes,
) -> tuple[Cause, ...]:
    """Run a request again in several processes, and return what makes it differ.

    Args:
        spec: The application, as on the command line.
        row: The request.
        states: What it touched, as it was before.
        replayed: How it came out in this process.
        limits: What a transaction may use.
        secret: The journal's.
    """
    clock_ns = time.time_ns()
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    bare = {name: value for name, value in environment.items() if name in _KEPT}
    bare["PYTHONHASHSEED"] = "0"

    def start(surroundings: Mapping[str, str], at_ns: int = clock_ns) -> "_Run":
        shared = (spec, row.request_id, row.body, row.time_us, states, RUNS, at_ns, limits, secret)
        return _Run(Experiment(*shared), surroundings)

    same, again = start(environment), start(environment)
    seeds = [start({**environment, "PYTHONHASHSEED": seed}) for seed in _SEEDS]
    elsewhere, later = start(bare), start(environment, clock_ns + _LATER_NS)
    first = same.results()
    otherwise = [one.results() != first for one in (again, elsewhere, later, *seeds)]
    differs = {
        Cause.CHANCE: otherwise[0],
        Cause.GLOBALS: any(one != first[0] for one in first[1:]),
        Cause.ORDER: any(otherwise[3:]),
        Cause.ENVIRONMENT: otherwise[1],
        Cause.CLOCK: otherwise[2],
    }
    if differs[Cause.CHANCE]:
        return (Cause.CHANCE,)  # which makes everything else differ, too
    causes = tuple(cause for cause, found in differs.items() if found)
    here = Result(replayed.error, replayed.reply, replayed.writes)
    if not causes and first and here != first[0]:
        return (Cause.GLOBALS,)  # which other requests have set
    return causes or (Cause.CODE,)


class _Run:
    """A process that runs an experiment."""

    def __init__(self, experiment: Experiment, environment: Mapping[str, str]) -> None:
        self._input = msgspec.msgpack.encode(experiment)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.history.determinism_run"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
        )

    def results(self) -> list[Result]:
        """Wait for it; a process that failed has no results, which differs from all that has."""
        try:
            data, _ = self._process.communicate(self._input, TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return []
        return msgspec.msgpack.decode(data, type=list[Result]) if data else []


def suspicious_lines(app: App, body: bytes, causes: tuple[Cause, ...]) -> tuple[str, ...]:
    """Return the lines that a request can reach and the compiler warns of.

    Those that fit a cause, or all where none fits.
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
        pending += [one for one in dict.fromkeys(ahead) if one not in reached]
        reached.update(ahead)
    warned = [one for one in plan.warnings if one.source in reached]
    words = [word for cause in causes for word in _WARNED[cause]]
    fitting = [one for one in warned if any(word in one.message for word in words)]
    return tuple(one.text for one in fitting or warned)
