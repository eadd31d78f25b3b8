"""The search index as a target: positions, replacement, damage, kills, and what issues of other systems report."""

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import tantivy

from penstock.views import search_target
from penstock.views.search_fields import Contents, position_document
from penstock.views.search_index import SearchIndex, SearchQuery
from penstock.views.search_target import SearchTarget
from penstock.views.target import Overtaken, Row, TableChange, TargetProblem
from tests.views.search_rows import (
    CHOICE,
    FAILED_ROWS,
    ITEMS,
    ORDERS,
    SHAPES,
    changed,
    filled,
    found,
    item,
    order,
    position,
)
from tests.waiting import wait_for


def _changes(*, touched: list[str], rows: list[Row]) -> list[TableChange]:
    return [TableChange(ITEMS, touched, rows)]


def test_a_new_index_has_no_position(tmp_path: Path) -> None:
    """Before the first fill there is no position, and a search says so."""
    target = SearchTarget(tmp_path, CHOICE)
    assert target.position() == (None, 0)
    with pytest.raises(TargetProblem, match="not been filled"):
        SearchIndex(tmp_path).search(SearchQuery())


def test_rows_and_position_change_together(tmp_path: Path) -> None:
    """A change is seen with its position by a reader that was open before it."""
    target = filled(tmp_path, [item("a", "green tea"), item("b", "black tea")])
    reader = SearchIndex(tmp_path)
    assert (reader.epoch(), found(tmp_path, "tea")) == (0, ["a", "b"])
    changed(target, 1, ["a", "c"], [item("c", "white tea")])
    assert reader.search(SearchQuery(query="tea")).epoch == 1
    assert found(tmp_path, "tea") == ["b", "c"]
    assert target.position() == (position(1), 0)
    target.close()


def test_changes_equal_a_model(tmp_path: Path) -> None:
    """After each of many random changes, an index has the rows of a dictionary, also in a target that is opened again."""
    draw = random.Random(7)
    target = filled(tmp_path)
    model: dict[str, list[Row]] = {}
    for epoch in range(1, 30):
        touched = draw.sample(range(20), draw.randrange(1, 8))
        rows = [
            order(f"k{each}", place, f"tea {epoch}")
            for each in touched
            for place in range(draw.randrange(4))
        ]
        model |= {f"k{each}": [row for row in rows if row[0] == f"k{each}"] for each in touched}
        change = TableChange(ORDERS, [f"k{each}" for each in touched], rows)
        if not epoch % 10:
            target.close()
            target = SearchTarget(tmp_path, CHOICE)
        target.apply(position(epoch - 1), position(epoch), [change])
        answer = SearchIndex(tmp_path).search(SearchQuery(limit=1_000))
        shown = [tuple(msgspec.json.decode(hit.row).values()) for hit in answer.hits]
        assert sorted(shown) == sorted(row for rows in model.values() for row in rows)
    target.close()


def test_an_owner_that_is_part_of_another_stays(tmp_path: Path) -> None:
    """Case 20: a row is deleted by its whole owner, whatever characters it has and however long it is."""
    owners = ["a", "a b", "A", "a\0", "ä", "x" * 5_000, "x" * 5_001, "", '"', "a:b"]
    target = filled(tmp_path, [item(each, "tea") for each in owners])
    for epoch, owner in enumerate(owners, 1):
        changed(target, epoch, [owner], [])
        assert found(tmp_path) == sorted(owners[epoch:])
    target.close()


def test_the_same_owner_in_another_table_stays(tmp_path: Path) -> None:
    """Owners of different tables have nothing in common."""
    target = filled(tmp_path, [item("a", "tea")])
    target.apply(position(0), position(1), [TableChange(ORDERS, ["a"], [order("a", 0, "cup")])])
    target.apply(position(1), position(2), _changes(touched=["a"], rows=[]))
    assert found(tmp_path) == ["a"]
    assert found(tmp_path, table="Item") == []
    target.close()


