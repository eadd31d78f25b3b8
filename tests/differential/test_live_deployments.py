"""Deployments into a running application: driver and worker change the code at a place in the order."""

import itertools
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec import Raw

from penstock.base.ids import BEFORE_FIRST, Epoch, Lsn, RequestId
from penstock.cli.main import execute
from penstock.deployment.archives import Archives, file_of, pack
from penstock.deployment.code_in_force import spec_to_run, unpacked
from penstock.deployment.deploy_order import store_code
from penstock.errors import Corrupt, JournalUnavailable, StateUnavailable
from penstock.files.local_root import LocalRoot
from penstock.journal.api import SCHEMAS, PartKind
from penstock.journal.delta import WRITTEN_BYTES_MAX, DeltaJournal, WrittenChanges
from penstock.journal.deployments import Deployments
from penstock.journal.replies import find_reply
from penstock.log.api import Entry
from penstock.model.control import Deploy, DeployedCode, encode_control
from penstock.model.request import Request, encode_request
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.stage import WorkerCodes
from tests.differential.inline import ONLY, Inline

_numbers = itertools.count()

SHOP = """
from penstock import App, Entity, key

class Item(Entity):
    name: str = key()
    {attributes}

    def bump(self) -> float:
        self.stock += {step}
        return self.stock

app = App("shop", Item)
"""
RENAMED = """
@migrate(Item, since=3)
def renamed(old):
    return {"three": old["two"]}
"""
FIRST = {"attributes": "stock: int = 0", "step": "1"}


class Shop:
    """A running application in a data directory, and its versions."""

    def __init__(self, data: Path, **settings: Any) -> None:
        self.data = data
        self.name = f"liveshop{next(_numbers)}"
        self.count = 0
        code = self.version(**FIRST)
        self.runtime = Inline(data, 2, unpacked(data, code).spec, "shop", **settings)
        Deployments(data / "journal").record(Epoch(0), 0, code, {})

    def version(self, text: str = SHOP, **parts: str) -> DeployedCode:
        """Store the archive of a version."""
        source = textwrap.dedent(text).format(**parts) if parts else text
        archive = Archives(self.data).put(pack({f"{self.name}.py": source.encode()}))
        return DeployedCode(archive, self.name, "app", "3", {})

    def call(self, *methods: str) -> None:
        """Append requests to the item `tea`."""
        for method in methods:
            body = encode_request(Request("Item", "tea", method, Raw(b"\x90"), Raw(b"\x80")))
            self._append(body, is_control=False)

    def deploy(self, code: DeployedCode) -> None:
        """Append a deployment."""
        self._append(encode_control(Deploy(code)), is_control=True)

    def _append(self, body: bytes, *, is_control: bool) -> None:
        entry = Entry(RequestId(f"r{self.count}"), body, b"", 0, is_control=is_control)
        self.runtime.log.append([entry])
        self.count += 1

    def run(self) -> list[Any]:
        """Process the log, and return the results; an error is its code."""
        self.runtime.advance(int(self.runtime.log.end()))
        replies = [find_reply(self.runtime.journal, (ONLY, Lsn(n))) for n in range(self.count)]
        return [reply.error or reply.value() for reply in replies]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.runtime.close()


def test_code_changes_at_its_place_in_the_order(shop: Shop) -> None:
    """Requests before a deployment run with the old code, those after it with the new code."""
    shop.call("create", "bump")
    shop.deploy(shop.version(attributes="stock: int | float = 0", step="0.5"))
    shop.call("bump", "bump")
    first = shop.version(attributes="stock: int | float = 0", step="100")
    shop.deploy(first)
    shop.call("bump")
    assert shop.run()[1:] == [1, None, 1.5, 2.0, None, 102.0]
    every = Deployments(shop.data / "journal").every()
    assert [(each.number, each.since) for each in every] == [(1, 0), (2, 2), (3, 4)]
    assert [v.since for v in shop.runtime.journal.schemas()["Item"]] == [0, 2]
    commits = list(shop.runtime.journal.commits(BEFORE_FIRST))
    assert [int(commit.positions[ONLY]) for commit in commits] == [2, 3, 5, 6, 7]
    named = [each.name for each in every]  # each commit names the deployment of the next epoch
    assert [commit.deployment for commit in commits] == [named[n] for n in (0, 1, 1, 2, 2)]


