"""A driver whose commit had no clear answer goes on with the same commit, and is not fenced by itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import RequestId
from penstock.files.shared_root import UnclearOutcome
from penstock.journal.api import UnclearCommit
from penstock.log.api import Entry
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
    root: Any = runtime.journal._commits.root
    create, answers = root.create, 3

    def unclear(name: str, data: bytes) -> bool:
        nonlocal answers
        answers -= 1
        if is_written or not answers:
            create(name, data)
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
