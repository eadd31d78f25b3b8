"""Workflows that begin with earlier atoms: each atom once, in the order of the stream, and newer atoms behind them."""

from itertools import count
from typing import Any

import pytest

from penstock import App, DefinitionError, flow, stream
from penstock.engine.limits import Limits
from penstock.engine.streams.cascade_runner import SHARE_S, CascadeTime
from penstock.model import catch_up
from penstock.model.catch_up import decode_catch_up, recorded_cut
from penstock.model.streams.flow import Start
from penstock.runtime.local.runtime import LocalRuntime
from tests.streams.late_app import Total, after, before, early, late, numbers

EARLIER = [[1, 2], [3], [-4], [5]]


def upgraded(app: App, runtime: LocalRuntime) -> LocalRuntime:
    """Deploy another version of an application, and leave the first piece for later."""
    runtime._deploy(app, ())
    runtime._subscribe_late()
    return runtime


def with_atoms(app: App, atoms: list[list[int]]) -> LocalRuntime:
    runtime = LocalRuntime(app)
    for atom in atoms:
        runtime.append("numbers", atom)
    return runtime


def atoms_of(runtime: LocalRuntime, name: str) -> list[Any]:
    published = runtime.app.topology.streams[name]
    return [[published.events.decode(data) for data in atom] for atom in runtime.streams[name]]


def rows_of(runtime: LocalRuntime, prefix: str) -> list[bytes]:
    """Return the attributes of the rows of a task, without the tag of its class."""
    return [row[6:] for key, row in sorted(runtime.state.items()) if key.startswith(prefix)]


