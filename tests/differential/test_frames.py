"""Handlers of every kind have the same frames before the recursion limit in the Spark runtime and in one thread."""

import random
from pathlib import Path

import msgspec
import pytest

from penstock import LocalRuntime
from penstock.base.ids import Lsn, RequestId
from penstock.engine.limits import Limits
from penstock.log.api import Record
from penstock.runtime.spark.messages import RunShare
from tests.differential.committed import answers_of, state_of
from tests.differential.frames_app import app
from tests.differential.large_run import run
from tests.differential.simulation import Answer

LIMITS = Limits(depth=400)
NAMES = "abxy"
LARGE = 64


def bodies_of(seed: int) -> list[bytes]:
    """Return creations, and then calls and atoms of all sizes in a random order."""
    drawn = random.Random(seed)
    sizes = [1, 1, 1, 3, 3, 3, LARGE, LARGE + 20, LARGE, LARGE - 1, 1, 2]
    bodies = [app.append("words", drawn.choices(NAMES, k=size)) for size in sizes]
    calls = [app.request("Well", drawn.choice(NAMES), "depth", ("w",)) for _ in range(20)]
    bodies += [body for body, _ in calls]
    drawn.shuffle(bodies)
    return [*(app.request("Well", name, "create")[0] for name in NAMES), *bodies]


@pytest.mark.parametrize("partitions", [1, 2])
def test_frames_are_those_of_one_thread(tmp_path: Path, seed: int, partitions: int) -> None:
    """Whatever ran before, and wherever: streams, replies and state with counted frames are equal."""
    spark, streams = run(
        tmp_path / "data",
        bodies_of(seed),
        spec="tests.differential.frames_app:app",
        name="frames",
        partitions=partitions,
        large_atom=LARGE,
        limits=LIMITS,
    )
    divided = [order for order in spark._jobs.taken if isinstance(order, RunShare)]
    assert bool(divided) is (partitions > 1), "shares run where there are several partitions"
    serial = LocalRuntime(app, secret=spark.journal.secret, limits=LIMITS)
    replies = serial.replay(spark.log.read(spark.log.start(), spark.log.end()))
    assert streams == {name: atoms for name, atoms in serial.streams.items() if atoms}
    assert state_of(spark.journal) == serial.state
    answers = {Answer(one.request_id, one.error, one.data) for one in replies}
    assert answers <= {*answers_of(spark.journal)}


def test_frames_depend_on_the_kind_of_handler_alone(seed: int) -> None:
    """A handler has the same frames for a single event and for many, and for the first and the last request."""
    serial = LocalRuntime(app, limits=LIMITS)
    serial.replay(
        Record(Lsn(n), RequestId(f"r{n}"), body, n) for n, body in enumerate(bodies_of(seed))
    )
    for name in ("found", "of-direct", "of-mapped", "of-replying"):
        events = [msgspec.msgpack.decode(data) for atom in serial.streams[name] for data in atom]
        assert len({frames for _, frames in events}) == 1, name
        assert len(events) > 5
