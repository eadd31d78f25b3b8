"""`@readonly` calls over HTTP: answered from the state, strict, and safe from their handlers."""

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from penstock.engine.execute import Limits
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.process.config import GatewayConfig
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for

pytestmark = pytest.mark.long

APP = """
import os
import signal
import time
from typing import Any
import penstock
from penstock import App, Entity, key, limit, readonly, route, transactional

class Pot(Entity):
    name: str = key()
    cups: int = 0
    other: "Pot | None" = None

    def pour(self, cups: int) -> int:
        self.cups += cups
        return self.cups

    def share(self, other: "Pot") -> None:
        self.cups -= 1
        other.cups += 1

    @readonly
    @route("GET /pots/{name}/cups")
    def shown(self, times: int = 1) -> int:
        return self.cups * times

    @readonly
    def with_other(self, other: "Pot") -> list[int]:
        return [self.cups, other.cups]

    @readonly
    def drinks(self) -> int:
        return self.pour(-1)

    @readonly
    def ends(self) -> None:
        os._exit(1)

    @readonly
    def forks(self) -> int:
        os.fork()
        return self.cups

    @readonly
    def loops(self) -> None:
        while True:
            pass

    @readonly
    def churns(self) -> int:
        return sum(range(10**15))

    @readonly
    def retries(self) -> None:
        while True:
            try:
                self.cups
            except BaseException:
                continue

    @readonly
    def hangs(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        while True:
            time.sleep(600)

    @readonly
    def grows(self) -> int:
        return len(bytearray(1 << 40))

    @readonly
    def stops(self) -> None:
        raise SystemExit(3)

    @readonly
    def babbles(self) -> int:
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b"nonsense that is no message of a reader")
            except OSError:
                pass
        return 1

@limit("2 at once")
@readonly
@transactional
def rare() -> int:
    return 1

@readonly
@transactional
def drawn() -> str:
    return str(penstock.uuid())

app = App("kitchen", Pot, drawn, rare)
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("kitchen") / "kitchen.py"
    path.write_text(APP)
    return str(path)


@pytest.fixture(scope="module")
def running(spec: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    limits = Limits(time_ms=300, wall_ms=1_000)
    with RunningGateway(spec, tmp_path_factory.mktemp("data"), limits=limits) as gateway:
        yield gateway


@pytest.fixture
def kitchen(running: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.url, timeout=90) as client:
        yield client


def create(kitchen: httpx.Client, *names: str) -> None:
    for name in names:
        answer = kitchen.post(f"/call/Pot/{name}/create", json={"cups": 10})
        assert answer.status_code == 200, answer.text


def code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def call(name: str, method: str, *arguments: Any) -> dict[str, Any]:
    return {"entity": "Pot", "key": name, "method": method, "arguments": arguments}


def test_read_is_no_request(kitchen: httpx.Client) -> None:
    """A `@readonly` call makes no epoch and has no request id, whether by its method or by its route."""
    create(kitchen, "quiet")
    before = kitchen.get("/entities/Pot/quiet").headers["penstock-epoch"]
    for answer in (
        kitchen.post("/call/Pot/quiet/shown", json=[2]),
        kitchen.get("/pots/quiet/cups?times=2"),
    ):
        assert (answer.status_code, answer.json()) == (200, 20)
        assert answer.headers["penstock-epoch"] == before
        assert "penstock-request-id" not in answer.headers
    assert kitchen.get("/entities/Pot/quiet").headers["penstock-epoch"] == before


def test_exists_is_a_read(kitchen: httpx.Client) -> None:
    """`exists` makes no epoch, and its answer follows each reply to a creation or deletion."""
    for _ in range(3):
        create(kitchen, "fleeting")
        found = kitchen.post("/call/Pot/fleeting/exists")
        before = found.headers["penstock-epoch"]
        assert "penstock-request-id" not in found.headers
        assert kitchen.post("/call/Pot/fleeting/delete").status_code == 200
        lost = kitchen.post("/call/Pot/fleeting/exists")
        assert (found.json(), lost.json()) == (True, False)
        assert int(lost.headers["penstock-epoch"]) > int(before)
    create(kitchen, "there")
    calls = [call("there", "exists"), call("gone", "exists")]
    told = kitchen.post("/read", json={"calls": calls}).json()["answers"]
    assert told == [{"value": True}, {"value": False}]
    told = kitchen.post("/read", json={"calls": [*calls, call("there", "shown")]}).json()["answers"]
    assert told == [{"value": True}, {"value": False}, {"value": 10}]
    asked = kitchen.post("/call/Pot/there/exists", headers={"Idempotency-Key": "asked-1"})
    assert asked.json() is True
    assert kitchen.get("/requests/asked-1").json()["value"] is True
    assert kitchen.post("/call/Pot/there/exists", json=[1]).status_code == 400


def test_read_sees_every_change_that_was_replied(kitchen: httpx.Client) -> None:
    """A read after a reply shows its change, each time."""
    create(kitchen, "strict")
    for number in range(11, 31):
        wrote = kitchen.post("/call/Pot/strict/pour", json=[1])
        read = kitchen.post("/call/Pot/strict/shown")
        assert read.json() == wrote.json() == number
        assert int(read.headers["penstock-epoch"]) >= int(wrote.headers["penstock-epoch"])


def test_read_with_a_request_id_is_recorded(kitchen: httpx.Client) -> None:
    """An id that the caller chose makes a request of the call, whose reply never changes."""
    create(kitchen, "kept")
    headers = {"Idempotency-Key": "kept-1"}
    first = kitchen.post("/call/Pot/kept/shown", headers=headers)
    kitchen.post("/call/Pot/kept/pour", json=[5])
    assert kitchen.post("/call/Pot/kept/shown", headers=headers).json() == first.json() == 10
    assert kitchen.get("/requests/kept-1").json()["value"] == 10
    drawn = {"Penstock-Request-Id": "drawn-1"}
    assert kitchen.post("/call/Pot/kept/shown", headers=drawn).json() == 15
    assert kitchen.get("/requests/drawn-1").status_code == 404
    poured = [kitchen.post("/call/Pot/kept/pour", json=[1], headers=drawn).json() for _ in "ab"]
    assert poured == [16, 16]


def test_read_waits_for_the_wanted_epoch(kitchen: httpx.Client) -> None:
    """`min_epoch` is respected, and an epoch that does not come in time is an error."""
    create(kitchen, "ahead")
    answer = kitchen.post("/call/Pot/ahead/shown?min_epoch=999999&timeout=0.05")
    assert (answer.status_code, code(answer)) == (504, "timed-out")


def test_many_calls_read_one_epoch(kitchen: httpx.Client) -> None:
    """The answers of a batch have the order of the calls, their errors in place, and one epoch."""
    create(kitchen, "one", "two")
    calls = [
        call("one", "shown", 3),
        call("none", "shown"),
        call("two", "drinks"),
        {"entity": "Pot", "key": "two", "method": "with_other", "arguments": {"other": "one"}},
    ]
    answer = kitchen.post("/read", json={"calls": calls})
    told = answer.json()
    assert str(told["epoch"]) == answer.headers["penstock-epoch"]
    assert [one.get("value") for one in told["answers"]] == [30, None, None, [10, 10]]
    codes = [one["error"]["code"] for one in told["answers"] if "error" in one]
    assert codes == ["no-such-entity", "readonly-violation"]


def test_batch_never_sees_half_a_transaction(kitchen: httpx.Client) -> None:
    """While transfers run, the sum over all calls of a batch stays the same."""
    create(kitchen, "left", "right")
    for _ in range(30):
        sent = kitchen.post("/send/Pot/left/share", json=["right"])
        assert sent.status_code == 202
        calls = [call("left", "shown"), call("right", "shown")]
        told = kitchen.post("/read", json={"calls": calls}).json()["answers"]
        assert sum(one["value"] for one in told) == 20


REFUSED = [
    ({"calls": []}, "request"),
    ({"calls": [call("a", "shown")] * 1_001}, "request"),
    ({"calls": [call("a", "shown"), call("a", "pour", 1)]}, "request"),
    ({"calls": [call("a", "shown", "x")]}, "request"),
    ({"calls": [{"entity": "Pot", "method": "shown"}]}, "request"),
    ({"calls": [{"method": "nothing"}]}, "request"),
    ([], "request"),
]


@pytest.mark.parametrize(("body", "wanted"), REFUSED)
def test_wrong_batch_is_refused(kitchen: httpx.Client, body: object, wanted: str) -> None:
    """A batch with a wrong call is refused as a whole."""
    answer = kitchen.post("/read", json=body)
    assert (answer.status_code, code(answer)) == (400, wanted)


HOSTILE = {
    "drinks": "readonly-violation",
    "ends": "limit-exceeded",
    "loops": "limit-exceeded",
    "churns": "limit-exceeded",
    "retries": "limit-exceeded",
    "hangs": "limit-exceeded",
    "grows": "limit-exceeded",
    "stops": "unhandled",
}


@pytest.mark.parametrize("method", HOSTILE)
def test_hostile_handler_fails_alone(kitchen: httpx.Client, method: str) -> None:
    """Whatever a handler does to its process, its call fails, and other calls are answered."""
    create(kitchen, f"pot-{method}")
    answer = kitchen.post(f"/call/Pot/pot-{method}/{method}")
    assert (answer.status_code, code(answer)) == (400, HOSTILE[method])
    assert kitchen.post(f"/call/Pot/pot-{method}/shown").json() == 10


@pytest.mark.parametrize("method", ["forks", "babbles"])
def test_hostile_handler_damages_no_other_answer(kitchen: httpx.Client, method: str) -> None:
    """A handler that forks, or writes to all descriptors, spoils at most its own answer."""
    create(kitchen, f"pot-{method}")
    kitchen.post(f"/call/Pot/pot-{method}/{method}")
    for _ in range(5):
        assert kitchen.post(f"/call/Pot/pot-{method}/shown").json() == 10


def test_a_clock_that_has_decided_needs_one_reader(
    running: RunningGateway, kitchen: httpx.Client
) -> None:
    """A call whose reader ends behind the time limit does not run again; the caller is told why."""
    create(kitchen, "churned")
    readers = running.versions.present.readers
    assert readers is not None
    count = running.config.gateway.readers
    # The first readers, and those in place of readers that earlier tests ended, count before this call.
    wait_for(lambda: readers._idle.qsize() == count, "the start of all readers")

    def started() -> float:
        lines = kitchen.get("/metrics").text.splitlines()
        return sum(
            float(each.split()[1])
            for each in lines
            if each.startswith("penstock_reader_starts_total")
        )

    before = started()
    answer = kitchen.post("/call/Pot/churned/churns")
    assert "ran longer than its limit" in answer.json()["error"]["message"]
    wait_for(lambda: started() == before + 1, "another reader")


def test_deadly_call_of_a_batch_fails_alone(kitchen: httpx.Client) -> None:
    """The calls before and after a call that ends its process are answered."""
    create(kitchen, "batch")
    calls = [call("batch", "shown"), call("batch", "ends"), call("batch", "shown", 2)]
    told = kitchen.post("/read", json={"calls": calls}).json()["answers"]
    assert [one.get("value") for one in told] == [10, None, 20]
    assert told[1]["error"]["code"] == "limit-exceeded"


def test_reads_survive_the_nursery(running: RunningGateway, kitchen: httpx.Client) -> None:
    """When the process that starts readers is killed, another one takes its place."""
    create(kitchen, "orphan")
    nurseries = [
        one
        for one in psutil.Process().children()
        if "penstock.runtime.reads.nursery" in one.cmdline()
    ]
    assert nurseries
    for nursery in nurseries:
        os.kill(nursery.pid, signal.SIGKILL)
    for nursery in nurseries:
        nursery.wait(60)
    for _ in range(4):
        assert kitchen.post("/call/Pot/orphan/shown").json() == 10


def test_limits_count_reads(kitchen: httpx.Client) -> None:
    """Each call of a batch counts for the limits on its handler, until the batch is answered."""
    for calls, status in ((2, 200), (3, 429), (2, 200)):
        answer = kitchen.post("/read", json={"calls": [{"method": "rare"}] * calls})
        assert answer.status_code == status


def test_random_values_of_reads_foretell_nothing(kitchen: httpx.Client) -> None:
    """Two reads draw different values."""
    drawn = {kitchen.post("/call/drawn").json() for _ in range(3)}
    assert len(drawn) == 3


def test_reads_are_counted(kitchen: httpx.Client) -> None:
    """The metrics page counts calls that readers answered, and the starts of readers."""
    create(kitchen, "counted")

    def read() -> float:
        lines = kitchen.get("/metrics").text.splitlines()
        return sum(float(one.split()[1]) for one in lines if one.startswith("penstock_reads_total"))

    before = read()
    calls = [call("counted", "shown")] * 7
    assert kitchen.post("/read", json={"calls": calls}).status_code == 200
    assert read() == before + 7
    assert "penstock_reader_starts_total" in kitchen.get("/metrics").text


def test_key_reads_what_its_scopes_name(spec: str, tmp_path: Path) -> None:
    """A batch needs the right to each of its calls."""
    store = KeyStore(tmp_path)
    _, secret = store.add(
        "cook", granted(["call:Pot.create", "call:Pot.shown"]), None, datetime.now(UTC)
    )
    with (
        RunningGateway(spec, tmp_path) as gateway,
        httpx.Client(base_url=gateway.url, timeout=90) as client,
    ):
        client.headers["Authorization"] = f"Bearer {secret}"
        create(client, "mine")
        allowed = client.post("/read", json={"calls": [call("mine", "shown")]})
        refused = client.post(
            "/read", json={"calls": [call("mine", "shown"), call("mine", "with_other", "mine")]}
        )
    assert allowed.json()["answers"] == [{"value": 10}]
    assert (refused.status_code, code(refused)) == (403, "forbidden")


def test_without_readers_a_read_is_a_request(spec: str, tmp_path: Path) -> None:
    """With `gateway.readers = 0` a `@readonly` call goes through the log."""
    with (
        RunningGateway(spec, tmp_path, GatewayConfig(readers=0)) as gateway,
        httpx.Client(base_url=gateway.url, timeout=90) as client,
    ):
        create(client, "logged")
        answer = client.post("/call/Pot/logged/shown")
        assert answer.json() == 10
        assert (
            client.get(f"/requests/{answer.headers['penstock-request-id']}").json()["value"] == 10
        )
        batch = client.post("/read", json={"calls": [call("logged", "shown")]})
        assert (batch.status_code, code(batch)) == (400, "request")
        assert "penstock-request-id" not in client.post("/call/Pot/logged/exists").headers
        batch = client.post("/read", json={"calls": [call("logged", "exists")]})
        assert batch.json()["answers"] == [{"value": True}]


def test_reads_before_the_first_epoch_find_nothing(spec: str, tmp_path: Path) -> None:
    """An empty journal answers with the epoch -1, without a driver."""
    with (
        RunningGateway(spec, tmp_path, drives=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=90) as client,
    ):
        answer = client.post("/call/Pot/none/shown")
        assert (answer.status_code, code(answer)) == (404, "no-such-entity")
        assert answer.headers["penstock-epoch"] == "-1"
        answer = client.post("/call/Pot/none/exists")
        assert (answer.json(), answer.headers["penstock-epoch"]) == (False, "-1")
        assert len(client.post("/call/drawn").json()) == 36
