"""Handlers that kill, hang or exhaust their worker are undone alone; their epoch goes on."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import BEFORE_FIRST, Lsn, RequestId
from penstock.deployment.loading import load_app
from penstock.errors import LimitExceeded, Unencodable, Unhandled
from penstock.journal.api import PartKind
from penstock.log.api import Entry
from penstock.process.data_directory import DataDirectory
from tests.differential.committed import answers_of
from tests.faults.driver_process import DriverProcess
from tests.faults.history import Row, State, Watch, calls_of, values_of
from tests.faults.load import Call
from tests.faults.poison import KILLERS, OTHERS
from tests.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.faults]

SPEC = str(Path(__file__).parent / "poison.py")
LIMITS = {"time_ms": 300, "wall_ms": 2_000, "memory_bytes": 256 << 20}
STUCK_S = 2
COUNT = 30
SMALL_EPOCH = 500


class Poisoned:
    """A data directory whose log gets batches of good and bad requests."""

    def __init__(self, data: Path) -> None:
        data.mkdir(parents=True)
        self.app = load_app(SPEC)
        self.watch = Watch(self.app, data, conserved)
        self._log = DataDirectory(data).open_log()
        self.acknowledged: dict[RequestId, Lsn] = {}
        self._count = 0

    def send(self, calls: Sequence[Call], names: Sequence[str] = ()) -> None:
        """Append all calls at once, so that one epoch takes them."""
        entries = []
        for index, call in enumerate(calls):
            body, hint = self.app.request(*call)
            name = names[index] if names else f"request-{self._count}"
            entries.append(Entry(RequestId(name), body, hint, 0))
            self._count += 1
        for entry, lsn in zip(entries, self._log.append(entries), strict=True):
            self.acknowledged[entry.request_id] = lsn

    def close(self) -> None:
        self._log.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("poison") / "data"


@pytest.fixture(scope="module")
def poisoned(data: Path) -> Iterator[Poisoned]:
    with closing(Poisoned(data)) as made:
        yield made


@pytest.fixture(scope="module")
def driver(poisoned: Poisoned, data: Path) -> Iterator[DriverProcess]:
    """One driver for all tests; it outlives all that their handlers do, and stops in order."""
    poisoned.send([("Account", f"a{number}", "create", [], {}) for number in range(COUNT)])
    # The handlers take as much time as they can, which must not divide the epochs.
    settings: dict[str, Any] = {
        "limits": LIMITS,
        "stuck_s": STUCK_S,
        "small_epoch": SMALL_EPOCH,
        "epoch_time_ms": 0,
    }
    with DriverProcess(SPEC, data, **settings) as started:
        yield started
        started.stop()


def conserved(state: State, names: dict[str, list[str]], rows: list[Row]) -> None:
    there = sum(one["balance"] for one in values_of(state, names, "Account").values())
    added = sum(positional[0] for _, _, method, positional, _ in calls_of(rows) if method == "add")
    assert there == added, "an undone transaction has left something"


def mixed(poisoned: Poisoned, bad: Sequence[str], good: int) -> tuple[list[Call], list[str]]:
    """Return bad requests, so many good ones before each of them, and an id for each."""
    account = poisoned.app.entities["Account"].of_text
    calls: list[Call] = []
    names: list[str] = []
    for index, how in enumerate(bad):
        for number in range(good):
            calls.append(("Account", f"a{number % COUNT}", "add", [index + number], {}))
            names.append(f"add-{len(poisoned.acknowledged)}-{index}-{number}")
        call: Call = ("Account", f"a{index}", "poison", [how, account(f"a{index + 9}")], {})
        if how == "unspeakable":
            call = ("Account", f"a{index}", "unspeakable", [], {})
        calls.append(call)
        names.append(f"{how}-{len(poisoned.acknowledged)}")
    calls.append(("Account", "a1", "add", [1], {}))
    names.append(f"last-{len(poisoned.acknowledged)}")
    return calls, names


def errors_of(poisoned: Poisoned) -> dict[str, str]:
    """Return the error of each bad request, by its name."""
    return {
        name.partition("-")[0]: error
        for name, (error, _) in poisoned.watch.answers.items()
        if error is not None
    }


@pytest.mark.turns(
    1, "engine", "runtime", "process", "model", "native", of="handlers that harm their process"
)
def test_bad_handlers_are_undone_and_their_epoch_goes_on(
    poisoned: Poisoned, driver: DriverProcess
) -> None:
    """Every way to kill, hang or exhaust a worker costs one request, in one task and in two."""
    calls, names = mixed(poisoned, [*OTHERS, "unspeakable", *KILLERS], COUNT)
    assert len(calls) + COUNT < SMALL_EPOCH
    poisoned.send(calls, names)
    wait_for(lambda: processed(driver) == len(poisoned.acknowledged), "an answer to all")
    poisoned.watch.check(poisoned.acknowledged, all_answered=True)
    assert len(poisoned.watch.epochs_of(names)) == 1
    warnings = driver.logged("a worker that makes no progress is killed")
    stuck = [warning for warning in warnings if "epoch" in warning]
    assert stuck, "the watchdog names the worker that hangs"
    assert {"epoch", "round", "task", "position", "worker"} <= stuck[0].keys()
    calls, names = mixed(poisoned, ["exit", "loop", "allocate"], SMALL_EPOCH // 2)
    poisoned.send(calls, names)
    wait_for(lambda: processed(driver) == len(poisoned.acknowledged), "an answer to all")
    poisoned.watch.check(poisoned.acknowledged, all_answered=True)
    assert len(poisoned.watch.epochs_of(names)) == 1, "one epoch, too large for one task"
    limited = {*KILLERS, "loop", "allocate", "hoard", "recurse"}
    assert errors_of(poisoned) == {
        **dict.fromkeys(limited, LimitExceeded.code),
        **dict.fromkeys(("leave", "fail"), Unhandled.code),
        "unspeakable": Unencodable.code,
    }


@pytest.mark.turns(
    1, "engine", "runtime", "process", "model", "native", of="handlers that harm their process"
)
def test_sent_requests_that_kill_fail_alone(
    poisoned: Poisoned, driver: DriverProcess, data: Path
) -> None:
    """Their senders take effect, and so do the requests that were sent behind them; after three, no more die."""
    account = poisoned.app.entities["Account"].of_text
    accounts = [f"b{number}" for number in range(6)]
    calls: list[Call] = [("Account", name, "create", [], {}) for name in accounts]
    calls += [("Account", name, "delegate", ["exit", account("b5")], {}) for name in accounts[:2]]
    calls.append(("Account", "b2", "delegate_all", [[account(name) for name in accounts]], {}))
    names = [f"sender-{number}" for number in range(len(calls))]
    poisoned.send(calls, names)
    wait_for(lambda: processed(driver) == len(poisoned.acknowledged), "an answer to all")
    with closing(DataDirectory(data).open_journal_of("poison")) as journal:
        errors = {answer.request_id: answer.error for answer in answers_of(journal)}
        assert [errors[RequestId(name)] for name in names] == [None] * len(calls)
        sent = [
            (row["request_id"], row["error"])
            for commit in journal.commits(BEFORE_FIRST)
            for part in commit.parts_of(PartKind.SENT)
            for row in journal.read(part).to_pylist()
        ]
    killed = LimitExceeded.code
    each = [("1", killed), ("2", None)]
    assert sent == [(f"sender-{number}~~{part}", error) for number in (6, 7) for part, error in each] + [
        (f"sender-8~~{number}", killed) for number in range(1, 7)
    ]  # fmt: skip


def processed(driver: DriverProcess) -> int:
    """Return how many requests a driver has committed; show why it failed, if it did."""
    assert driver.alive, driver.errors()[-3_000:]
    return sum(int(one["records"]) for one in driver.epochs())
