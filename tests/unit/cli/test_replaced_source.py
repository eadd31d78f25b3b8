"""What a start runs: the source, after a trial of its migrations, or the deployment that has replaced it."""

import itertools
import json
from pathlib import Path

import pytest

from penstock.base.ids import Epoch
from penstock.cli.main import execute
from penstock.cli.options import AppOptions
from penstock.cli.running.processes import ChildOptions, children_of
from penstock.cli.running.replaced_source import load_to_run
from penstock.cli.running.run import foreground_of
from penstock.deployment.code_in_force import is_unpacked, unpacked
from penstock.deployment.deploy_order import store_code
from penstock.deployment.loading import locate
from penstock.errors import ClassChanged, ConfigError
from penstock.journal.deployments import Deployments
from penstock.orders.schedules import paused_schedules
from penstock.process.config import Config
from tests.history import journal_of

_numbers = itertools.count()
SOURCE = """
from penstock import App, Entity, key, migrate

class Item(Entity):
    name: str = key()
    price: int

{more}
app = App("kiosk", Item{functions})
"""
MIGRATING = '@migrate(Item, since=2)\ndef made(old):\n    return {{"price": {price}}}\n'


def written(folder: Path, more: str = "", functions: str = "") -> Path:
    file = folder / f"replacedkiosk{next(_numbers)}.py"
    file.write_text(SOURCE.format(more=more, functions=functions))
    return file


def test_a_process_alone_runs_the_code_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A source that a deployment has replaced does not run; the text says so, and how to deploy the source."""
    source, data = written(tmp_path), tmp_path / "data"
    journal_of(str(source), data, [[("Item", "tea", "create", {"price": 3})]], deploys=True)
    options = AppOptions(app=[str(source)], data=data)
    assert load_to_run(options, {})[1].app == str(source)
    other = written(tmp_path, more="NEWER = 1")
    code = store_code(data, str(other))
    Deployments(data / "journal").record(Epoch(1), 0, code, {}, live=True)
    application, settings = load_to_run(options, {})
    assert (application.name, settings.app) == ("kiosk", unpacked(data, code).spec)
    told = capsys.readouterr().err
    assert "source does not run: deployment 2, in force since epoch 1, has replaced it" in told
    assert f"penstock deploy {source} puts it in force" in told


def test_schedules_are_those_of_the_code_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that was changed and not deployed shows and pauses no schedule that does not run; nor does another application."""

    def scheduled(name: str) -> Path:
        times = f'from penstock import every\n@every("5m")\ndef {name}(due):\n    pass\n'
        return written(tmp_path, times, f", {name}")

    source, data = scheduled("sweep"), tmp_path / "data"
    journal_of(str(source), data, [[("Item", "tea", "create", {"price": 3})]], deploys=True)
    source.write_text(scheduled("clean").read_text().replace("price: int", "price: bool"))
    given = ["schedule", str(source), "--data", str(data)]
    assert execute([*given, "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["sweep"]
    assert execute([*given, "--pause", "clean"]) != 0
    assert execute([*given, "--pause", "sweep"]) == 0
    assert paused_schedules(data) == {"sweep"}
    other = written(tmp_path)
    other.write_text(other.read_text().replace("kiosk", "shop"))
    capsys.readouterr()
    assert execute(["schedule", str(other), "--data", str(data)]) != 0
    assert "kiosk" in capsys.readouterr().err


def test_a_source_that_goes_while_a_run_starts_stops_no_process(tmp_path: Path) -> None:
    """What starts after the driver runs the deployment that the driver has recorded: an editor may just write the source anew."""
    source, data = written(tmp_path), tmp_path / "data"
    journal_of(str(source), data, [[("Item", "tea", "create", {"price": 3})]], deploys=True)
    given = ChildOptions(str(source), None, (), standby=True)
    late = [each for each in children_of(given, Config(data)) if each.patience_s]
    assert [(each.role, *each.again) for each in late] == [
        ("standby", "--deployed"),
        ("view", "--deployed"),
    ]
    source.unlink()
    options = AppOptions(app=[str(source)], data=data)
    with pytest.raises(ConfigError, match="does not exist"):
        load_to_run(options, {})
    application, settings = load_to_run(options, {}, deployed=True)
    assert application.name == "kiosk"
    assert is_unpacked(data, locate(settings.app))


def test_a_start_tries_a_function_that_has_changed_in_text_alone(tmp_path: Path) -> None:
    """Classes are as they were, so the trial is due because of the code; equal code is not tried again."""
    data = tmp_path / "data"
    first = written(tmp_path)
    journal_of(str(first), data, [[("Item", "tea", "create", {"price": 3})]], deploys=True)

    def version(price: str) -> str:
        source = written(tmp_path, MIGRATING.format(price=price), ", made")
        source.write_text(source.read_text().replace("price: int", "price: str"))
        return str(source)

    def tried(source: str) -> list[str]:
        return list(foreground_of(AppOptions(app=[source], data=data), {}).tried)

    second = version("str(old['price'])")
    assert tried(second) == ["Item: @migrate was tried on 1 of 1 stored entities"]
    journal_of(second, data, [[("Item", "mate", "create", {"price": "4"})]], deploys=True)
    assert tried(second) == []
    assert tried(version("'%s' % old['price']")) == [
        "Item: @migrate was tried on 2 of 2 stored entities"
    ]
    with pytest.raises(ClassChanged, match="Item/tea"):
        tried(version("old['price'] / 0"))
