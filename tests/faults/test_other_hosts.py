"""Gateways, readers and SQL on a host without a driver: it has the place of the data, and the log's is noted there."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx
import numpy as np
import pyarrow as pa
import pytest

from penstock.base.ids import ONLY_PARTITION, Epoch
from penstock.cli.main import execute
from penstock.cli.options import prepare_log
from penstock.deployment.code_in_force import CodeInForce
from penstock.deployment.loading import load_app
from penstock.engine.streams.key_shares import KeyShare
from penstock.errors import ConfigError, JournalUnavailable
from penstock.files import lease_mark
from penstock.files.layout import LEASE, SHARED_ROOT
from penstock.files.looks import Looks
from penstock.files.roots import shared_root, use_store
from penstock.gateway.auth import watched_file
from penstock.history.moved_log import begin_log, end_log
from penstock.journal.api import PartKind
from penstock.process.config import Config, ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.driver_claim import DriverClaim
from penstock.runtime.spark.messages import RoundOutput
from penstock.runtime.spark.round_files import RoundFiles, UsedFiles, far_files
from penstock.sql_view.view import View
from tests.checkout import SHOP
from tests.faults.list_order import Call, complaints
from tests.gateway_thread import HOST, RunningGateway
from tests.history import journal_of
from tests.kafka_hosts import ONE_MACHINE
from tests.kafka_server import Broker
from tests.object_store import HostileProxy, StoreServer
from tests.serial_driver import SerialDriver
from tests.waiting import wait_for

LISTS: Final = str(Path(__file__).with_name("lists_app.py"))
_NAMES: Final = ["x", "y", "z"]
_CALLERS: Final = 6
_CALLS: Final = 20
_REST_S: Final = 0.5
_IDLE_S: Final = 2.0


@pytest.fixture
def spec(request: pytest.FixtureRequest) -> str:
    """The application: the shop, or that of the parameter."""
    return str(getattr(request, "param", SHOP))


@pytest.fixture
def hosts(
    spec: str,
    store_server: StoreServer,
    kafka_server: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[Config, Path]]:
    """The settings of the host with the driver, which runs, and the folder of another host."""
    for name, value in store_server.environment().items():
        monkeypatch.setenv(name, value)
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        use_store(folder, store_server.url(tmp_path.name))
    topic = f"kafka://{kafka_server.servers}/{tmp_path.parent.name}-{tmp_path.name}"
    config = Config(data=one, cores=1, log=topic, kafka=ONE_MACHINE)
    DataDirectory(one).prepare_log(config)
    driver = SerialDriver(spec, config, deploys=True)
    claim = DriverClaim(one)
    claim.get()
    driver.on_epoch.append(lambda report: claim.tell(report.epoch))
    driver.start()
    yield config, two
    claim.release()
    driver.stop()


@pytest.mark.turns(
    1,
    *("gateway", "sql_view", "process", "files", "journal", "state", "log", "history"),
    of="a host without a driver",
)
def test_host_without_a_driver_answers_everything(
    hosts: tuple[Config, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Replies, reads, reads of the past and SQL come from the folder of that host, which was empty."""
    first, folder = hosts
    with (
        RunningGateway(SHOP, folder, drives=False, kafka=ONE_MACHINE) as far,
        httpx.Client(base_url=far.url, timeout=60) as there,
    ):
        made = there.post("/stock/item/create/7")
        assert made.status_code == 200, made.text
        item = made.json()["item_id"]
        assert there.post(f"/stock/add/{item}/3").status_code == 200
        found = there.get(f"/stock/find/{item}")
        assert found.json() == {"stock": 3, "price": 7}
        assert there.get("/readyz").json()["driver"] == "running"
        with (
            RunningGateway(SHOP, first.data, drives=False, kafka=ONE_MACHINE) as near,
            httpx.Client(base_url=near.url, timeout=60) as here,
        ):
            assert here.get(f"/stock/find/{item}").json() == found.json()
            assert here.post(f"/stock/subtract/{item}/1").status_code == 200
        assert there.get(f"/stock/find/{item}").json()["stock"] == 2
    assert (folder / SHARED_ROOT).exists()
    assert execute(["explain", SHOP, "--data", str(folder)]) == 0
    assert capsys.readouterr().out.endswith(f"log: {first.log}\n")
    assert execute(["status", SHOP, "--data", str(folder)]) == 0, "a driver runs, on the other host"
    assert f"log: {first.log}" in capsys.readouterr().out