@pytest.mark.parametrize("most", [1, 2, 1_000])
def test_late_workflow_is_like_an_early_one(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Atoms, failed atoms and state are those of a workflow that was there from the beginning."""
    monkeypatch.setattr(catch_up, "PIECE_ATOMS", most)
    monkeypatch.setattr("penstock.engine.streams.late_flows.PIECE_ATOMS", most)
    runtime = upgraded(after, with_atoms(before, EARLIER))
    for number in (6, 7):
        runtime.append("numbers", [number])
    assert runtime.settle()
    assert atoms_of(runtime, "late-totals") == atoms_of(runtime, "early-totals")
    assert len(runtime.streams["late-failed"]) == len(runtime.streams["early-failed"]) == 1
    assert rows_of(runtime, "late.Total/") == rows_of(runtime, "early.Total/") != []
    assert not [key for key in runtime.state if key.startswith(("$held", "$behind"))]


def test_newer_atoms_wait_for_the_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the workflow catches up, an atom that is published is held; the early workflow takes it at once."""
    monkeypatch.setattr(catch_up, "PIECE_ATOMS", 2)
    runtime = upgraded(after, with_atoms(before, EARLIER))
    pieces = list(runtime._later)
    runtime._later.clear()
    runtime.append("numbers", [10])
    assert atoms_of(runtime, "late-totals") == []
    assert atoms_of(runtime, "early-totals")[-1] == [21]
    runtime._later.extend(pieces)
    assert runtime.settle()
    assert atoms_of(runtime, "late-totals") == atoms_of(runtime, "early-totals")


def test_piece_ends_where_retention_has_removed_atoms() -> None:
    """The next piece begins with the oldest atom that is left, so no atom comes twice."""

    def atoms(_stream: str, first: int) -> catch_up.Numbered:
        return [(number, (b"\x01",)) for number in (0, 1, 7, 8, 9) if number >= first]

    def filled(first: int) -> tuple[int, int]:
        body = catch_up.encode_catch_up(catch_up.CatchUp("late", "numbers", 0, first, 9))
        piece = catch_up.decode_catch_up(catch_up.filled(body, atoms))
        return piece.first, len(piece.atoms)

    assert [filled(0), filled(2), filled(9)] == [(0, 2), (7, 2), (9, 0)]


def test_repeated_piece_changes_nothing() -> None:
    """A piece that comes again, under another id, gives no atom twice."""
    runtime = upgraded(after, with_atoms(before, EARLIER))
    (piece,) = runtime._later
    assert runtime.settle()
    state, atoms = dict(runtime.state), atoms_of(runtime, "late-totals")
    runtime._submit(piece.body, "again")
    assert (runtime.state, atoms_of(runtime, "late-totals")) == (state, atoms)


@pytest.mark.parametrize(
    ("start", "totals"),
    [(0, [3, 6, 11]), (1, [3, 8]), (3, [5]), (99, [])],
)
def test_start_is_the_number_of_an_atom(start: int, totals: list[int]) -> None:
    """The workflow takes the atoms from that number on; a number beyond the newest atom is the next one."""
    chosen = flow("late", numbers, start=start).task(Total).sink("late-totals")
    runtime = upgraded(App("late", early, chosen), with_atoms(before, EARLIER))
    assert runtime.settle()
    assert [atom[-1] for atom in atoms_of(runtime, "late-totals") if atom] == totals
    runtime.append("numbers", [100])
    assert atoms_of(runtime, "late-totals")[-1] == [(totals or [0])[-1] + 100]


def test_a_piece_ends_when_its_time_is_over() -> None:
    """The next piece goes on behind it, and the log says where, so another run of the log ends there, too."""
    runtime = upgraded(after, with_atoms(before, EARLIER))
    known = len(runtime._known)
    seconds = count(0.0, SHARE_S / 2)
    runtime._runner.time = CascadeTime(lambda: next(seconds), short=1)
    assert runtime.settle()
    assert atoms_of(runtime, "late-totals") == atoms_of(runtime, "early-totals")
    log = [(name, body) for name, (body, _) in list(runtime._known.items())[known:]]
    assert [decode_catch_up(body).former for _, body in log] == [None, 3]
    again = upgraded(after, with_atoms(before, EARLIER))
    again._later.clear()
    again._runner.cuts = {name: recorded_cut(body) for name, body in log}
    for name, body in log:
        again._process(again._record(name, body, 0))
    assert (again.state, again.streams) == (runtime.state, runtime.streams)


def test_deployment_catches_up_at_once() -> None:
    """A test that deploys a late workflow sees its results directly."""
    runtime = with_atoms(before, EARLIER)
    early = atoms_of(runtime, "early-totals")
    assert early
    for _ in range(2):
        runtime.deploy(after)
        assert atoms_of(runtime, "late-totals") == atoms_of(runtime, "early-totals") == early


def test_new_application_has_no_earlier_atoms() -> None:
    """Without earlier atoms the workflow takes each atom at once."""
    runtime = with_atoms(after, EARLIER)
    assert atoms_of(runtime, "late-totals") == atoms_of(runtime, "early-totals") != []


def test_its_output_may_lead_to_itself() -> None:
    """Atoms that the missed atoms cause are behind the missed ones, and are taken once."""
    loop = stream("loop", int)
    feeding = flow("feeding", loop).map(lambda number: number).sink("fed", int)
    first = LocalRuntime(App("loop", feeding), limits=Limits(cascade_steps=3))
    for number in range(5):
        first.append("loop", [number])
    copy = flow("copy", feeding, start="earliest").map(lambda number: -number).sink("copied", int)
    runtime = upgraded(App("loop", feeding, copy), first)
    runtime.append("loop", [5])
    assert runtime.settle()
    assert atoms_of(runtime, "copied") == [[-number] for number in range(6)]


def test_rows_of_a_former_pause_are_not_taken() -> None:
    """A workflow that was paused, and is late in the next version, takes each atom once and catches up."""
    waiting = flow("late", numbers, on_failure="pause").task(Total).sink("late-totals")
    runtime = with_atoms(App("late", early, waiting), [[-1], [2], [3]])
    assert [key for key in runtime.state if key.startswith("$held")]
    upgraded(after, runtime)
    runtime.append("numbers", [4])
    assert runtime.settle()
    assert atoms_of(runtime, "late-totals") == [[2], [5], [9]]


@pytest.mark.parametrize("start", ["first", -1, True, 1.5])
def test_wrong_start_is_refused(start: Any) -> None:
    """The complaint names the workflow and the values."""
    wrong: Start = start
    with pytest.raises(DefinitionError, match='workflow late: start is "earliest", "latest" or'):
        App("late", flow("late", numbers, start=wrong).task(Total).sink("late-totals"))


def test_late_workflow_cannot_pause() -> None:
    """A pause would let newer atoms overtake the missed ones."""
    pausing = flow("late", numbers, start="earliest", on_failure="pause").task(Total).sink("x")
    with pytest.raises(DefinitionError, match="with start, on_failure"):
        App("late", pausing)
    assert late.start == "earliest"
