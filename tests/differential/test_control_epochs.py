"""Control records on the driver: each is an epoch of its own, with a row like that of every record."""

from pathlib import Path

import pytest

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, Lsn, RequestId
from penstock.errors import ConfigError, LogUnavailable
from penstock.journal.replies import find_reply
from penstock.log.api import Entry
from penstock.model.control import Control, Deploy, DeployedCode, encode_control
from penstock.runtime.spark.control import ControlEffect, Refused
from penstock.state.digest import digest_of_mapping
from tests.differential.committed import answers_of, digest_of_stores, state_of
from tests.differential.inline import ONLY, Inline
from tests.differential.machine import app

CODE = DeployedCode("0" * 64, "shop", "app", "3.12.0", {})
NAME = next(iter(app.entities))


def append(runtime: Inline, *controls: int, count: int = 6) -> None:
    """Append requests; those at some places are control records."""
    body, hint = app.request(NAME, "missing", "delete")
    control = encode_control(Deploy(CODE))
    runtime.log.append(
        [
            Entry(RequestId(f"r{n}"), control, b"", 0, is_control=True)
            if n in controls
            else Entry(RequestId(f"r{n}"), body, hint, 0)
            for n in range(count)
        ]
    )


def ends(runtime: Inline) -> list[int]:
    return [int(commit.positions[ONLY]) for commit in runtime.journal.commits(BEFORE_FIRST)]


def test_a_control_record_is_an_epoch_of_its_own(tmp_path: Path) -> None:
    """Its executor runs once, in order, and its switch runs when the epoch is committed."""
    runtime = Inline(tmp_path, partitions=2)
    heard: list[tuple[str, Epoch]] = []

    def execute(control: Control, epoch: Epoch) -> ControlEffect:
        assert control == Deploy(CODE)
        heard.append(("prepare", epoch))
        return ControlEffect({"epoch": epoch}, switch=lambda: switch(epoch))

    def switch(epoch: Epoch) -> None:
        last = runtime.journal.last()
        assert last is not None
        assert last.epoch == epoch
        heard.append(("switch", epoch))

    runtime.driver.controls.executors[Deploy] = execute
    append(runtime, 2, 3, 5)
    runtime.advance(6)
    assert ends(runtime) == [2, 3, 4, 5, 6]
    assert heard == [(what, Epoch(n)) for n in (1, 2, 4) for what in ("prepare", "switch")]
    assert find_reply(runtime.journal, (ONLY, Lsn(3))).value() == {"epoch": 2}
    assert [report.records for report, _ in runtime.reports] == [2, 1, 1, 1, 1]
    runtime.close()


def test_a_switch_that_fails_is_made_again(tmp_path: Path) -> None:
    """The epoch is committed; before the next epoch the driver puts its effect in force."""
    runtime = Inline(tmp_path, partitions=2)
    calls: list[bool] = []

    def switch() -> None:
        calls.append(len(calls) > 0)
        if not calls[-1]:
            raise LogUnavailable("the disk is full")

    runtime.driver.controls.executors[Deploy] = lambda *_: ControlEffect(switch=switch)
    append(runtime, 2)
    with pytest.raises(LogUnavailable):
        runtime.advance(6)
    assert ends(runtime) == [2, 3]
    runtime.advance(6)
    assert calls == [False, True]
    assert ends(runtime) == [2, 3, 6]
    runtime.close()


def test_a_control_record_may_change_entities(tmp_path: Path) -> None:
    """Its changes are those of its epoch, in journal and stores; a deleted entity is gone."""
    runtime = Inline(tmp_path, partitions=2)
    rows: dict[EntityKey, bytes | None] = {EntityKey("$a/x"): b"\x90", EntityKey("$a/y"): b"\x90"}
    effects: list[dict[EntityKey, bytes | None]] = [rows, {EntityKey("$a/x"): None}]
    runtime.driver.controls.executors[Deploy] = lambda *_: ControlEffect(writes=effects.pop(0))
    append(runtime, 1, 4)
    runtime.advance(6)
    assert ends(runtime) == [1, 2, 4, 5, 6]
    assert state_of(runtime.journal) == {EntityKey("$a/y"): b"\x90"}
    runtime.advance(6)
    expected = digest_of_mapping({EntityKey("$a/y"): b"\x90"})
    assert digest_of_stores(runtime.config, runtime.journal) == expected
    runtime.close()


def test_a_refused_control_record_has_a_failed_reply(tmp_path: Path) -> None:
    """An unknown control, one that does not fit, and an executor with a defect stop no later record."""
    runtime = Inline(tmp_path, partitions=1)

    def refuse(_control: Control, epoch: Epoch) -> ControlEffect:
        if epoch < 4:
            raise Refused(ConfigError("the archive is gone"))
        raise ZeroDivisionError

    runtime.driver.controls.executors.clear()
    append(runtime, 1)
    runtime.advance(3)
    runtime.driver.controls.executors[Deploy] = refuse
    later = encode_control(Deploy(CODE))
    runtime.log.append([Entry(RequestId(f"c{n}"), later, b"", 0, is_control=True) for n in (1, 2)])
    runtime.advance(8)
    errors = {answer.request_id: answer.error for answer in answers_of(runtime.journal)}
    assert errors["r1"] == "request"
    assert (errors["c1"], errors["c2"]) == ("config", "internal")
    runtime.close()


def test_a_failing_disk_leaves_the_control_record_for_later(tmp_path: Path) -> None:
    """An error of the environment ends the call; the next one executes the same epoch again."""
    runtime = Inline(tmp_path, partitions=1)
    epochs: list[Epoch] = []

    def execute(_control: Control, epoch: Epoch) -> ControlEffect:
        epochs.append(epoch)
        if len(epochs) == 1:
            raise LogUnavailable("the disk is full")
        return ControlEffect()

    runtime.driver.controls.executors[Deploy] = execute
    append(runtime, 0)
    with pytest.raises(LogUnavailable):
        runtime.advance(6)
    runtime.advance(6)
    assert epochs == [0, 0]
    assert ends(runtime) == [1, 6]
    runtime.close()