def test_a_commit_is_visible_when_apply_returns(tmp_path: Path) -> None:
    """Case 20: no reader waits for a reload of its own."""
    target = filled(tmp_path)
    reader = SearchIndex(tmp_path)
    for epoch in range(1, 12):
        changed(target, epoch, [f"{epoch}"], [item(f"{epoch}", "tea")])
        answer = reader.search(SearchQuery(query="tea"))
        assert (answer.epoch, answer.total) == (epoch, epoch)
    target.close()


def test_values_that_no_field_holds_are_shown(tmp_path: Path) -> None:
    """Case 17: a document with odd values is not refused, and its row has them."""
    odd = item("a", "tea\0" + "x" * 100_000, brand="y" * 70_000, tags='["' + "z" * 70_000 + '"]')
    target = filled(tmp_path, [odd, item("b", "tea")])
    assert found(tmp_path, "tea") == ["a", "b"]
    assert found(tmp_path, filters={"brand": "y" * 70_000, "tags": "z" * 70_000}) == ["a"]
    answer = SearchIndex(tmp_path).search(SearchQuery(filters={"_key": "a"}))
    assert msgspec.json.decode(answer.hits[0].row)["name"] == odd[1]
    target.close()


def test_a_deleted_row_does_not_come_back(tmp_path: Path) -> None:
    """Case 18: a writer with an old position changes nothing, however late it comes."""
    target = filled(tmp_path, [item("a", "old")])
    late = SearchTarget(tmp_path, CHOICE)
    changed(target, 1, ["a"], [])
    target.close()
    with pytest.raises(Overtaken):
        late.apply(position(0), position(1), _changes(touched=["a"], rows=[item("a", "late")]))
    assert found(tmp_path) == []


def test_of_two_writers_one_is_overtaken(tmp_path: Path) -> None:
    """Two targets of one folder take turns only with the position in force; a fill needs it, too."""
    first = filled(tmp_path)
    second = SearchTarget(tmp_path, CHOICE)
    changed(first, 1, ["a"], [item("a", "first")])
    changed(second, 2, ["b"], [item("b", "second")])
    with pytest.raises(Overtaken):
        changed(first, 2, ["a"], [item("a", "wrong")])
    with pytest.raises(Overtaken):
        first.load(position(1), position(5), SHAPES, [])
    with pytest.raises(Overtaken):
        first.load(None, position(5), SHAPES, [])
    assert found(tmp_path) == ["a", "b"]
    changed(first, 3, ["c"], [item("c", "first")])
    assert found(tmp_path) == ["a", "b", "c"]
    first.close()
    second.close()


def test_a_fill_is_seen_at_once(tmp_path: Path) -> None:
    """Readers have the former rows until a fill ends, also if its tables are others."""
    target = filled(tmp_path, [item("a", "tea")])
    reader = SearchIndex(tmp_path)

    def rows() -> Iterator[TableChange]:
        for key in range(100):
            yield TableChange(ORDERS, (), [order(f"{key}", 0, "cup")])
            assert reader.search(SearchQuery()).total == 1

    target.load(position(0), position(9), [ORDERS, FAILED_ROWS], rows())
    answer = reader.search(SearchQuery())
    assert (answer.epoch, answer.total) == (9, 100)
    assert len([each for each in (tmp_path / "index").iterdir() if each.is_dir()]) == 1


def test_a_fill_that_fails_changes_nothing(tmp_path: Path) -> None:
    """An error of the rows leaves the former index, and no files of the new one."""
    target = filled(tmp_path, [item("a", "tea")])

    def rows() -> Iterator[TableChange]:
        yield TableChange(ITEMS, (), [item("b", "tea")])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        target.load(position(0), position(9), SHAPES, rows())
    assert (target.position().position, found(tmp_path)) == (position(0), ["a"])
    assert len([each for each in (tmp_path / "index").iterdir() if each.is_dir()]) == 1


def test_failed_rows_are_counted_and_not_found(tmp_path: Path) -> None:
    """The table of failed rows is searched by its name only."""
    target = filled(tmp_path, [item("a", "tea")])
    failed = TableChange(FAILED_ROWS, ["x"], [("x", "tea is out", None)])
    target.apply(position(0), position(1), [failed])
    assert target.position().failed == 1
    assert found(tmp_path, "tea") == ["a"]
    assert found(tmp_path, "tea", table="_failed") == ["x"]
    target.close()


