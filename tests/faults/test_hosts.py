"""Hosts of an application in an object store say how they stand, and others see it: lags, lease, money, silence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from penstock.base.ids import Epoch
from penstock.cli.main import execute
from penstock.files.heartbeat import Beat
from penstock.files.layout import HOSTS, STATE
from penstock.files.roots import shared_root, store_of
from penstock.files.store_client import observe_requests
from penstock.process import host_reporter, hosts
from penstock.process.config import Config, PriceConfig
from penstock.process.driver_claim import DriverClaim
from penstock.process.host_reporter import HostReporter, reporting
from penstock.process.hosts import HostLook, HostReport, host_standings
from penstock.process.presence import host_id
from tests.checkout import SHOP
from tests.history import journal_of
from tests.object_store import StoreServer


def config_of(data: Path, **prices: int) -> Config:
    return Config(data=data, cores=1, prices=PriceConfig(**prices))


def no_view(_data: Path) -> None:
    return None


@pytest.fixture
def shop(stored: Callable[[str], Path]) -> Path:
    """A shop of two epochs; its copy of the state is that of the first."""
    data = stored("shop")
    journal_of(SHOP, data, [[("Item", "i1", "create", {"price": 5, "stock": 1})]], deploys=True)
    return data


def test_host_says_how_far_its_copies_are(shop: Path) -> None:
    """The report has the epoch, the copies of the state and of the view, the disk, the clock and the versions."""
    report = HostReporter(config_of(shop), "http://10.0.0.2:8000", str, lambda _: Epoch(0)).report()
    assert (report.epoch, report.view_lag, report.trouble) == (0, 0, "")
    assert abs(report.clock_s) < hosts.CLOCK_S
    assert 0 < report.disk_free < report.disk_bytes
    shutil.rmtree(shop / STATE, ignore_errors=True)
    assert HostReporter(config_of(shop), "", str, no_view).report().state_epoch is None


def test_others_see_a_host_until_it_stops(shop: Path, stored: Callable[[str], Path]) -> None:
    """A host is seen while it runs; its driver holds the lease; two hosts of one machine have names of their own."""
    settings = config_of(shop)
    claim = DriverClaim(shop)
    claim.get()
    reporter = HostReporter(settings, "http://10.0.0.2:8000", lambda: "no master", no_view)
    with reporting(reporter, settings):
        root = shared_root(shop)
        (seen,) = host_standings(shop)
        assert (seen.id, seen.has_lease, seen.state) == (host_id(shop), True, "in trouble")
        assert seen.notes == ["no master"]
        former = msgspec.json.encode(HostReport(name=seen.report.name, epoch=7, state_epoch=4))
        root.replace(f"{HOSTS}/former", msgspec.json.encode(Beat(msgspec.Raw(former))))
        root.replace(f"{HOSTS}/torn", b"{")
        both = host_standings(shop)
        assert [each.state_lag for each in both if each.id == "former"] == [3]
        assert len({each.report.name for each in both}) == 2
        assert len(HostLook(shop).seen().hosts) == 2
    claim.release()
    assert [each.id for each in host_standings(shop)] == ["former"]


def test_silent_host_is_told_and_forgotten(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says nothing any more is told as such; the next host that starts forgets it after a day."""
    root, settings = shared_root(shop), config_of(shop)
    lost = msgspec.json.encode(HostReport(name="lost"))
    root.replace(f"{HOSTS}/lost", msgspec.json.encode(Beat(msgspec.Raw(lost))))
    monkeypatch.setattr(hosts, "SILENT_S", 0.0)
    (seen,) = host_standings(shop)
    assert seen.state == "silent"
    assert "cut off" in seen.notes[0]
    monkeypatch.setattr(host_reporter, "_FORGOTTEN_S", -1.0)
    with reporting(HostReporter(settings, "", str, no_view), settings):
        assert [each.id for each in host_standings(shop)] == [host_id(shop)]


def test_requests_have_a_price(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes and reads since the last report, for a day, by the settings; a host that has just started costs its own price."""
    counts = [{"put": 1.0}, {"put": 11.0, "list": 10.0, "get": 40.0, "delete": 9.0}]
    monkeypatch.setattr(host_reporter, "sums_of", lambda *_: counts.pop(0))
    times = iter([100.0, 110.0])
    # Not the module's own function: processes that the file before has left running ask for the time, too.
    monkeypatch.setattr(host_reporter, "time", SimpleNamespace(monotonic=lambda: next(times)))
    spending = host_reporter._Spending(shop, PriceConfig(host_day_cents=100))
    assert spending.rates() == (0.0, 0.0, 100.0)
    # 2 writes and 4 reads a second: 172,800 and 345,600 a day.
    assert spending.rates() == (2.0, 4.0, 86.4 + 13.82 + 100)


def test_each_request_is_told_to_the_observer_of_its_process(shop: Path) -> None:
    """Its verb, its bytes, and whether it was answered: a name that does not exist is an answer."""
    told: list[tuple[str, int, bool]] = []
    observe_requests(lambda verb, _took_s, size, answered: told.append((verb, size, answered)))
    root = shared_root(shop)
    root.replace("note", b"12345")
    assert root.get("note") == b"12345"
    with pytest.raises(FileNotFoundError):
        root.get("missing")
    observe_requests(lambda *_: None)
    assert told == [("put", 5, True), ("get", 5, True), ("get", 0, True)]


def test_status_shows_hosts(
    shop: Path, capsys: pytest.CaptureFixture[str], store_server: StoreServer
) -> None:
    """`penstock status` lists them with what an operator must know; in JSON, too."""
    assert store_of(shop).startswith("s3://")
    settings = config_of(shop)
    with reporting(HostReporter(settings, "", lambda: "the secret is wrong", no_view), settings):
        execute(["status", "--data", str(shop)])
        told = capsys.readouterr().out
        assert "in trouble" in told
        assert "the secret is wrong" in told
        execute(["status", "--data", str(shop), "--json"])
        (host,) = json.loads(capsys.readouterr().out)["hosts"]
        assert host["report"]["trouble"] == "the secret is wrong"
