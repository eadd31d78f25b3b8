"""The cause of a difference in a workflow step: the record runs again with its cascade."""

from pathlib import Path

import msgspec
import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.deployment.loading import load_app, locate
from penstock.engine.execute import Limits
from penstock.engine.replay import Replayer, RequestRow
from penstock.history.determinism_run import result_of
from penstock.history.nondeterminism import Cause, find_causes
from penstock.model.request import packed_append

pytestmark = pytest.mark.long

SPEC = str(Path(__file__).parent / "wayward_flow_app.py")


@pytest.mark.parametrize(
    ("stream", "cause"),
    [("rolls", Cause.CHANCE), ("guesses", Cause.CHANCE), ("counts", Cause.CODE)],
)
def test_the_cause_in_a_task_is_found(stream: str, cause: Cause) -> None:
    """A task that uses chance, in its state or in its events, is told apart from one without chance."""
    replayer = Replayer(load_app(SPEC), {}, Limits())
    body = packed_append(stream, msgspec.msgpack.encode([5]))
    first, second = (
        RequestRow(Lsn(n), RequestId(f"r{n}"), 7, body, None, b"\x01") for n in range(2)
    )
    replayer.run(first)
    replayer.finish()
    outcome = replayer.run(second)
    states = {key: replayer.state.get(key) for key in replayer.step_reads[second.request_id]}
    assert any(data is not None for data in states.values()), "the task has state"
    assert outcome.writes
    result = result_of(outcome, replayer.cascade)
    assert find_causes(locate(SPEC), second, states, result, Limits(), b"") == (cause,)
