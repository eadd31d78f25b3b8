"""A process that starts with a source file finds out whether another version of the source is in force."""

import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from penstock.base.ids import Epoch
from penstock.deployment import source
from penstock.deployment.code_in_force import REST_S, CodeInForce, spec_to_run, unpacked
from penstock.deployment.deploy_order import store_code
from penstock.deployment.deployment_start import deploy
from penstock.deployment.loading import load_app
from penstock.errors import OperationalError
from penstock.files.local_root import LocalRoot
from penstock.journal.api import Commit
from penstock.journal.deployments import Deployment, Deployments
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.runtime import SparkRuntime
from tests.deployments import kept_imports, write_version
from tests.history import Call, journal_of

__all__ = ["kept_imports"]

JARS = """
    from penstock import App, Entity, key

    class Jar(Entity):
        name: str = key()

    app = App("jars", Jar)
    VERSION = {version}
"""


@pytest.fixture
def versions(tmp_path: Path, kept_imports: None) -> list[str]:
    """Return three sources, the first of which has run epochs 0 and 1."""
    sources = [
        write_version(tmp_path / str(each), "jars", JARS.format(version=each)) for each in (1, 2, 3)
    ]
    calls: list[list[Call]] = [[("Jar", name, "create", {})] for name in ("tin", "pot")]
    journal_of(sources[0], tmp_path / "data", calls, deploys=True)
    return sources


@pytest.mark.parametrize("live", [True, False])
def test_a_rollback_is_served_by_a_process_that_starts_with_the_replaced_source(
    tmp_path: Path, versions: list[str], *, live: bool
) -> None:
    """Gateways and views follow the driver, which continues code that was deployed live; other sources stay."""
    data, (first, second, third) = tmp_path / "data", versions
    deployments = Deployments(data / "journal")
    deployments.record(Epoch(1), 0, store_code(data, second), {}, live=True)
    back = deployments.record(Epoch(2), 0, store_code(data, first), {}, live=live)
    wanted = [CodeInForce(data, spec).wanted(Epoch(2)) for spec in (first, second, third)]
    assert wanted == [None, back if live else None, None]


