"""Random requests and appends over workflows: epochs of any layout publish the atoms of one thread.

The engine runs the requests of an epoch in rounds on several tasks, and then its workflow steps; the serial runtime
takes record after record. Replies, state, atoms, sent requests and later records are equal, byte for byte.
"""

from hypothesis import event, given

from penstock.model.call import Call
from penstock.model.request import NOT_CUT, cut_of
from penstock.runtime.local.runtime import LocalRuntime
from tests.differential.cascade_app import NAMES, app, bodies
from tests.differential.programs import beside_one_thread, drawn
from tests.differential.simulation import LIMITS, Program, Simulation, programs_of


def begun() -> LocalRuntime:
    """Return a serial runtime with the accounts."""
    serial = LocalRuntime(app, limits=LIMITS)
    for name in NAMES:
        serial.submit(Call("Account", name, "create", request_id=f"made-{name}"))
    return serial


@beside_one_thread
@drawn(50)
@given(programs_of(bodies, 12))
def test_epochs_publish_what_one_thread_publishes(program: Program) -> None:
    """For any tasks and epochs, the log gives the atoms, replies and state of one thread."""
    serial = begun()
    simulation = Simulation(app, program.layout, serial.state, program.clock_of())
    log, _ = simulation.equals(serial, program.bodies, program.epoch)
    event("cut", any(cut_of(record.body) != NOT_CUT for record in log))
    event("later", len(log) - len(program.bodies) > 0)
    event("streams", sum(map(len, serial.streams.values())) // 20 * 20)
