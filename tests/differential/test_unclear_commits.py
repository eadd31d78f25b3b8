"""A driver whose commit had no clear answer goes on with the same commit, one that fails behind its commit runs nothing again,
and one whose rows no host gives waits for them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import RequestId
from penstock.errors import LogUnavailable, StateUnavailable
from penstock.files.shared_root import UnclearOutcome
from penstock.journal.api import UnclearCommit
from penstock.log.api import Entry
from penstock.runtime.spark.messages import TaskCommand, TaskResult
from tests.differential.committed import answers_of
from tests.differential.inline import Inline
from tests.differential.later_app import app

SPEC = "tests.differential.later_app:app"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Inline]:
    made = Inline(tmp_path, 1, SPEC, app.name, small_epoch=100)
    yield made
    made.close()


@pytest.mark.parametrize("is_written", [True, False])
def test_unclear_commit_is_asked_again(
    runtime: Inline, monkeypatch: pytest.MonkeyPatch, *, is_written: bool
) -> None:
    """Written or not, the epoch is committed once, with its one request, which is not set aside."""
    root: Any = runtime.journal._commits._table
    create, answers = root.create, 3

    def unclear(name: str, data: bytes, after: Sequence[str] = ()) -> bool:
        nonlocal answers
        answers -= 1
        if is_written or not answers:
            create(name, data, after)
        if answers:
            raise UnclearOutcome(5, "no answer")
        return True

    runtime.log.append([Entry(RequestId("a"), *app.request("Note", "a", "create"), 0)])
    with monkeypatch.context() as patched:
        patched.setattr(root, "create", unclear)
        for _ in range(2):
            with pytest.raises(UnclearCommit):
                runtime.advance(1)
        runtime.advance(1)
    last = runtime.journal.last()
    assert last is not None
    assert last.epoch == 0
    assert runtime.driver.epoch == 0
    assert [report.incidents for report, _ in runtime.reports] in ([], [0])
    runtime.log.append([Entry(RequestId("b"), *app.request("Note", "b", "create"), 0)])
    runtime.advance(2)
    assert runtime.driver.epoch == 1


@pytest.mark.parametrize("error", [ValueError("a bug"), LogUnavailable("no broker answers")])
@pytest.mark.parametrize("work", ["apply", "append"])
@pytest.mark.parametrize("is_poisoned", [False, True])
def test_what_fails_behind_a_commit_repeats_nothing(
    runtime: Inline,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    work: str,
    *,
    is_poisoned: bool,
) -> None:
    """The epoch exists by then: its request neither runs again nor is set aside a second time, and later ones go on."""

    def fail(*_: object) -> None:
        raise error

    run = runtime._jobs.run

    def refuse(commands: Sequence[TaskCommand]) -> list[TaskResult]:
        if is_poisoned and not getattr(commands[0], "decided", None):
            raise ValueError("the handler ends its epoch")
        return run(commands)

    runtime.log.append([Entry(RequestId("a"), *app.request("Note", "a", "create"), 0)])
    with monkeypatch.context() as patched:
        patched.setattr(runtime._jobs, "run", refuse)
        place, name = {
            "apply": (runtime._jobs, "apply_resident"),
            "append": (runtime.driver._later, "append"),
        }[work]
        reached, calls = getattr(place, name), []

        def once(*arguments: Any) -> Any:
            calls.append(arguments)
            if len(calls) == (
                1 if work == "apply" else 2
            ):  # the first append comes before the epoch
                fail()
            return reached(*arguments)

        patched.setattr(place, name, once)
        with pytest.raises(type(error)):
            runtime.advance(1)
    runtime.log.append([Entry(RequestId("b"), *app.request("Note", "b", "create"), 0)])
    runtime.advance(2)
    assert [answer.request_id for answer in answers_of(runtime.journal)] == ["a", "b"]
    assert runtime.driver.epoch == 1


@pytest.mark.parametrize("is_probed", [False, True])
def test_a_request_is_not_the_cause_of_holders_that_are_away(
    runtime: Inline, monkeypatch: pytest.MonkeyPatch, *, is_probed: bool
) -> None:
    """It is tried again as long as rows are out of reach; one that fails although all are there is set aside, without a wait."""
    runtime.driver._config = replace(runtime.config, copies="2")
    run, tries = runtime._jobs.run, 0

    def away(commands: Sequence[TaskCommand]) -> list[TaskResult]:
        nonlocal tries
        if not getattr(commands[0], "decided", None):
            tries += 1
            raise StateUnavailable("no holder answers")
        if not is_probed:
            raise StateUnavailable("a partition is out of reach")
        return run(commands)

    runtime.log.append([Entry(RequestId("a"), *app.request("Note", "a", "create"), 0)])
    with monkeypatch.context() as patched:
        patched.setattr(runtime._jobs, "run", away)
        for _ in range(0 if is_probed else 5):
            with pytest.raises(StateUnavailable):
                runtime.advance(1)
        if is_probed:
            runtime.advance(1)
            assert tries == 4, "with the epoch, and three times alone"
    runtime.advance(1)
    assert [report.incidents for report, _ in runtime.reports] == [1 if is_probed else 0]


def test_a_holder_that_comes_back_saves_the_request(
    runtime: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has several tries, because a holder may be away for one of them."""
    runtime.driver._config = replace(runtime.config, copies="2")
    run, left = runtime._jobs.run, 3

    def away(commands: Sequence[TaskCommand]) -> list[TaskResult]:
        nonlocal left
        if not getattr(commands[0], "decided", None) and left:
            left -= 1
            raise StateUnavailable("no holder answers")
        return run(commands)

    monkeypatch.setattr(runtime._jobs, "run", away)
    runtime.log.append([Entry(RequestId("a"), *app.request("Note", "a", "create"), 0)])
    runtime.advance(1)
    assert [report.incidents for report, _ in runtime.reports] == [0]
