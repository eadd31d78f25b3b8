"""Packed atoms: to encode events together gives the results of encoding each of them when it is published."""

import random
from pathlib import Path
from typing import Any

import pytest

from penstock import LocalRuntime
from penstock.base.ids import Lsn, RequestId
from penstock.engine.limits import Limits
from penstock.engine.streams import workflow_step
from penstock.engine.streams.cascade import PublishedAtom
from penstock.journal.atoms import decode_atom, encode_atom
from penstock.log.api import Record
from penstock.model.streams.packed_atom import PackedAtom, packed_atom
from penstock.runtime.spark.messages import RunSteps
from tests.differential import packed_app
from tests.differential.committed import state_of
from tests.differential.large_run import run

SPEC = "tests.differential.packed_app:app"
PLAIN = ["a", "apple", "b", "bee", "c", "ä", "x" * 40]
ODD = [*packed_app.WAYS, "stop"]


def atoms_of(seed: int) -> list[list[str]]:
    """Return an atom for each odd word, and random atoms with a few of them, of sizes on both sides of the bound."""
    drawn = random.Random(seed)
    filled = [drawn.choices(PLAIN, k=workflow_step.PACKED_MIN) for _ in ODD]
    atoms = [[*words[:-9], odd, *words[-9:]] for words, odd in zip(filled, ODD, strict=True)]
    for _ in range(12):
        words = drawn.choices(PLAIN, k=drawn.choice((1, 63, 64, 200, 1_100, 2_500)))
        for _ in range(drawn.choice((0, 0, 1, 3))):
            words[drawn.randrange(len(words))] = drawn.choice(ODD)
        atoms.append(words)
    drawn.shuffle(atoms)
    return atoms


def local_run(atoms: list[list[str]], **limits: Any) -> LocalRuntime:
    """Append atoms in one thread."""
    packed_app.KEPT.clear()
    # A busy machine takes long for the deepest call; its time is not what these tests are about.
    bounds = Limits(time_ms=60_000, wall_ms=300_000, **limits)
    runtime = LocalRuntime(packed_app.app, limits=bounds)
    bodies = [packed_app.app.append("words", words) for words in atoms]
    list(
        runtime.replay(Record(Lsn(n), RequestId(f"r{n}"), body, n) for n, body in enumerate(bodies))
    )
    return runtime


@pytest.mark.parametrize("output_bytes", [100_000, 20_000])
def test_pending_events_change_nothing(
    monkeypatch: pytest.MonkeyPatch, seed: int, output_bytes: int
) -> None:
    """Streams, failures and states are those of a run that encodes each event at once."""
    atoms = atoms_of(seed)
    packed = local_run(atoms, output_bytes=output_bytes)
    monkeypatch.setattr(workflow_step, "PACKED_MIN", 1 << 40)
    eager = local_run(atoms, output_bytes=output_bytes)
    assert packed.streams == eager.streams
    assert packed.state == eager.state
    assert len(packed.streams["counts-failed"]) > 5


@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("output_bytes", [100_000, 20_000])
def test_spark_equals_one_thread(
    tmp_path: Path, seed: int, partitions: int, output_bytes: int
) -> None:
    """The workers commit what one thread publishes, with shares, too."""
    packed_app.KEPT.clear()
    limits = Limits(output_bytes=output_bytes)
    bodies = [packed_app.app.append("words", words) for words in atoms_of(seed)]
    settings = {"partitions": partitions, "large_atom": 64, "limits": limits}
    spark, streams = run(tmp_path / "data", bodies, spec=SPEC, name="packed", **settings)
    packed_app.KEPT.clear()
    serial = LocalRuntime(packed_app.app, secret=spark.journal.secret, limits=limits)
    serial.replay(spark.log.read(spark.log.start(), spark.log.end()))
    assert streams == {name: atoms for name, atoms in serial.streams.items() if atoms}
    assert state_of(spark.journal) == serial.state
    joins = [order for order in spark._jobs.taken if isinstance(order, RunSteps)]
    assert any(order.shares for order in joins) is (partitions > 1)
    spark.close()


def test_a_handler_without_frames_publishes() -> None:
    """Events of a handler that has called as deeply as it can are encoded later, when frames are left."""
    words = ["a"] * 40 + [packed_app.DEEP] + ["a"] * 40
    runtime = local_run([words])
    [atom] = runtime.streams["counted"]
    events = [packed_app.counts.events.decode(data) for data in atom]
    numbers = [number for word, number in events if word.startswith("m")]
    assert numbers == [*range(packed_app.DEEP_EVENTS)]
    assert [word for word, _ in events if word == "a"] == ["a"] * 80
    assert runtime.streams["counts-failed"] == []


def test_a_packed_atom_is_a_tuple_of_events() -> None:
    """It has the bytes, the length, the parts and the equality of the tuple."""
    for count in (0, 1, 2, 15, 16, 70_000):
        events = tuple(b"\x01" if number % 2 else b"\xa1x" for number in range(count))
        pieces = [b"".join(events[first : first + 1_000]) for first in range(0, count, 1_000)]
        packed = PackedAtom(pieces, count)
        assert encode_atom(packed) == encode_atom(events)
        assert decode_atom(packed.data) == events
        assert (len(packed), tuple(packed), packed[1:]) == (count, events, events[1:])
        assert packed == events
        assert events == packed
        assert packed == PackedAtom(pieces, count)
        assert packed != (*events, b"\x01")
        atoms = PublishedAtom("s", 1, events), PublishedAtom("s", 1, packed_atom(pieces, count))
        assert atoms[0] == atoms[1], "a replay compares them"
        assert atoms[1] == atoms[0]
