"""Indexes in epochs, in one thread, and in a dumb twin that searches all entities: the same replies, and the same rows."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.built_indexes import index_updates
from penstock.log.api import Entry, Record
from penstock.model import index
from penstock.model.call import Call, encoded
from penstock.model.request import decode_failure
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.spark import parallelism
from penstock.state.digest import digest_of_mapping
from tests.differential.committed import answers_of, digest_of_stores, state_of
from tests.differential.index_app import Step, app
from tests.differential.inline import Inline
from tests.differential.programs import drawn
from tests.differential.simulation import Answer, Layout, Simulation
from tests.differential.test_engine_twins import epochs_of
from tests.memory_log import MemoryLog

WORDS = (
    "create",
    "create",
    "delete",
    "code",
    "move",
    "follow",
    "fail",
    "has",
    "one",
    "first",
    "last",
)
steps: st.SearchStrategy[Step] = st.tuples(
    st.sampled_from(WORDS), st.integers(0, 5).map("j{}".format), st.integers(0, 12)
)
Program = list[Step]
without_codes = steps.filter(lambda step: step[0] not in ("fail", "code", "one")).map(
    lambda step: (*step[:2], step[2] * 6) if step[0] == "create" else step
)
"""Steps without a value that two jobs may not have, so that no program of them fails."""

programs = st.lists(steps, min_size=1, max_size=4)
histories = st.lists(programs, min_size=2, max_size=9)
layouts = st.builds(
    Layout, st.integers(2, 3), st.integers(1, 2), st.sampled_from(["touches", "apart"])
)

PHANTOM: list[list[Step]] = [
    [("create", "j1", 9)],
    [("first", "j0", 1), ("create", "j2", 4)],
    [("create", "j3", 5)],
    [("has", "j1", 0), ("first", "j0", 1), ("last", "j0", 3), ("one", "j0", 3)],
]
"""Each request reads what the request before it has created, and names none of it."""


class Twin:
    """The jobs as dictionaries; each question searches all of them."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}

    def run(self, program: Iterable[Step]) -> list[object] | str:
        """Return what the steps have found, or the code of the failure."""
        former = {name: dict(job) for name, job in self.jobs.items()}
        found: list[object] = []
        failure = ""
        for what, name, number in program:
            if what == "fail" and number == 1:
                failure = "user"
                break
            self._step(what, name, number, found)
        codes = [job["code"] for job in self.jobs.values() if job["code"]]
        if not failure and len(set(codes)) < len(codes):
            failure = "not-unique"
        if failure:
            self.jobs = former
        return failure or found

    def _step(self, what: str, name: str, number: int, found: list[object]) -> None:
        team = number % 3 if number % 4 else None
        if what == "one" and number % 6:
            found.append([each for each, its in self.jobs.items() if its["code"] == number % 6])
        elif what == "has":
            found.append(name in self.jobs)
        elif what == "first":
            found.append(self._ordered(team)[:2])
        elif what == "last":
            every = sorted(self.jobs, key=lambda each: (self.jobs[each]["due"], each))
            found.append(every[-(number % 4) :] if number % 4 else [])
        else:
            self._change(what, name, number, team)

    def _change(self, what: str, name: str, number: int, team: int | None) -> None:
        job = self.jobs.get(name, {})
        if what in ("create", "delete"):
            self.jobs.pop(name, None)
        if what == "create":
            self.jobs[name] = {"code": number % 6 or None, "team": team, "due": number}
        elif what == "code" and job:
            job["code"] = number % 6 or None
        elif what == "move" and job:
            job["team"], job["due"] = team, number - 5
        elif what == "follow":
            for each in self._ordered(team)[:2]:
                self.jobs[each]["due"] += 3

    def _ordered(self, team: int | None) -> list[str]:
        of_team = [name for name, job in self.jobs.items() if job["team"] == team]
        return sorted(of_team, key=lambda name: (self.jobs[name]["due"], name))


def agrees(answer: Answer, expected: list[object] | str) -> bool:
    """Say whether an answer is that of the twin; before its end, a transaction may have a value twice."""
    if isinstance(expected, str):
        return answer.error == expected
    if answer.error is not None:
        return False
    pairs = list(zip(msgspec.msgpack.decode(answer.data), expected, strict=True))
    return all(
        got == want or (isinstance(want, list) and (got in want if want else got is None))
        for got, want in pairs
    )


