"""The processes of `penstock run`: each has the time to end that its work needs."""

from pathlib import Path

from msgspec.structs import replace

from penstock.base.ids import Epoch
from penstock.cli.running.processes import ChildOptions, Followers, children_of
from penstock.journal.deployments import NAME, Deployments
from penstock.model.control import DeployedCode
from penstock.process.config import Config


def test_generator_that_waits_for_its_source_delays_no_stop(tmp_path: Path) -> None:
    """It is killed soon, because the log knows its atoms; the others may end what they have begun."""
    options = ChildOptions("app.py", None, (), generates=True)
    children = {child.role: child for child in children_of(options, Config(tmp_path))}
    assert (
        children["generator"].stop_s
        <= 2
        < min(child.stop_s for role, child in children.items() if role != "generator")
    )


def test_standby_is_a_second_driver(tmp_path: Path) -> None:
    """Both have the same command, so that each of them may be the driver."""
    options = ChildOptions("app.py", None, (), standby=True)
    driver, standby = children_of(options, Config(tmp_path))[:2]
    assert (driver.role, standby.role, standby.spare_of) == ("driver", "standby", "driver")
    assert "--standby" in driver.command
    assert driver.command == standby.command


def test_each_view_of_the_newest_deployment_has_an_applier(tmp_path: Path) -> None:
    """A deployment changes the list; a file that cannot be read leaves it as it is."""
    appliers = Followers(ChildOptions("app.py", None, ()), Config(tmp_path))

    def names() -> list[str]:
        return [child.command[child.command.index("feed") + 2] for child in appliers()]

    assert names() == []
    journal = tmp_path / "journal"
    journal.mkdir()
    deployments = Deployments(journal)
    code = DeployedCode("a", "app", "app", "3.11", {})
    deployments.record(Epoch(0), 1, code, {}, views=["reporting", "names"])
    assert names() == ["reporting", "names"]
    assert all(not child.needed and "--deployed" in child.command for child in appliers())
    assert appliers() is appliers(), "the same children, so that the supervisor keeps them"
    path = journal / NAME
    whole = path.read_bytes()
    path.write_bytes(b"{")
    assert names() == ["reporting", "names"]
    path.write_bytes(whole)
    deployments.record(Epoch(4), 2, replace(code, archive="b"), {}, views=["names"])
    assert names() == ["names"]
    assert Deployments(journal).views() == ("names",)