@pytest.mark.parametrize("spec", [LISTS], indirect=True)
@pytest.mark.turns(
    1,
    *("gateway", "sql_view", "process", "files", "journal", "state", "log", "history"),
    of="a host without a driver",
)
def test_calls_over_two_hosts_have_an_order_in_real_time(
    hosts: tuple[Config, Path], seed: int
) -> None:
    """What appends and reads over two gateways saw of lists is that of one thread, and no answer is older than its call."""
    first, folder = hosts
    calls: list[Call] = []
    began = threading.Barrier(_CALLERS)

    def call(caller: int, url: str) -> None:
        draw = random.Random(seed + caller)
        began.wait(60)
        with httpx.Client(base_url=url, timeout=60) as client:
            for number in range(caller * _CALLS, (caller + 1) * _CALLS):
                one, other = draw.sample(_NAMES, 2)
                method, names, arguments = draw.choice(
                    [
                        ("append", [one], {"number": number}),
                        ("append_both", [one, other], {"other": other, "number": number}),
                        ("look", [one], {}),
                    ]
                )
                sent_s = time.monotonic()
                answer = client.post(f"/call/Lists/{one}/{method}", json=arguments)
                assert answer.status_code == 200, answer.text
                seen = [answer.json()] if method == "look" else answer.json()
                appended = None if method == "look" else number
                shown = dict(zip(names, seen, strict=True))
                calls.append(Call(appended, shown, sent_s, time.monotonic()))

    with (
        RunningGateway(LISTS, folder, drives=False, kafka=ONE_MACHINE) as far,
        RunningGateway(LISTS, first.data, drives=False, kafka=ONE_MACHINE) as near,
    ):
        for name in _NAMES:
            assert httpx.post(f"{near.url}/call/Lists/{name}/create", json={}).status_code == 200
        with ThreadPoolExecutor(_CALLERS) as callers:
            list(callers.map(call, range(_CALLERS), [near.url, far.url] * (_CALLERS // 2)))
    assert len(calls) == _CALLERS * _CALLS
    assert complaints(calls) == []


def test_order_of_lists_is_refused_with_an_argument() -> None:
    """A stale read, two orders of one list, and a number that is there twice are each found."""
    one = Call(1, {"a": [1]}, 0.0, 1.0)
    two = Call(2, {"a": [1, 2]}, 0.5, 1.5)
    late = Call(None, {"a": [1]}, 2.0, 3.0)
    assert complaints([one, two]) == []
    assert complaints([one, two, replace(late, began_s=1.2)]) == []
    assert "comes before" in complaints([one, two, late])[0]
    assert "no beginning" in complaints([one, two, Call(None, {"a": [2]}, 2.0, 3.0)])[0]
    assert "twice" in complaints([one, Call(2, {"a": [1, 1, 2]}, 2.0, 3.0)])[0]


def asked_of(proxy: HostileProxy) -> list[tuple[str, str]]:
    """Return what was asked for since the last call, but the lease of the driver, which runs in this process."""
    asked, proxy.asked[:] = proxy.asked[:], []
    return [(verb, path) for verb, path in asked if not path.endswith(LEASE)]


def rests(proxy: HostileProxy) -> bool:
    """Say whether a pause passes without a question but for the lease."""
    asked_of(proxy)
    time.sleep(_REST_S)
    return not asked_of(proxy)


def assert_rest(proxy: HostileProxy) -> None:
    """Assert that a host asks for the lease alone, and all of its processes together once in each pause."""
    began = time.monotonic()
    time.sleep(_IDLE_S)
    verbs, idle_s = (
        [verb for verb, _ in proxy.asked],
        time.monotonic() - began,
    )  # longer on a busy machine
    assert asked_of(proxy) == []
    assert set(verbs) <= {"GET", "PUT"}, "the driver, which runs in this process, changes its lease"
    assert verbs.count("GET") <= idle_s / lease_mark.FRESH_S + 1


@pytest.mark.turns(
    1,
    *("gateway", "sql_view", "process", "files", "journal", "state", "log", "history"),
    of="a host without a driver",
)
def test_idle_host_asks_the_store_for_the_lease_alone(
    hosts: tuple[Config, Path],
    store_server: StoreServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Epochs, keys, pauses and deployments are asked for when the lease, a request or an epoch tells to; the next request obeys them."""
    first, folder = hosts
    monkeypatch.setattr(watched_file, "SILENT_S", 0.3)
    with HostileProxy(store_server.port) as proxy, ExitStack() as stack:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{HOST}:{proxy.port}")
        far = stack.enter_context(RunningGateway(SHOP, folder, drives=False, kafka=ONE_MACHINE))
        there = stack.enter_context(httpx.Client(base_url=far.url, timeout=60))
        journal = stack.enter_context(closing(DataDirectory(folder).open_journal(load_app(SHOP))))
        code = CodeInForce(folder, SHOP)
        view = stack.enter_context(
            closing(View(folder, load_app(SHOP), journal, ViewConfig(), code))
        )
        view.start()
        assert there.post("/stock/item/create/7").status_code == 200
        assert view.await_epoch(view.journal_epoch(), 60)

        wait_for(lambda: rests(proxy), "a rest")
        assert_rest(proxy)
        orders = Looks(shared_root(folder), 0.0)
        assert orders.is_due()
        assert not orders.is_due(), "nothing has changed"
        data = ["--data", str(first.data)]
        assert execute(["keys", "add", "web", "--scope", "call", "--app", SHOP, *data]) == 0
        key = capsys.readouterr().out.split()[-1]
        assert execute(["flow", "pause", SHOP, "Item", "--reason", "prices", *data]) == 0
        wait_for(orders.is_due, "that the lease tells of the orders")
        with ThreadPoolExecutor(4) as threads:  # they share a look
            refused = threads.map(lambda _: httpx.post(f"{far.url}/stock/item/create/7"), range(4))
            assert {answer.status_code for answer in refused} == {401}
        paused = there.post("/stock/item/create/7", headers={"x-api-key": key})
        assert paused.json()["error"]["code"] == "paused"


def test_tasks_hand_files_on_through_the_store(
    store_server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of another host reads the valid rows of a round output; the driver removes those of a committed epoch."""
    for name, value in store_server.environment().items():
        monkeypatch.setenv(name, value)
    folders = tmp_path / "one", tmp_path / "two"
    for folder in folders:
        use_store(folder, store_server.url(tmp_path.name))
    scratch = folders[0] / "scratch" / "17-run"
    one, other = (RoundFiles(scratch, far_files(folder)) for folder in folders)
    rows = pa.table({"position": pa.array([3, 5, 8], pa.uint32()), "key": ["a", "b", "c"]})
    tables = {PartKind.CHANGES: rows, PartKind.TRANSACTIONS: rows}
    path = one.write(Epoch(4), "e4-r1-t0-a9", tables)
    later = one.write(Epoch(5), "e5-r1-t0-a9", tables)
    superseded = np.array([5], np.uint32).tobytes()
    for files in (one, other):
        (valid,) = files.read([RoundOutput(path, superseded)])
        assert {part_kind: table["key"].to_pylist() for part_kind, table in valid.items()} == {
            PartKind.CHANGES: ["a", "c"],
            PartKind.TRANSACTIONS: ["a", "c"],
        }
    share = KeyShare(0, 2)
    assert other.turns([one.write_share("e4-share0-a9", share)]) is not None
    config = Config(data=folders[0], master="spark://h:7077", master_secret=Path("/s"))
    used = UsedFiles(config, scratch)
    used.remove_old()
    used.remove(Epoch(4), by_several=True)
    with pytest.raises(JournalUnavailable, match="e4-r1-t0-a9"):
        other.read([RoundOutput(path, b"")])
    assert other.read([RoundOutput(later, b"")])
    assert not scratch.exists()


def test_log_of_another_folder_moves_into_the_topic(
    store_server: StoreServer,
    kafka_server: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restored application, or one that was stopped elsewhere, begins in Kafka on any host; a process alone is refused."""
    for name, value in store_server.environment().items():
        monkeypatch.setenv(name, value)
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        use_store(folder, store_server.url(tmp_path.name))
    embedded = Config(data=one, cores=1)
    begin_log(embedded, abandons=False)
    journal_of(SHOP, one, [[("Item", "i1", "create", {"price": 5, "stock": 1})]], deploys=True)
    topic = f"kafka://{kafka_server.servers}/{tmp_path.parent.name}-{tmp_path.name}"
    moved = replace(embedded, data=two, log=topic, kafka=ONE_MACHINE)
    with pytest.raises(ConfigError, match="one on "):
        DataDirectory(two).prepare_log(moved)
    end_log(one)
    prepare_log(moved)
    with closing(DataDirectory(two).open_journal_of("shop")) as journal:
        last = journal.last()
        assert last is not None
        with closing(DataDirectory(two).open_log()) as log:
            assert log.end() >= last.positions[ONLY_PARTITION]
