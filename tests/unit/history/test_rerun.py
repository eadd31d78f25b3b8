"""Reruns: names that a handler replaces concern no other request, and an exact epoch ends in the recorded bytes."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from penstock.base.ids import EntityKey, Epoch, Lsn, RequestId
from penstock.engine.execute import Limits
from penstock.engine.replay import RecordedEpoch, RequestRow
from penstock.history.rerun import Rerun
from tests.unit.history.till_app import app

TILL = EntityKey("Till/a")


def rows_of(methods: Sequence[str]) -> list[RequestRow]:
    """Give requests to one till, without recorded outcomes."""
    rows = []
    for lsn, method in enumerate(methods):
        body = app.request("Till", "a", method, [], {})[0]
        rows.append(RequestRow(Lsn(lsn), RequestId(f"r{lsn}"), lsn, body, None, b""))
    return rows


def rerun_of(state: dict[EntityKey, bytes]) -> Rerun:
    """Give a rerun over a state."""
    return Rerun(app, state, Limits(), b"")


def created() -> dict[EntityKey, bytes]:
    """Give the state after the creation of the till."""
    rerun = rerun_of({})
    rerun.run_all(rows_of(["create"]))
    return {key: row for key, row in rerun.replayer.written.items() if row is not None}


def replies(rerun: Rerun, methods: Sequence[str]) -> list[object]:
    """Give the values of the replies; None for a failure."""
    outcomes = rerun.run_all(rows_of(methods))
    return [
        msgspec.msgpack.decode(outcome.reply) if outcome and outcome.error is None else None
        for outcome in outcomes
    ]


@pytest.mark.parametrize("end", [[], ["fail"]])
def test_replaced_names_concern_no_other_request(end: list[str]) -> None:
    """A built-in name that a handler has replaced is restored before the next request runs, also if a later one fails."""
    methods = ["replace_pow", "raise_to_power", "replace_pow", "raise_to_power", *end]
    rerun = rerun_of(created())
    assert replies(rerun, methods)[:4] == [1, 4, 2, 4]
    assert rerun.requests == len(methods)
    assert pow(2, 2) == 4


def test_epoch_that_runs_twice_begins_with_its_own_changes() -> None:
    """The changes of earlier requests of an epoch stay if its later requests run twice."""
    rerun = rerun_of(created())
    assert replies(rerun, ["raise_to_power", "close_files_of_other_processes"]) == [4, 1]
    assert replies(rerun, ["replace_pow", "raise_to_power"]) == [2, 4]


def recorded_of(state: dict[EntityKey, bytes], methods: Sequence[str]) -> RecordedEpoch:
    """Give an epoch as it is recorded."""
    rerun, rows = rerun_of(dict(state)), rows_of(methods)
    outcomes = rerun.run_all(rows)
    known = [
        row._replace(error=outcome.error, reply=outcome.reply)
        for row, outcome in zip(rows, outcomes, strict=True)
        if outcome is not None
    ]
    return RecordedEpoch(Epoch(1), 0, known, dict(rerun.replayer.written))


def test_epoch_as_recorded_is_exact() -> None:
    """Replies, entities and cascades are compared."""
    state = created()
    recorded = recorded_of(state, ["speak", "fail"])
    compared = rerun_of(state).compare(recorded)
    assert (compared.difference, compared.is_exact) == (None, True)


def test_epoch_with_other_recorded_changes_is_not_exact() -> None:
    """A recorded change that changes nothing is no difference, and the epoch is no proof."""
    state = created()
    recorded = recorded_of(state, ["fail"])
    compared = rerun_of(dict(state)).compare(replace(recorded, changes=dict(state)))
    assert (compared.difference, compared.is_exact) == (None, False)


def test_epoch_with_another_reply_is_not_exact() -> None:
    """Equal entities hide no other reply."""
    state = created()
    recorded = recorded_of(state, ["speak"])
    (row,) = recorded.rows
    wrong = replace(recorded, rows=[row._replace(reply=msgspec.msgpack.encode(7))])
    compared = rerun_of(state).compare(wrong)
    assert compared.difference is not None
    assert not compared.is_exact