def test_a_rollback_stays_in_force_when_a_library_changes(
    tmp_path: Path, versions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start records the versions of the libraries, and the replaced source does not come back with a later start."""
    data, (first, second, third) = tmp_path / "data", versions
    deployments = Deployments(data / "journal")
    rolled_back = store_code(data, first)
    deployments.record(Epoch(1), 0, store_code(data, second), {}, live=True)
    deployments.record(Epoch(2), 0, rolled_back, {}, live=True)
    in_force = unpacked(data, rolled_back).spec
    monkeypatch.setattr(source, "_versions_of", lambda _: {"numpy": "99"})
    assert spec_to_run(data, second) == in_force
    app = load_app(first)
    with closing(DataDirectory(data).open_journal(app)) as journal:
        recorded = deploy(data, in_force, app, journal)
    assert recorded is not None
    assert recorded.code == msgspec.structs.replace(rolled_back, libraries={"numpy": "99"})
    assert spec_to_run(data, second) == in_force
    assert spec_to_run(data, third) == third


def test_a_driver_that_has_imported_the_replaced_source_has_the_classes_in_force(
    tmp_path: Path, versions: list[str]
) -> None:
    """Otherwise it would store schema versions of classes that no worker has."""
    data, (first, second, _) = tmp_path / "data", versions
    Path(second).write_text(Path(second).read_text().replace("key()", "key()\n    lid: int = 0"))
    deployments = Deployments(data / "journal")
    deployments.record(Epoch(1), 0, store_code(data, second), {}, live=True)
    deployments.record(Epoch(2), 0, store_code(data, first), {}, live=True)
    sys.modules.pop("jars", None)
    assert "lid" in load_app(second).entities["Jar"].attributes
    runtime = SparkRuntime(second, Config(data))
    declared = runtime.app.entities["Jar"].attributes
    runtime.stop()
    assert "lid" not in declared


def test_a_source_that_is_written_after_its_import_is_not_served(
    tmp_path: Path, versions: list[str]
) -> None:
    """A process that began with the former text loads the deployment, although the file has its text meanwhile."""
    data, first = tmp_path / "data", versions[0]
    sys.modules.pop("jars", None)
    assert "lid" not in load_app(first).entities["Jar"].attributes
    Path(first).write_text(Path(first).read_text().replace("key()", "key()\n    lid: int = 0"))
    recorded = Deployments(data / "journal").record(Epoch(2), 0, store_code(data, first), {})
    assert recorded is not None
    loader = CodeInForce(data, first)
    assert loader.wanted(Epoch(2)) == recorded
    loaded = loader.load(recorded)
    assert loaded is not None
    assert "lid" in loaded.app.entities["Jar"].attributes


def test_a_driver_refuses_a_source_that_is_written_after_its_import(
    tmp_path: Path, versions: list[str]
) -> None:
    """The archive would be a text that the driver has not imported; its next start deploys this text."""
    data, second = tmp_path / "data", versions[1]
    before = Deployments(data / "journal").every()
    sys.modules.pop("jars", None)
    app = load_app(second)
    Path(second).write_text(Path(second).read_text().replace("key()", "key()\n    lid: int = 0"))
    with closing(DataDirectory(data).open_journal(app)) as journal:
        with pytest.raises(OperationalError, match="start again"):
            deploy(data, second, app, journal)
        assert Deployments(data / "journal").every() == before
        sys.modules.pop("jars", None)
        assert deploy(data, second, load_app(second), journal) is not None


class Following:
    """A process that follows a journal in a store.

    Attributes:
        commit: The newest commit that it knows.
        now_s: Its clock.
        looks: The files in the store that it has looked at.
    """

    def __init__(self, data: Path, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commit: Commit | None = None
        self.now_s, self.looks = 0.0, list[str]()
        stamp = LocalRoot.stamp

        def counted(root: LocalRoot, name: str) -> object:
            self.looks.append(name)
            return stamp(root, name)

        monkeypatch.setattr(LocalRoot, "is_far", True)
        monkeypatch.setattr(LocalRoot, "stamp", counted)
        self.code = CodeInForce(data, spec, clock=lambda: self.now_s, known=lambda: self.commit)
        self.code.due(Epoch(0))

    def after(self, epoch: int, deployment: str) -> tuple[int, Deployment | None]:
        """Learn of a commit; return the number of looks at the store, and the deployment to serve."""
        self.commit = Commit(Epoch(epoch), {}, (), 0, deployment=deployment)
        self.looks.clear()
        due = self.code.due(Epoch(epoch + 1))
        self.code.next_since(Epoch(epoch + 1))
        return len(self.looks), due


def test_a_commit_that_names_the_known_deployment_saves_a_look(
    tmp_path: Path, versions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process asks a store at once when a commit names another deployment, or none, and rarely while it names the known one."""
    data, (first, second, third) = tmp_path / "data", versions
    deployments, process = Deployments(data / "journal"), Following(data, first, monkeypatch)
    (served,) = deployments.every()
    assert [process.after(epoch, served.name) for epoch in (2, 3)] == 2 * [(0, None)]
    assert process.after(4, "") == (1, None), "a driver of an earlier version has written it"
    process.code.due(Epoch(9))
    assert len(process.looks) == 2, "the commit says nothing about a later epoch"
    deployed = deployments.record(Epoch(8), 0, store_code(data, second), {}, live=True)
    assert deployed is not None
    assert process.after(7, deployed.name) == (1, deployed)
    with process.code.exchange(deployed):
        pass
    assert process.after(8, deployed.name) == (0, None)
    started = deployments.record(Epoch(10), 0, store_code(data, third), {}, live=True)
    assert process.after(9, deployed.name) == (0, None), "no commit knows of a start yet"
    process.now_s += REST_S
    assert process.after(9, deployed.name) == (1, started)


def test_an_idle_process_asks_a_store_rarely(
    tmp_path: Path, versions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a new epoch it asks again after some seconds, because a driver that starts may have deployed; else at once."""
    monkeypatch.setattr(LocalRoot, "is_far", True)
    data, (first, second, third) = tmp_path / "data", versions
    now_s = 0.0
    code = CodeInForce(data, first, clock=lambda: now_s)
    assert code.due(Epoch(2)) is None
    deployments = Deployments(data / "journal")
    started = deployments.record(Epoch(2), 0, store_code(data, second), {}, live=True)
    assert code.due(Epoch(2)) is None
    now_s += REST_S
    assert code.due(Epoch(2)) == started
    deployed = deployments.record(Epoch(3), 0, store_code(data, third), {}, live=True)
    assert code.due(Epoch(2)) == started
    assert code.due(Epoch(3)) == deployed