def rebuilt(state: dict[EntityKey, bytes]) -> dict[EntityKey, bytes]:
    """Return the answers of the indexes over a state whose indexes are made anew."""
    entities = {key: row for key, row in state.items() if not key.startswith("$index/")}
    updates = index_updates(
        app,
        {},
        lambda prefix: [(key, state[key]) for key in sorted(entities) if key.startswith(prefix)],
    )
    return entities | {key: row for key, row in updates.items() if row is not None}


def records_of(history: list[list[Step]]) -> tuple[list[Record], list[bytes]]:
    log = MemoryLog()
    calls = [encoded(app, Call("", None, "run", (program,))) for program in history]
    log.append([Entry(RequestId(f"r{n}"), *call, n) for n, call in enumerate(calls)])
    return log.read(log.start(), log.end()), [hint for _, hint in calls]


@drawn(16)
@given(histories, layouts, st.lists(st.integers(1, 8), max_size=2))
@example(PHANTOM, Layout(3, 1, "apart"), [1])
@example(PHANTOM, Layout(3, 2, "apart"), [])
def test_epochs_and_one_thread_and_a_search_agree(
    history: list[list[Step]], layout: Layout, cuts: list[int]
) -> None:
    """However an epoch is divided between tasks: nobody misses an entity that an earlier request has created."""
    records, hints = records_of(history)
    serial, twin = LocalRuntime(app), Twin()
    simulation = Simulation(app, layout, {})
    for start, end in epochs_of(len(records), cuts):
        replies = serial.replay(records[start:end])
        expected = [Answer(reply.request_id, reply.error, reply.data) for reply in replies]
        for answer, program in zip(expected, history[start:end], strict=True):
            wanted = twin.run(program)
            assert agrees(answer, wanted), (
                decode_failure(answer.data) if answer.error else answer,
                wanted,
            )
        assert simulation.epoch(records[start:end], hints[start:end]) == expected
        assert simulation.state == serial.state
    again = LocalRuntime(app)
    again.state.update(rebuilt(serial.state))
    assert again.call.everything() == serial.call.everything()
    assert set(again.state) == set(serial.state)


@drawn(24)
@given(st.lists(st.lists(without_codes, min_size=8, max_size=30), min_size=1, max_size=3))
def test_a_long_transaction_finds_what_a_search_finds(history: list[list[Step]]) -> None:
    """Its lookups remember the entities that it has touched, and see each of their changes."""
    serial, twin = LocalRuntime(app), Twin()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "FEW", -1)
        for reply, program in zip(serial.replay(records_of(history)[0]), history, strict=True):
            answer = Answer(reply.request_id, reply.error, reply.data)
            assert agrees(answer, twin.run(program)), program


def test_the_driver_commits_what_one_thread_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Journal and stores have the rows of the indexes, also after a restart in between."""
    monkeypatch.setattr(parallelism, "REPEATED_TOO_MUCH", 1_000.0)
    history = [*PHANTOM, *([("create", f"k{n % 60}", n % 7)] for n in range(7, 160, 6)), *PHANTOM]
    with tempfile.TemporaryDirectory() as folder:
        spec = "tests.differential.index_app:app"
        inline = Inline(Path(folder), 2, spec, "jobs")
        try:
            for number, program in enumerate(history):
                call = encoded(app, Call("", None, "run", (program,)))
                inline.log.append([Entry(RequestId(f"r{number}"), *call, number)])
                if number % 11 == 10:
                    inline.advance(inline.log.end())
                if number == 21:
                    inline.restart()
            inline.advance(end := inline.log.end())
            serial = LocalRuntime(app, secret=inline.journal.secret)
            replies = serial.replay(inline.log.read(inline.log.start(), end))
            assert answers_of(inline.journal) == [
                Answer(one.request_id, one.error, one.data) for one in replies
            ]
            assert state_of(inline.journal) == serial.state
            digest = digest_of_stores(inline.config, inline.journal)
            assert digest == digest_of_mapping(serial.state)
        finally:
            inline.close()
