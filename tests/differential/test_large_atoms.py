"""Large atoms in shares: the bytes are those of one thread, whatever an atom, a handler or a worker does."""

import random
from pathlib import Path

import pytest

from penstock import LocalRuntime
from penstock.engine.streams.key_shares import KeyShare
from penstock.runtime.spark import quarantine, round_files
from penstock.runtime.spark.large_atoms import write_share
from tests.differential import large_app
from tests.differential.committed import answers_of, state_of
from tests.differential.large_run import run
from tests.differential.simulation import Answer


def records(seed: int, count: int) -> list[bytes]:
    """Return an append that fails, two that do not, and then random appends and calls: large and small atoms, with events on which a handler, a key or a function fails."""
    drawn = random.Random(seed)
    fine = large_app.app.append("numbers", [*range(12)])
    bodies = [large_app.app.append("numbers", [*range(12), large_app.FAILS]), fine, fine]
    for _ in range(count):
        draw = drawn.random()
        if draw < 0.15:
            name = f"a{drawn.randrange(3)}"
            bodies.append(large_app.app.request("", None, "publish", (name,), {})[0])
            continue
        events = drawn.choices(range(1, 30), k=drawn.choice((1, 3, 8, 20)))
        if draw < 0.35:
            events[drawn.randrange(len(events))] = drawn.choice(large_app.BAD)
        bodies.append(large_app.app.append("numbers" if draw < 0.9 else "others", events))
    return bodies


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_shares_equal_one_thread(
    tmp_path: Path, seed: int, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams and states of random records are the same with shares and without, and those of `LocalRuntime`."""
    steps_of_shares: list[int] = []

    def noted(share: KeyShare, path: Path) -> None:
        steps_of_shares.append(len(share.steps))
        write_share(share, path)

    monkeypatch.setattr(round_files, "write_share", noted)
    bodies = records(seed, 40)
    divided, streams = run(tmp_path / "data", bodies, partitions=partitions, large_atom=5)
    serial = LocalRuntime(large_app.app, secret=divided.journal.secret)
    replies = serial.replay(divided.log.read(divided.log.start(), divided.log.end()))
    assert answers_of(divided.journal) == [
        Answer(reply.request_id, reply.error, reply.data) for reply in replies
    ]
    assert streams == {name: atoms for name, atoms in serial.streams.items() if atoms}
    assert state_of(divided.journal) == serial.state
    divided.close()
    if partitions == 1:
        assert not steps_of_shares, "a single partition has nothing to divide"
    else:
        assert max(steps_of_shares) > 1, "a run of appends is one epoch"
        assert min(steps_of_shares) == 0, "an atom that fails runs in one task"


def test_a_record_that_is_set_aside_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shares have run it before workers died of it; the records behind it run without them."""
    monkeypatch.setattr(
        quarantine,
        "_died_twice",
        lambda deaths: frozenset() if "share" in deaths.name else frozenset({1}),
    )
    body = large_app.app.append("numbers", [5] * 12)
    outcomes = []
    for least in (0, 5):
        runtime, _ = run(tmp_path / str(least), [body, body, body], large_atom=least)
        replies = [answer.error for answer in answers_of(runtime.journal)]
        outcomes.append((replies, state_of(runtime.journal)))
        runtime.close()
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == [None, "limit-exceeded", None]
