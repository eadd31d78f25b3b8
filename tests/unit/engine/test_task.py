"""One task: transactions in order over a committed state; accesses of missing entities escape."""

from typing import Any

import pytest

from penstock.base.ids import EntityKey, RequestId, fingerprint_of
from penstock.engine.execute import Limits, Outcome
from penstock.engine.task import StoredKeys, Task
from penstock.errors import Corrupt
from penstock.runtime.local.runtime import LocalRuntime
from tests.differential.machine import Program, app

A0, A1, B0 = map(EntityKey, ("Alpha/a0", "Alpha/a1", "Beta/b0"))


@pytest.fixture
def state() -> dict[EntityKey, bytes]:
    """Give two Alphas and a Beta, numbered 1, 2 and 3."""
    runtime = LocalRuntime(app)
    runtime.call.Alpha.create("a0", number=1)
    runtime.call.Alpha.create("a1", number=2)
    runtime.call.Beta.create("b0", number=3)
    return runtime.state


def run(task: Task, position: int, program: Program) -> Outcome | None:
    """Run a program at `a0`."""
    body, _ = app.request("Alpha", "a0", "run", [program])
    return task.run(position, RequestId(f"r{position}"), body, 0)


def touched(task: Task) -> set[tuple[int, int, bool]]:
    hint = task.access().accesses
    columns: tuple[list[Any], ...] = (
        hint.position.tolist(),
        hint.entity.tolist(),
        hint.wrote.tolist(),
    )
    return set(zip(*columns, strict=True))


def test_later_transaction_sees_what_earlier_ones_wrote(state: dict[EntityKey, bytes]) -> None:
    """Inside a task there is one thread: writes and deletions show at once."""
    task = Task(app, state.get, Limits())
    run(task, 0, [["add", 4], ["drop", ["Alpha", 1]]])
    seen = run(task, 1, [["get"], ["has", ["Alpha", 1]]])
    number = run(task, 2, [["get"]])
    assert seen is not None
    assert number is not None
    assert (seen.reply, number.reply) == (b"\x00", b"\x05")
    assert task.written[A1] is None
    assert set(state) == {A0, A1, B0}, "the committed state is not changed"


def test_aborted_transaction_leaves_touches_only(state: dict[EntityKey, bytes]) -> None:
    """The reads of an aborted transaction are reported; its writes are gone."""
    task = Task(app, state.get, Limits())
    outcome = run(task, 0, [["add", 4], ["write", ["Beta", 0]], ["fail"]])
    assert outcome is not None
    assert outcome.error == "unhandled"
    assert task.written == {}
    assert touched(task) == {(0, fingerprint_of(A0), False), (0, fingerprint_of(B0), False)}


def test_touches_tell_reads_from_writes(state: dict[EntityKey, bytes]) -> None:
    """An entity is reported with whether it was changed, also if it did not exist."""
    task = Task(app, state.get, Limits())
    run(task, 5, [["read", ["Beta", 0]], ["add", 1], ["has", ["Gamma", 0]], ["set", 9]])
    assert touched(task) == {
        (5, fingerprint_of(A0), True),
        (5, fingerprint_of(B0), False),
        (5, fingerprint_of("Gamma/0"), False),
    }


def test_untracked_task_reports_nothing(state: dict[EntityKey, bytes]) -> None:
    """A task that runs the whole epoch spends nothing on touches."""
    task = Task(app, state.get, Limits(), tracked=False)
    run(task, 0, [["add", 1]])
    assert touched(task) == set()


@pytest.mark.parametrize("disguise", ["attempt", "swallow", "ensure"])
def test_escape_leaves_nothing_behind(state: dict[EntityKey, bytes], disguise: str) -> None:
    """A transaction that accesses a missing entity is undone, also if its handler goes on."""
    task = Task(app, state.get, Limits(), is_local=lambda key: key != B0)
    rest = [] if disguise == "swallow" else [[["set", 8]]]
    program = [["add", 4], [disguise, [["read", ["Beta", 0]]], *rest], ["set", 7]]
    assert run(task, 3, program) is None
    assert task.access().escaped.tolist() == [3]
    assert task.written == {}
    assert task.wanted == {A0, B0}


def test_escape_names_all_references_that_it_has_seen(state: dict[EntityKey, bytes]) -> None:
    """References in the states that were read are wanted too, so that one round finds them all."""
    linked = Task(app, state.get, Limits())
    run(linked, 0, [["tie", 1]])
    written = linked.written[A0]
    assert written is not None
    task = Task(app, {**state, A0: written}.get, Limits(), is_local=lambda key: key == A0)
    assert run(task, 0, [["read", ["Gamma", 1]]]) is None
    assert task.wanted == {A0, EntityKey("Beta/b1"), EntityKey("Gamma/1")}


def test_shipped_entity_is_read_like_a_local_one(state: dict[EntityKey, bytes]) -> None:
    """A shipped entity counts as local, also an absent one."""
    shipped = {B0: state[B0], EntityKey("Beta/b1"): None}
    task = Task(app, state.get, Limits(), is_local=lambda key: key == A0, shipped=shipped)
    outcome = run(task, 0, [["has", ["Beta", 1]], ["read", ["Beta", 0]]])
    assert outcome is not None
    assert outcome.reply == b"\x03"


def test_damaged_state_is_no_fault_of_the_transaction(state: dict[EntityKey, bytes]) -> None:
    """A handler that catches everything cannot turn damage into an outcome."""

    def base(key: EntityKey) -> bytes | None:
        if key == B0:
            raise Corrupt("damaged")
        return state.get(key)

    task = Task(app, base, Limits())
    with pytest.raises(Corrupt, match="damaged"):
        run(task, 0, [["swallow", [["read", ["Beta", 0]]]]])


def test_a_write_that_was_undone_hides_no_stored_key() -> None:
    """The keys with a prefix are those of the state if every write of the task was undone."""
    stored = [EntityKey("Item/a"), EntityKey("Item/b")]
    written: dict[EntityKey, bytes | None] = {stored[0]: None, EntityKey("Item/c"): b""}
    keys = StoredKeys(lambda _: stored, written)
    keys.note(written)
    assert keys.keys("Item/") == ["Item/b", "Item/c"]
    written.clear()
    assert keys.keys("Item/") == stored
