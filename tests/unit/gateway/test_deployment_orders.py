"""Operators deploy code through a gateway: an archive is checked apart from it, and appended to the log."""

import io
import logging
import os
import zipfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from penstock.base.ids import Lsn
from penstock.cli.main import execute
from penstock.deployment.archives import pack
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.model.control import Deploy, decode_control
from penstock.process.data_directory import DataDirectory
from tests.deployments import KIOSK, kiosk_in
from tests.gateway_thread import RunningGateway
from tests.history import journal_of
from tests.market import MARKET, PLACES
from tests.modules import own_modules

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("forked_children")]

ZIP = {"Content-Type": "application/zip"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return the file of an application that has run an epoch."""
    return kiosk_in(tmp_path)


@pytest.fixture
def keys(source: Path) -> dict[str, str]:
    """Make a key of each of two scopes, before the gateway starts."""
    store = KeyStore(source.parent / "data")
    scopes = ("admin", "read")
    return {each: store.add(each, granted([each]), None, datetime.now(UTC))[1] for each in scopes}


@pytest.fixture
def gateway(source: Path, keys: dict[str, str]) -> Iterator[RunningGateway]:
    """Run the application's gateway without a driver."""
    assert keys
    with RunningGateway(str(source), source.parent / "data", drives=False, reads=False) as running:
        yield running


@pytest.fixture
def operator(gateway: RunningGateway, keys: dict[str, str]) -> Iterator[httpx.Client]:
    """Connect to the gateway with a key that has the scope `admin`."""
    headers = {"X-API-Key": keys["admin"]}
    with httpx.Client(base_url=gateway.url, timeout=120, headers=headers) as client:
        yield client


def controls(data: Path) -> list[str]:
    """Return the archives of all deployments in the log."""
    with closing(DataDirectory(data).open_log()) as log:
        bodies = [log.read(lsn, Lsn(lsn + 1))[0].body for lsn in log.controls(Lsn(0), log.end())]
    return [each.code.archive for each in map(decode_control, bodies) if isinstance(each, Deploy)]


def test_an_archive_is_deployed_once(
    source: Path,
    gateway: RunningGateway,
    operator: httpx.Client,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The order is in the log and the log output; the gateway has not imported the code."""
    trace = source.parent / "imported"
    text = KIOSK.format(type="int | float") + (
        f"import os, pathlib\nwith pathlib.Path({str(trace)!r}).open('a') as out:\n"
        "    print(os.getpid(), file=out)\n"
    )
    archive, path = pack({source.name: text.encode()}), f"/deployments?app={source.stem}:app"
    (listed,) = operator.get("/deployments").json()
    assert (listed["number"], listed["in_force"], listed["since"]) == (1, True, 0)
    report = operator.post(f"{path}&check=true", content=archive, headers=ZIP).json()
    assert report["verdict"] == "safe", report
    assert controls(gateway.config.data) == []
    with caplog.at_level(logging.INFO, logger="penstock.gateway.order_desk"):
        answer = operator.post(path, content=archive, headers=ZIP)
    assert (answer.status_code, answer.headers["Location"]) == (202, "/deployments")  # no driver
    assert answer.json()["changes"] == ["Item: price: int became int | float"]
    assert "a deployment was ordered" in caplog.messages
    again = operator.post(path, content=archive, headers=ZIP)
    assert (again.status_code, again.json()["changed"]) == (200, False)
    back = operator.post("/deployments", json={"number": 1})
    assert (back.status_code, back.json()["changed"]) == (202, True)
    assert controls(gateway.config.data) == [answer.json()["archive"], listed["archive"]]
    assert str(os.getpid()) not in trace.read_text().split()


def test_orders_that_do_not_fit_are_refused(
    source: Path, gateway: RunningGateway, operator: httpx.Client
) -> None:
    """A refused order has the error of the command, and appends nothing."""
    path = f"/deployments?app={source.stem}:app"
    refused = {
        KIOSK.format(type="str"): "class-changed",
        "import nowhere_at_all": "config",
    }
    for text, code in refused.items():
        archive = pack({source.name: text.encode()})
        answer = operator.post(path, content=archive, headers=ZIP)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, code)
        checked = operator.post(f"{path}&check=true", content=archive, headers=ZIP)
        assert "penstock-upload-" not in checked.text, "the sender knows no such folder"
    compressed = io.BytesIO()
    with zipfile.ZipFile(compressed, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr(source.name, "x" * 1_000)
    for archive in (
        b"no archive",
        compressed.getvalue(),
        pack({"../outside.py": b""}),
        pack({"/outside.py": b""}),
    ):
        assert operator.post(path, content=archive, headers=ZIP).status_code == 400
    assert not (source.parent / "outside.py").exists()
    fine = pack({source.name: KIOSK.format(type="int | float").encode()})
    for wrong in (
        "/deployments",
        "/deployments?app=../x:app",
        "/deployments?app=%00:app",
        f"{path}&check=true&epochs=many",
        f"{path}&check=true&drop=%00",
    ):
        assert operator.post(wrong, content=fine, headers=ZIP).status_code in (400, 409), wrong
    assert operator.post("/deployments", json={"number": "two"}).status_code == 400
    assert operator.post("/deployments", json={"number": 9}).status_code == 409
    assert controls(gateway.config.data) == []


def test_an_order_drops_a_class_with_its_name(
    source: Path, gateway: RunningGateway, operator: httpx.Client
) -> None:
    """Without the name it is refused; the report says that it needs a word; a name of no such class is refused."""
    text = KIOSK.format(type="int").replace("Item", "Other").encode()
    archive, path = pack({source.name: text}), f"/deployments?app={source.stem}:app"
    refused = operator.post(path, content=archive, headers=ZIP)
    assert (refused.status_code, "--drop Item" in refused.text) == (409, True)
    report = operator.post(f"{path}&check=true&drop=Item", content=archive, headers=ZIP).json()
    assert report.get("verdict") == "needs-a-word", report
    assert any("Item: the class is removed" in each["what"] for each in report["findings"])
    for check in ("false", "true"):
        order = f"{path}&check={check}&drop=Item,Other"
        mistaken = operator.post(order, content=archive, headers=ZIP)
        assert (mistaken.status_code, "--drop Other" in mistaken.text) == (409, True), check
    answer = operator.post(f"{path}&drop=Item", content=archive, headers=ZIP)
    assert answer.status_code == 202
    assert answer.json()["changes"][0].startswith("Item: the class is removed")
    assert controls(gateway.config.data) == [answer.json()["archive"]]


def test_a_gateway_without_keys_deploys_nothing(source: Path) -> None:
    """An anonymous caller may see the deployments, and cannot bring code to a gateway."""
    with RunningGateway(str(source), source.parent / "data", drives=False, reads=False) as running:
        url = f"{running.url}/deployments"
        assert httpx.get(url, timeout=60).status_code == 200
        refused = httpx.post(url, json={"number": 1}, timeout=60)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")


def test_commands_order_through_a_gateway(
    source: Path,
    gateway: RunningGateway,
    keys: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With `--url`, the commands need no data directory; a key without the scope is refused."""
    admin, reader = keys["admin"], keys["read"]
    source.write_text(KIOSK.format(type="int | float"))

    def run(*words: str, key: str) -> tuple[int, str]:
        status = execute([*words, "--url", gateway.url, "--key", key, "--json"])
        return status, capsys.readouterr().out.replace(" ", "")

    for words in (["apps"], ["deploy", str(source)], ["rollback"], ["rebalance"], ["remove", "x"]):
        status, output = run(*words, key=reader)
        assert status != 0
        scope = "watch" if words in (["apps"], ["rebalance"]) else "admin"
        assert f"lacksthescope{scope}" in output
    assert '"number":1' in run("apps", key=admin)[1]
    assert '"verdict":"safe"' in run("deploy", str(source), "--check", key=admin)[1]
    status, output = run("deploy", str(source), key=admin)
    assert (status, '"changed":true' in output) == (0, True), output
    status, output = run("rollback", "--to", "1", key=admin)
    assert status == 0, output
    assert len(controls(gateway.config.data)) == 2
    assert '"partitions":1' in run("rebalance", key=admin)[1]
    status, output = run("rebalance", "--partitions", "3", key=admin)
    assert (status, '"before":1,"partitions":3,"epoch":null' in output) == (0, True), output


def test_an_application_of_a_set_is_removed_through_a_gateway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that another application uses is refused with its path; one that no other uses leaves the set."""
    data = tmp_path / "data"
    key = KeyStore(data).add("admin", granted(["admin"]), None, datetime.now(UTC))[1]
    with own_modules(PLACES):
        journal_of(str(MARKET), data, [[("Item", "tea", "create", {"price": 3})]], deploys=True)
        with RunningGateway(str(MARKET), data, drives=False, reads=False) as running:
            remote = ["--url", running.url, "--key", key]
            for name, reason in (
                ("stock", "orders uses /stock/Item"),
                ("stok", "did you mean stock"),
            ):
                assert execute(["remove", name, *remote]) != 0
                assert reason in capsys.readouterr().err
            both = httpx.post(
                f"{running.url}/deployments",
                json={"remove": "orders", "number": 1},
                headers={"X-API-Key": key},
                timeout=60,
            )
            assert both.status_code == 400
            assert controls(data) == []
            assert execute(["remove", "orders", *remote]) == 0
    assert "takes effect when a driver runs" in capsys.readouterr().out
    assert len(controls(data)) == 1