def test_a_worker_brings_what_it_has_written_to_its_stores(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after a deployment it reads no part with its own changes again, and proves no commit again."""
    read: list[str] = []
    synced: list[str] = []
    get, sync = LocalRoot.get, LocalRoot.settle

    def noted(into: list[str], call: Callable[..., Any]) -> Callable[..., Any]:
        def noting(root: LocalRoot, name: str) -> Any:
            if threading.current_thread().name.startswith("inline-worker"):
                into.append(name)
            return call(root, name)

        return noting

    monkeypatch.setattr(LocalRoot, "get", noted(read, get))
    monkeypatch.setattr(LocalRoot, "settle", noted(synced, sync))
    shop.call("create", "bump")
    shop.deploy(shop.version(attributes="stock: int = 0", step="10"))
    shop.run()
    synced.clear()  # the journal of the new code has looked for the newest epoch once
    for _ in range(3):
        shop.call("bump")
        assert shop.run()[1] == 1
    assert shop.run()[3:] == [11, 21, 31]
    assert [name for name in read if name.startswith("kind=changes")] == []
    assert synced == []
    assert read, "a worker reads commits"


def test_a_part_of_another_task_is_read_from_its_file(tmp_path: Path) -> None:
    """Kept changes stand for the part that they were written to, and for no other; large ones are not kept."""
    with closing(DeltaJournal(tmp_path, "shop")) as journal:
        journal.written = WrittenChanges()
        columns = ("key", "state")
        first, second = (
            journal.write(PartKind.CHANGES, rows_of(text), text) for text in ("one", "two")
        )
        (tmp_path / second.path).unlink()
        assert journal.read(second, columns).equals(rows_of("two").select(columns))
        other = msgspec.structs.replace(second, checksum=first.checksum)
        with pytest.raises(Corrupt):
            journal.read(other, columns)
        assert journal.read(first, columns).equals(rows_of("one").select(columns))
        large = journal.write(PartKind.CHANGES, rows_of("x" * (WRITTEN_BYTES_MAX + 1)), "large")
        (tmp_path / large.path).unlink()
        for part in (second, large):
            with pytest.raises(Corrupt):
                journal.read(part, columns)


def rows_of(text: str) -> pa.Table:
    """Return changes of one entity."""
    values = [[0], ["Item"], [text[:3]], [text.encode()]]
    return pa.table([pa.array(one) for one in values], schema=SCHEMAS[PartKind.CHANGES])


def test_a_deployment_that_does_not_fit_changes_nothing(shop: Shop) -> None:
    """Its reply is a failure with the reason, and the old code goes on."""
    shop.call("create", "bump")
    shop.deploy(shop.version(attributes="stock: str = ''", step="'x'"))
    shop.deploy(shop.version("import nowhere"))
    shop.deploy(shop.version("raise KeyboardInterrupt"))
    shop.deploy(shop.version(SHOP.replace('"shop"', '"kiosk"'), **FIRST))
    gone = shop.version(attributes="stock: int = 1", step="3")
    (shop.data / file_of(gone.archive)).unlink()
    shop.deploy(gone)
    changed = shop.version(attributes="stock: int = 1", step="4")
    (shop.data / file_of(changed.archive)).write_bytes(b"else")
    shop.deploy(changed)
    shop.call("bump")
    errors = ["class-changed", "config", "config", "config", "corrupt", "corrupt"]
    assert shop.run() == ["tea", 1, *errors, 2]
    assert len(Deployments(shop.data / "journal").every()) == 1
    assert len(shop.runtime.journal.schemas()["Item"]) == 1


def test_equal_code_is_no_further_deployment(shop: Shop) -> None:
    """The record has no effect, and a former version is deployed again as any other."""
    second = shop.version(attributes="stock: int = 0", step="2")
    shop.call("create")
    for code in (second, second, shop.version(**FIRST), second):
        shop.deploy(code)
        shop.call("bump")
    assert [value for value in shop.run() if value is not None] == ["tea", 2, 4, 5, 7]
    assert [each.number for each in Deployments(shop.data / "journal").every()] == [1, 2, 3, 4]


def test_a_worker_that_starts_later_loads_the_code_in_force(shop: Shop) -> None:
    """After a restart of driver and worker between two batches, the former code is nowhere in use."""
    shop.call("create")
    shop.deploy(code := shop.version(attributes="stock: int = 0", step="7"))
    shop.run()
    shop.runtime.spec = unpacked(shop.data, code).spec
    shop.runtime.restart()
    shop.call("bump")
    assert shop.run()[-1] == 7
    commits = list(shop.runtime.journal.commits(BEFORE_FIRST))
    assert [commit.deployment.partition(":")[0] for commit in commits] == ["1", "2", "2"]


def test_history_runs_each_epoch_with_its_code(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replay and verification go over deployments, of which one was refused; a trace names the deployment."""
    shop.call("create", "bump")
    shop.deploy(code := shop.version(attributes="stock: int | float = 0", step="0.5"))
    shop.call("bump")
    shop.deploy(shop.version("import nowhere"))
    shop.call("bump")
    assert shop.run() == ["tea", 1, None, 1.5, "config", 2.0]
    spec, answers = unpacked(shop.data, code).spec, []
    for words in (["replay"], ["verify"], ["trace", "r2"]):
        capsys.readouterr()
        assert execute([*words, spec, "--data", str(shop.data), "--json"]) == 0
        answers.append(msgspec.json.decode(capsys.readouterr().out))
    replayed, _, traced = answers
    assert (replayed["requests"], replayed["skipped"], replayed["divergence"]) == (4, 0, None)
    assert replayed["deployments"] == [1, None]
    assert traced["call"].startswith(f"a deployment of {shop.name} (archive ")


def test_a_refused_record_leaves_nothing_of_an_earlier_attempt(shop: Shop) -> None:
    """A driver has ended before the commit; then the archive is damaged, and the same record is refused."""
    shop.call("create", "bump")
    code = shop.version(attributes="stock: int | float = 0", step="0.5")
    shop.deploy(code)
    commit = shop.runtime.journal.commit

    def fail(_: object) -> None:
        raise JournalUnavailable("the disk is full")

    shop.runtime.advance(2)
    shop.runtime.journal.commit = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(JournalUnavailable):
        shop.runtime.advance(3)
    assert len(Deployments(shop.data / "journal").every()) == 2
    shop.runtime.journal.commit = commit  # type: ignore[method-assign]
    (shop.data / file_of(code.archive)).write_bytes(b"else")
    shop.call("bump")
    assert shop.run() == ["tea", 1, "corrupt", 2]
    (first,) = Deployments(shop.data / "journal").every()
    commits = list(shop.runtime.journal.commits(BEFORE_FIRST))
    assert [commit.deployment for commit in commits] == [first.name] * 3
    assert len(shop.runtime.journal.schemas()["Item"]) == 1


def test_a_replaced_source_does_not_come_back_with_a_start(shop: Shop, tmp_path: Path) -> None:
    """A start continues code that was deployed live; a source that was never deployed is deployed by the start."""
    source = tmp_path / "source" / f"{shop.name}.py"
    source.parent.mkdir()
    source.write_text(textwrap.dedent(SHOP).format(**FIRST))
    spec = str(source)
    Deployments(shop.data / "journal").record(Epoch(0), 0, store_code(shop.data, spec), {})
    shop.call("create")
    shop.run()
    seen = [spec_to_run(shop.data, spec)]
    shop.deploy(code := shop.version(attributes="stock: int = 0", step="2"))
    shop.run()
    seen.append(spec_to_run(shop.data, spec))
    source.write_text("never = 'deployed'")
    seen.append(spec_to_run(shop.data, spec))
    assert seen == [spec, unpacked(shop.data, code).spec, spec]


def test_versions_follow_each_other_without_requests_between_them(shop: Shop) -> None:
    """A deployed version counts before it has rows, so that the next one may migrate from it; a driver starts there."""
    second = SHOP.format(attributes="two: int = 0", step="0").replace("self.stock", "self.two")
    third = second.replace("two", "three").replace("key\n", "key, migrate\n", 1)
    third = third.replace("Item)\n", "Item, renamed)\n").replace("app =", f"{RENAMED}\napp =")
    shop.call("create")
    shop.deploy(shop.version(second))
    shop.deploy(code := shop.version(third))
    assert shop.run() == ["tea", None, None]
    assert [version.since for version in shop.runtime.journal.schemas()["Item"]] == [0, 2, 3]
    shop.runtime.spec = unpacked(shop.data, code).spec
    shop.runtime.restart()
    assert shop.run() == ["tea", None, None]


def test_each_worker_knows_the_versions_before_a_rollback(shop: Shop) -> None:
    """A worker that has run the former code before reads the rows that other code has written since."""
    former, changed = (
        shop.version(**FIRST),
        shop.version(attributes="stock: int = 0; lid: int = 0", step="2"),
    )
    first, second = (unpacked(shop.data, code).spec for code in (former, changed))
    shop.call("create")
    shop.run()
    before = (first, BEFORE_FIRST)
    other, idle = (WorkerCodes(DataDirectory(shop.data), before) for _ in range(2))
    for code, spec in ((changed, second), (former, first)):
        shop.deploy(code)
        shop.call("bump")
        shop.run()
        assert shop.runtime._jobs.settings.spec == spec
        other.use(shop.runtime._jobs.settings.code)
        stored = shop.runtime.journal.schemas()["Item"]
        assert other.present.app.entities["Item"].versions == stored
    idle.use(shop.runtime._jobs.settings.code)  # it had no task between the deployments
    stored = shop.runtime.journal.schemas()["Item"]
    assert idle.present.app.entities["Item"].versions == stored
    assert len(stored) == 3
    other.close()
    idle.close()


def test_workers_that_died_between_two_epochs_do_not_stop_a_control_record(shop: Shop) -> None:
    """The stores were not brought to the epoch before; the record has its effect, and the next epoch brings them there."""
    shop.call("create")
    shop.run()
    died: Future[None] = Future()
    died.set_exception(RuntimeError("Job aborted: Python worker exited unexpectedly"))
    shop.runtime.driver._stores._running = died
    shop.deploy(shop.version(attributes="stock: int = 0", step="5"))
    shop.call("bump")
    assert shop.run() == ["tea", None, 5]


def test_an_error_of_the_disk_is_no_outcome_of_a_deployment(shop: Shop) -> None:
    """The epoch fails, nothing is recorded, and the same record takes effect when the disk works again."""
    shop.call("create")
    shop.run()
    scratch = Path(shop.runtime._jobs.settings.scratch)
    moved = scratch.rename(scratch.with_suffix(".gone"))
    shop.deploy(shop.version(attributes="stock: int = 0", step="5"))
    shop.call("bump")
    with pytest.raises(StateUnavailable, match="cannot execute a control record"):
        shop.run()
    moved.rename(scratch)
    assert shop.run() == ["tea", None, 5]
