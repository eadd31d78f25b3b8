"""A standby that takes over runs the code that is in force then, without Spark."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.ids import Epoch
from penstock.deployment.archives import Archives
from penstock.deployment.loading import locate
from penstock.deployment.source import code_of
from penstock.journal.deployments import Deployments
from penstock.model.application import App
from penstock.process.config import Config
from penstock.runtime.spark import runtime as module
from penstock.runtime.spark.runtime import SparkRuntime

SOURCE = """
from penstock import App, stream

numbers = stream("{stream}", int)
app = App("numbers", numbers)
"""


class Recovered(Exception):
    """The driver would begin with an application."""


class Jobs:
    """Jobs that run nowhere."""

    def __init__(self, context: Any, settings: Any, residents: Any) -> None:
        self.settings = settings

    def use(self, settings: Any) -> None:
        self.settings = settings

    def load_application(self, _count: int) -> None:
        """Load nothing."""

    start_resident = stop_resident = lambda self: None


class Driver:
    """A driver that only tells its application."""

    def __init__(self, *_: Any) -> None:
        pass

    def recover(self, app: App) -> None:
        raise Recovered(*app.topology.streams)

    def close(self) -> None:
        """Hold nothing."""


def deployed(data: Path, source: Path, stream: str, since: int) -> None:
    """Write the source with a stream, and record it as a deployment."""
    source.write_text(SOURCE.format(stream=stream))
    code, archive = code_of(locate(f"{source}:app"))
    Archives(data).put(archive)
    Deployments(data / "journal").record(Epoch(since), 0, code, {})


def test_standby_takes_the_code_that_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that was deployed after its warm-up, and code that replaced the source before it, is the driver's."""
    for name, value in (("Jobs", Jobs), ("EpochDriver", Driver)):
        monkeypatch.setattr(module, name, value)
    context = SimpleNamespace(stop=lambda: None)
    monkeypatch.setattr(module, "start_context", lambda *_: context)
    monkeypatch.setattr(SparkRuntime, "_plan_query", lambda self: None)
    data, source = tmp_path / "data", tmp_path / "numbers_app.py"
    source.write_text(SOURCE.format(stream="present"))
    runtime = SparkRuntime(f"{source}:app", Config(data=data, class_archive=False))
    try:
        deployed(data, source, "warm", 0)
        runtime.warm_up()
        assert list(runtime.app.topology.streams) == ["warm"]
        deployed(data, source, "newest", 0)
        with pytest.raises(Recovered, match="newest"):
            runtime.start()
    finally:
        runtime.stop()
