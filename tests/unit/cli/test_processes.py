"""The processes of `penstock run`: each has the time to end that its work needs."""

from pathlib import Path

from penstock.cli.processes import ChildOptions, children_of
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
