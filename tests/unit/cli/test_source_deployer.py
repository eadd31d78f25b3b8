"""`penstock dev` runs the present source, whatever was deployed in an earlier run."""

import sys
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from penstock.base.ids import Epoch, Lsn
from penstock.cli.options import AppOptions
from penstock.cli.running.foreground import Foreground
from penstock.cli.running.processes import ChildOptions
from penstock.cli.running.run import foreground_of
from penstock.cli.running.source_deployer import SourceDeployer, SourceFiles
from penstock.cli.running.supervisor import Supervisor
from penstock.deployment.deploy_order import store_code
from penstock.deployment.loading import load_app, locate
from penstock.journal.deployments import Deployments
from penstock.model.control import Deploy, DeployedCode, decode_control
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
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


def waiting(data: Path) -> list[DeployedCode]:
    """Return the code of the deployments in the log."""
    with closing(DataDirectory(data).open_log()) as log:
        bodies = [log.read(lsn, Lsn(lsn + 1))[0].body for lsn in log.controls(Lsn(0), log.end())]
    return [control.code for control in map(decode_control, bodies) if isinstance(control, Deploy)]


@pytest.mark.usefixtures("kept_imports")
def test_a_source_that_was_replaced_in_an_earlier_run_is_deployed(tmp_path: Path) -> None:
    """The driver continues the code in force; the present source is deployed, once, when all processes run."""
    data = tmp_path / "data"
    first, second = (
        write_version(tmp_path / str(each), "jars", JARS.format(version=each)) for each in (1, 2)
    )
    journal_of(first, data, [[("Jar", "tin", "create", {})]], deploys=True)
    Deployments(data / "journal").record(Epoch(1), 0, store_code(data, second), {}, live=True)
    for source, expected in ((second, []), (first, [store_code(data, first)])):
        options = ChildOptions(source, None, [], development=True)
        console = Console(file=StringIO())
        app = load_app(first)
        foreground = Foreground(app, options, Config(data), console, lambda *_: [])
        deployer = SourceDeployer(foreground, SourceFiles(locate(source)))
        for _ in range(2):
            deployer.look(Supervisor([], foreground.say, foreground.tell))
        assert waiting(data) == expected


@pytest.mark.usefixtures("kept_imports")
def test_a_run_of_a_replaced_source_shows_the_code_in_force(tmp_path: Path) -> None:
    """The source does not run, so its classes need not fit the stored entities; one that was never deployed runs."""
    data = tmp_path / "data"
    first, second, third = (
        write_version(tmp_path / str(each), "jars", JARS.format(version=each)) for each in (1, 2, 3)
    )
    calls: list[list[Call]] = [[("Jar", name, "create", {})] for name in ("tin", "pot")]
    journal_of(first, data, calls, deploys=True)
    for source in (second, third):
        with Path(source).open("a") as text:
            text.write(
                "\nclass Lid(Entity):\n    name: str = key()\n\napp = App('jars', Jar, Lid)\n"
            )
    unfit = Path(second).read_text().replace("name: str = key()", "name: int = key()", 1)
    Path(second).write_text(unfit)
    deployments = Deployments(data / "journal")
    deployments.record(Epoch(1), 0, store_code(data, second), {}, live=True)
    back = deployments.record(Epoch(2), 0, store_code(data, first), {}, live=True)
    assert back is not None
    for source, replacement, classes in ((second, back, {"Jar"}), (third, None, {"Jar", "Lid"})):
        sys.modules.pop("jars", None)
        foreground = foreground_of(AppOptions(app=[source], data=data), {})
        assert (foreground.replacement, foreground.schema_changes) == (replacement, [])
        assert set(foreground.app.entities) == classes
        sys.modules.pop("jars", None)
        assert set(load_app(foreground.options.app).entities) == classes, "the processes run it"