@pytest.mark.parametrize("damage", ["meta", "segment", "missing", "version"])
def test_a_damaged_index_is_filled_again(tmp_path: Path, damage: str) -> None:
    """A damaged index, or one of another format, is refused with its remedy until it is filled again."""
    filled(tmp_path, [item("a", "tea")])
    (directory,) = [each for each in (tmp_path / "index").iterdir() if each.is_dir()]
    match damage:
        case "meta":
            (directory / "meta.json").write_text("{}")
        case "segment":
            next(directory.glob("*.term")).write_bytes(b"")
        case "missing":
            next(directory.glob("*.store")).unlink()
        case _:
            for path in directory.glob("*.store"):
                data = path.read_bytes()
                path.write_bytes(data[:-8] + b"\0\0\0\0\0\0\0\0")
    target = SearchTarget(tmp_path, CHOICE)
    with pytest.raises(TargetProblem) as caught:
        target.position()
    assert caught.value.remedy == f"penstock view rebuild {tmp_path.name}"
    with pytest.raises(TargetProblem):
        target.apply(position(0), position(1), [])
    target.load(None, position(7), SHAPES, _changes(touched=[], rows=[item("b", "tea")]))
    assert (target.position().position, found(tmp_path)) == (position(7), ["b"])


def test_a_table_that_the_index_lacks_is_refused(tmp_path: Path) -> None:
    """A change of a table with other columns names the remedy, and changes nothing."""
    target = filled(tmp_path, [item("a", "tea")])
    other = msgspec.structs.replace(ITEMS, columns=ITEMS.columns[:3])
    with pytest.raises(TargetProblem, match="penstock view rebuild"):
        target.apply(position(0), position(1), [TableChange(other, ["a"], [])])
    assert target.position().position == position(0)


_KILLED = """
import os, signal, sys
from pathlib import Path
import tantivy
from penstock.views import search_target
from tests.views.search_rows import changed, filled, item, position, CHOICE, SHAPES, ITEMS
from penstock.views.target import TableChange

class Dying:
    def __init__(self, writer, at):
        self.writer, self.at = writer, at
    def __getattr__(self, name):
        def call(*given):
            if name == self.at == "commit":
                os.kill(os.getpid(), signal.SIGKILL)
            result = getattr(self.writer, name)(*given)
            if name == self.at != "commit" or self.at == "after" and name == "commit":
                os.kill(os.getpid(), signal.SIGKILL)
            return result
        return call

folder, how, at = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
class Index:
    def __init__(self, *given): self.index = tantivy.Index(*given)
    def __getattr__(self, name): return getattr(self.index, name)
    def writer(self, *given): return Dying(self.index.writer(*given), at)
target = search_target.SearchTarget(folder, CHOICE)
rows = [item(f"{each}", "new") for each in range(5_000)]
if how == "apply":
    target._writer = lambda index: Dying(index.writer(15_000_000, 1), at)
    target.apply(position(0), position(1), [TableChange(ITEMS, ["a"], rows)])
else:
    class Module:
        def __getattr__(self, name): return Index if name == "Index" else getattr(tantivy, name)
    search_target.tantivy = Module()
    target.load(position(0), position(1), SHAPES, [TableChange(ITEMS, (), rows)])
"""


@pytest.mark.faults
@pytest.mark.parametrize("how", ["apply", "load"])
@pytest.mark.parametrize("at", ["add_document", "commit", "after"])
def test_a_killed_writer_leaves_a_whole_epoch(tmp_path: Path, how: str, at: str) -> None:
    """Case 19: a kill between an addition and the commit, or behind it, leaves the rows of exactly one position."""
    filled(tmp_path, [item("a", "old")])
    command = [sys.executable, "-c", _KILLED, str(tmp_path), how, at]
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    target = SearchTarget(tmp_path, CHOICE)
    is_done = (how, at) == ("apply", "after")
    before = position(int(is_done))
    assert target.position().position == before
    answer = SearchIndex(tmp_path).search(SearchQuery())
    assert (answer.epoch, answer.total) == ((1, 5_000) if is_done else (0, 1))
    target.apply(before, position(2), _changes(touched=["b"], rows=[item("b", "next")]))
    assert found(tmp_path, "next") == ["b"]
    target.load(position(2), position(3), SHAPES, [])
    assert found(tmp_path) == []
    assert len([each for each in (tmp_path / "index").iterdir() if each.is_dir()]) == 1
    target.close()


