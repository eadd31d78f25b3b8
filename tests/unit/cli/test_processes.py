"""The processes of `penstock run`: each has the time to end that its work needs."""

from pathlib import Path

from penstock.cli.running.processes import ChildOptions, children_of
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
