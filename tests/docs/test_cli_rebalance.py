"""`penstock rebalance` changes the number of partitions while epochs run, and proposes a number."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.base.ids import EntityKey, RequestId
from penstock.cli.main import execute
from penstock.log.api import Entry
from penstock.orders.partitions import ask_for_partitions
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.state.digest import digest_of_mapping
from penstock.state.newest import read_newest
from penstock.state.stores import remove_former_stores
from tests.differential.committed import digest_of_stores, state_of
from tests.differential.inline import Inline
from tests.differential.machine import app


@pytest.fixture
def inline(tmp_path: Path) -> Iterator[Inline]:
    """Return a driver whose journal has an epoch with some entities, in two partitions."""
    runtime = Inline(tmp_path, 2)
    for number in range(20):
        body, hint = app.request("Alpha", f"x{number}", "create")
        runtime.log.append([Entry(RequestId(f"r{number}"), body, hint, 0)])
    runtime.advance(runtime.log.end())
    yield runtime
    runtime.close()


def partitions_of(runtime: Inline) -> int:
    last = runtime.journal.last()
    assert last is not None
    return last.partitions


def test_rebalance_changes_a_running_application(
    inline: Inline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer names the epoch; a reader that has read before sees the same rows; former stores can go."""
    command = ["rebalance", "--data", str(tmp_path)]
    follower = DataDirectory(tmp_path).open_stores(inline.journal)
    row = EntityKey("Alpha/x1")
    before = read_newest(inline.journal, follower, [row])[1]
    with inline.following():
        assert execute([*command, "--partitions", "5", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"before": 2, "partitions": 5, "epoch": 1}
        assert execute([*command, "--partitions", "5"]) == 0
        assert capsys.readouterr().out == "There are 5 partitions already.\n"
        assert execute([*command, "--partitions", "1"]) == 0
        assert capsys.readouterr().out == "5 → 1 partitions, from epoch 3 on.\n"
    assert partitions_of(inline) == 1
    expected = digest_of_mapping(state_of(inline.journal))
    assert digest_of_stores(inline.config, inline.journal) == expected
    assert read_newest(inline.journal, follower, [row])[1] == before != [None]
    follower.close()
    inline.restart()  # the worker may still apply the newest epoch, and closes the stores before it does
    assert {name[-2:] for name in remove_former_stores(tmp_path / "state", 1)} == {"-2", "-5"}


def test_rebalance_of_a_stopped_application_waits_for_its_start(
    inline: Inline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record is in the log, and the next driver executes it, whatever its setting says."""
    command = ["rebalance", "--data", str(tmp_path), "--partitions", "3", "--json"]
    assert execute(command) == 0
    assert json.loads(capsys.readouterr().out) == {"before": 2, "partitions": 3, "epoch": None}
    inline.restart()
    inline.advance(inline.log.end())
    assert partitions_of(inline) == 3
    inline.restart()
    inline.log.append([Entry(RequestId("later"), *app.request("Alpha", "x1", "delete"), 0)])
    inline.advance(inline.log.end())
    assert partitions_of(inline) == 3


def test_rebalance_without_a_number_proposes_one(
    inline: Inline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The proposal has a reason, and nothing is appended."""
    end = inline.log.end()
    assert execute(["rebalance", "--data", str(tmp_path), "--set", "cores=1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["partitions"], answer["proposed"]) == (2, 1)
    assert execute(["rebalance", "--data", str(tmp_path), "--set", "cores=2"]) == 0
    assert capsys.readouterr().out.startswith("2 partitions are a good number. There are")
    assert inline.log.end() == end


def test_rebalance_refuses_a_wrong_number_and_a_directory_without_a_journal(
    inline: Inline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is appended, and the message says why."""
    end = inline.log.end()
    assert execute(["rebalance", "--data", str(tmp_path), "--partitions", "1025"]) == 2
    assert "1024" in capsys.readouterr().err
    assert execute(["rebalance", "--data", str(tmp_path / "none"), "--partitions", "2"]) == 2
    assert "none does not exist" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert execute(["rebalance", "--data", str(tmp_path / "empty"), "--partitions", "2"]) == 2
    assert "there is no journal" in capsys.readouterr().err
    assert inline.log.end() == end


def test_only_an_option_moves_at_the_start(inline: Inline, tmp_path: Path) -> None:
    """A number in a file or in the environment counts at the first start; an option asks for a change."""
    end = inline.log.end()
    assert ask_for_partitions(Config(tmp_path, partitions=4), ["cores=4"]) is None
    assert ask_for_partitions(Config(tmp_path, partitions=2), ["partitions=2"]) is None
    assert ask_for_partitions(Config(tmp_path / "new", partitions=4), ["partitions=4"]) is None
    assert inline.log.end() == end
    assert ask_for_partitions(Config(tmp_path, partitions=4), ["partitions=4"]) == 2
    inline.advance(inline.log.end())
    assert partitions_of(inline) == 4