_MERGED = 8
"""The number of segments that tantivy merges."""


def _segments(meta: Path) -> int:
    return len(json.loads(meta.read_bytes())["segments"])


def _killed_before_a_merge(folder: Path, meta: Path, epoch: int, rows: list[Row]) -> None:
    """Change an index in a process that is killed when the change is in force, and before segments are merged."""
    child = os.fork()
    if child == 0:

        def locking(contents: Contents) -> tantivy.Document:
            # Behind the commit, and before merges, tantivy waits for this lock.
            fcntl.flock(os.open(meta.parent / ".tantivy-meta.lock", os.O_RDWR), fcntl.LOCK_EX)
            return position_document(contents)

        pytest.MonkeyPatch().setattr(search_target, "position_document", locking)
        changed(SearchTarget(folder, CHOICE), epoch, [], rows)
        os._exit(1)
    wait_for(lambda: _segments(meta) == _MERGED, "the commit")
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.faults
def test_a_kill_before_a_merge_loses_no_deletion(tmp_path: Path) -> None:
    """The next process merges what a killed one has left, while it makes its own change: the first deletion of it counts."""
    target = filled(tmp_path, [item(f"{each}", "old") for each in range(10)])
    for epoch in range(1, _MERGED - 1):
        changed(target, epoch, [], [item(f"{each}{epoch}", "old") for each in "ab"])
    target.close()
    (meta,) = tmp_path.glob("index/*/meta.json")
    _killed_before_a_merge(tmp_path, meta, _MERGED - 1, [item("last", "old")])
    keys = found(tmp_path)
    target = SearchTarget(tmp_path, CHOICE)
    # The segment of this row had its last deletion in the last commit: that of the former position.
    changed(target, _MERGED, ["a6"], [item("a6", "new")])
    target.close()
    assert _segments(meta) < _MERGED
    assert found(tmp_path) == keys
    assert found(tmp_path, "new") == ["a6"]


def test_files_of_a_killed_commit_are_in_nobodys_way(tmp_path: Path) -> None:
    """A process that is killed before its commit is in force leaves files; the same change can be made again."""
    filled(tmp_path / "killed", [item("a", "old"), item("b", "old")]).close()
    shutil.copytree(tmp_path / "killed", tmp_path / "whole")
    change = 1, ["a"], [item("a", "new")]
    whole = SearchTarget(tmp_path / "whole", CHOICE)
    changed(whole, *change)
    whole.close()
    (directory,) = tmp_path.glob("whole/index/*/")
    (deletions,) = directory.glob("*.del")
    for left in (deletions, directory / ".managed.json"):
        shutil.copy(left, tmp_path / "killed" / "index" / directory.name)
    again = SearchTarget(tmp_path / "killed", CHOICE)
    changed(again, *change)
    again.close()
    assert found(tmp_path / "killed", "new") == ["a"]
    assert found(tmp_path / "killed") == ["a", "b"]


@pytest.mark.faults
def test_a_stopped_writer_is_waited_for_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a stopped process holds the index, another one reports it; when that process has ended, it goes on."""
    filled(tmp_path, [item("a", "old")])
    code = _KILLED.replace("SIGKILL", "SIGSTOP")
    command = [sys.executable, "-c", code, str(tmp_path), "apply", "commit"]
    stopped = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    try:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        monkeypatch.setattr("penstock.views.search_target._WAIT_S", 0.1)
        target = SearchTarget(tmp_path, CHOICE)
        with pytest.raises(TargetProblem, match="another process writes"):
            changed(target, 1, ["a"], [])
        stopped.send_signal(signal.SIGCONT)
        assert stopped.wait(60) == 0
        with pytest.raises(Overtaken):
            changed(target, 1, ["a"], [])
    finally:
        stopped.kill()
        stopped.wait()
    assert SearchIndex(tmp_path).search(SearchQuery()).total == 5_000
