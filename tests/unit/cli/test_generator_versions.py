"""Generators go on with the code of a deployment when the gateway serves it, and end if it lacks them."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import Epoch
from penstock.cli.running import generate, generator_versions
from penstock.cli.running.generator_versions import GeneratorVersions
from penstock.deployment.deploy_order import store_code
from penstock.deployment.loading import load_app
from penstock.journal.deployments import Deployments
from penstock.process import presence
from penstock.runtime.generators.runner import Appended, GeneratorRunner
from tests.deployments import kept_imports, write_version
from tests.history import journal_of

__all__ = ["kept_imports"]

TICKS = """
    from penstock import App, Entity, generator, key, stream

    class Jar(Entity):
        name: str = key()

    numbers = stream("numbers", int)
    app = App(
        "ticks", Jar, *(
            generator(name, numbers, lambda first: range(first + {offset}, {offset} + {end}), atom_size=1)
            for name in {names}
        )
    )
"""


class Port:
    """Keeps atoms."""

    def __init__(self) -> None:
        self.atoms: dict[str, Sequence[Any]] = {}

    def append_atom(self, stream: str, events: Sequence[Any], request_id: str) -> int:
        """Keep an atom."""
        assert self.atoms.setdefault(request_id, events) == events, "other events under a known id"
        return 0

    def appended(self, request_id: str) -> Appended:
        """Say whether an atom is kept."""
        return Appended.KNOWN if request_id in self.atoms else Appended.NEVER


def test_a_clock_that_is_set_back_stops_no_generator(
    tmp_path: Path, kept_imports: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pace is that of a clock without jumps; it would wait for as long as the machine's clock went back."""
    assert kept_imports is None
    text = TICKS.replace("atom_size=1", "atom_size=1, per_second=1_000.0")
    source = write_version(tmp_path / "code", "paces", text.format(offset=0, end=4, names=["a"]))
    port, looks = Port(), 0
    now_ns = time.time_ns()

    def wait(seconds: float) -> bool:
        nonlocal looks
        looks += 1
        monkeypatch.setattr(time, "time_ns", lambda: now_ns - looks * 3_600_000_000_000)
        time.sleep(min(seconds, 0.01))
        return looks > 1_000

    runner = GeneratorRunner(load_app(str(source)), port)
    display = generate._ProgressDisplay(None, is_quiet=True)
    generate._run(runner, wait, display, None)
    assert len(port.atoms) == 4


def test_generators_follow_a_served_deployment(
    tmp_path: Path, kept_imports: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next atom is from the new code, no atom is given twice, and the missing generator says why it ends."""
    assert kept_imports is None
    first, second = (
        write_version(tmp_path / name, "ticks", TICKS.format(offset=offset, end=9, names=names))
        for name, offset, names in (("a", 0, ["up", "gone"]), ("b", 100, ["up"]))
    )
    data, port = tmp_path / "data", Port()
    told: list[str] = []
    display = generate._ProgressDisplay(None, is_quiet=True)
    journal_of(first, data, [[("Jar", "tin", "create", {})]], deploys=True)
    app = load_app(first)
    versions = GeneratorVersions(data, first, told.append)
    monkeypatch.setattr(generator_versions, "_LOOK_S", 0.0)
    assert versions.look() is None
    deployment = Deployments(data / "journal").record(
        Epoch(1), 0, store_code(data, second), {}, live=True
    )
    assert deployment is not None
    assert versions.look() is None, "no gateway serves it"
    runner = GeneratorRunner(app, port, ["up", "gone"])
    for _ in range(5):
        runner.step(None, 1 << 60)
    details: dict[str, Any] = {"url": "http://127.0.0.1:9", "deployment": deployment.number}
    with presence.present(data, "gateway", first, **details):
        newer = generate._run(runner, lambda _: False, display, versions)
    assert newer is not None
    generating = generate._Generating(["up", "gone"], ("", None), lambda _: False, display)
    generating._leave_missing(newer, runner.states(1 << 60), versions.number)
    assert [state.reason for state in generating._ended] == [
        "generator gone ends: deployment 2 does not have it"
    ]
    later = GeneratorRunner(newer, port, generating._names, repeats=False)
    generate._run(later, lambda _: False, display, versions)
    ups = [port.atoms[f"ticks/up/{number}"] for number in range(9)]
    known = sum(atom[0] < 100 for atom in ups)
    assert ups == [[number + 100 * (number >= known)] for number in range(9)]
    assert 0 < known < 9
    assert not told
