"""Random requests over published tables: epochs of any layout publish the changes of one thread, and the changes add up to the rows.

The expected rows come from a function that knows nothing of the engine.
"""

from typing import Any

from hypothesis import event, example, given

from penstock import Put
from penstock.model.application_set import combined
from penstock.model.call import Call
from penstock.runtime.local.runtime import LocalRuntime
from tests.differential.programs import drawn
from tests.differential.simulation import LIMITS, Layout, Program, Simulation, programs_of
from tests.differential.table_app import (
    NAMES,
    UNLUCKY,
    Crate,
    Plank,
    bodies,
    body,
    office,
    planks_table,
    yard,
)

app = combined((yard, office))


def begun() -> LocalRuntime:
    serial = LocalRuntime(app, limits=LIMITS)
    for name in NAMES[:2]:
        serial.submit(Call("Crate", name, "create", request_id=f"made-{name}"))
    return serial


def expected_planks(serial: LocalRuntime) -> dict[tuple[str, int], Plank]:
    """Compute the rows of the table from the state alone."""
    made: dict[tuple[str, int], Plank] = {}
    for key, row in serial.state.items():
        if not key.startswith("Crate/"):
            continue
        crate = Crate.__reference__.plain(key[6:], row)  # type: ignore[attr-defined]
        target = crate["other"] or ""
        if crate["size"] == UNLUCKY or target == "d":
            continue
        for number in range(crate["size"] % 4):
            made[key[6:], number] = Plank(key[6:], number, target)
    return made


def folded(serial: LocalRuntime) -> dict[tuple[str, int], Plank]:
    """Add up the changes of the table; no event changes nothing, and no atom is empty."""
    rows: dict[tuple[str, int], Any] = {}
    for atom in serial.streams["planks"]:
        assert atom
        for data in atom:
            change = planks_table.events.decode(data)
            at = (change.key, change.place)
            if isinstance(change, Put):
                assert rows.get(at) != change.row
                rows[at] = change.row
            else:
                del rows[at]
    return rows


def copied(serial: LocalRuntime) -> dict[tuple[str, int], Plank]:
    """Return the copy that the other application keeps in its tasks."""
    task = app.topology.rows["copies.Copy"]
    rows: dict[tuple[str, int], Plank] = {}
    for key, row in serial.state.items():
        if key.startswith("copies.Copy/"):
            name = key.partition("/")[2]
            kept = task.decode(name, row)["planks"]
            rows |= {(name, place): plank for place, plank in kept.items()}
    return rows


OVERTAKEN = Program(
    (body("a", "spread", Crate("b"), 2), body("a", "grow", 1), body("b", "grow", 1)),
    Layout(1),
    1,
    (1.0,),
)
"""The first cascade is cut behind its second request, so the next records come before its rest."""


@drawn(50)
@given(programs_of(bodies, 14))
@example(OVERTAKEN)
def test_epochs_publish_the_changes_of_one_thread(program: Program) -> None:
    """For any tasks, epochs and cuts, atoms, replies and state are those of one thread; changes, copy and rows agree."""
    serial = begun()
    state = {key: row for key, row in serial.state.items() if not key.startswith("$scanned")}
    simulation = Simulation(app, program.layout, state, program.clock_of())
    simulation.streams |= {name: list(atoms) for name, atoms in serial.streams.items()}
    log, done = simulation.equals(serial, program.bodies, program.epoch)
    if done == len(log):
        assert folded(serial) == copied(serial) == expected_planks(serial)
    event("atoms", len(serial.streams["planks"]) // 5 * 5)
    event("failed", min(3, len(serial.streams["planks-failed"])))
