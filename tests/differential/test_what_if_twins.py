"""What-if, against the oracle: a log without some requests, taken by a single thread."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import EntityKey, Epoch, RequestId
from penstock.deployment.loading import load_app
from penstock.engine.execute import Limits
from penstock.engine.replay import RequestRow
from penstock.history.edits import ParsedEdits, drop_edits, resolve_edits
from penstock.history.reader import HistoryReader
from penstock.history.scratch_journal import epoch_shift
from penstock.history.what_if import Scenario, WhatIf, what_if
from penstock.log.api import Record
from penstock.runtime.local.runtime import LocalRuntime
from tests.checkout import SHOP
from tests.differential.programs import beside_one_thread
from tests.history import Call, journal_of

APP = load_app(SHOP)
KEYS = st.sampled_from(["a", "b"])
AMOUNTS = st.integers(0, 4)
CALLS = st.one_of(
    st.builds(lambda key, n: ("Item", key, "create", {"price": 1, "stock": n}), KEYS, AMOUNTS),
    st.builds(lambda key, n: ("Item", key, "add", (n,)), KEYS, AMOUNTS),
    st.builds(lambda key, n: ("Item", key, "subtract", (n,)), KEYS, AMOUNTS),
    st.builds(lambda key: ("Item", key, "delete", ()), KEYS),
)
EPOCHS = st.lists(st.lists(CALLS, min_size=1, max_size=6), min_size=1, max_size=3)
Outcomes = dict[RequestId, tuple[str | None, bytes]]


def run(past: HistoryReader, without: list[str], first: Epoch, scratch: Path) -> WhatIf:
    span = past.span(first, None)
    changes = resolve_edits(ParsedEdits(drop_edits(without), []), past, lambda _: APP, span)
    alternative = Scenario(APP, APP, changes)
    return what_if(past, alternative, Limits(), span, lambda *_: None, scratch)


def recorded_in(past: HistoryReader, first: int) -> Outcomes:
    rows = rows_of(past, Epoch(first))
    return {one.request_id: (one.error, one.reply) for one in rows}


def rows_of(past: HistoryReader, first: Epoch = Epoch(0)) -> list[RequestRow]:
    return [row for epoch in past.epochs(first, past.last) for row in epoch.rows]


def last_state(past: HistoryReader) -> dict[EntityKey, bytes]:
    return past.state_before(Epoch(past.last + 1))


@beside_one_thread
@settings(max_examples=10, deadline=None)
@given(epochs=EPOCHS, data=st.data())
def test_what_if_without_requests_is_the_log_without_them(
    epochs: list[list[Call]], data: st.DataObject
) -> None:
    """Replies, state and differences are those of the oracle, which never saw the omitted requests."""
    count = sum(map(len, epochs))
    left_out = data.draw(st.sets(st.integers(0, count - 1), max_size=3))
    starts = [sum(map(len, epochs[:number])) for number in range(len(epochs))]
    allowed = [number for number, start in enumerate(starts) if start <= min(left_out, default=0)]
    first = Epoch(data.draw(st.sampled_from(allowed)))
    without = [f"r{number}" for number in sorted(left_out)]
    with tempfile.TemporaryDirectory() as folder:
        original, scratch = Path(folder) / "data", Path(folder) / "scratch"
        journal_of(SHOP, original, epochs)
        with HistoryReader(original, APP) as past:
            found = run(past, without, first, scratch)
            oracle = LocalRuntime(APP)
            kept = [row for row in rows_of(past) if row.request_id not in without]
            taken = oracle.replay(Record(one.lsn, *one[1:2], one.body, one.time_us) for one in kept)
            expected = {one.request_id: (one.error, one.data) for one in taken}
            recorded, state = recorded_in(past, first), last_state(past)
        with HistoryReader(scratch, APP) as other:
            assert recorded_in(other, first - epoch_shift(first)).items() <= expected.items()
            assert last_state(other) == oracle.state
    differing = [one for one in recorded.keys() & expected.keys() if recorded[one] != expected[one]]
    assert found.replies.differing.count == len(differing)
    assert found.replies.left_out.count == len(without)
    changed = {key for key, _ in state.items() ^ oracle.state.items()}
    assert found.entities.count == len(changed)
    assert without or not differing
    assert without or not changed
