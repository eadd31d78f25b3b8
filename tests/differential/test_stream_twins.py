"""Random workflows: the cascades of the engine and a dumb twin agree on every atom of every stream."""

from hypothesis import event, given

from tests.differential.stream_programs import Program, app_of, programs
from tests.differential.stream_twin import StreamTwin
from tests.streams.two_ways import Kit


@given(programs())
def test_workflows_and_twin_agree(program: Program) -> None:
    """Branches, keys, state, completion, cycles, questions and failures give the same atoms, in both ways of waiting."""
    kit, twin = Kit(app_of(program)), StreamTwin(program)
    for atom in program.atoms:
        kit.append("numbers", atom, check=False)
        twin.append(atom)
    for name, atoms in twin.streams.items():
        assert kit.atoms(name) == atoms, name
    failed = {name: len(kit.atoms(f"{name}-failed")) for name in twin.failed}
    assert failed == twin.failed
    event(f"failed atoms: {min(sum(failed.values()), 3)}")
    event(f"atoms: {sum(map(len, twin.streams.values())) // 20 * 20}")
    assert not any(name.startswith("$") for name in kit.runtime.state)
