"""The Spark runtime without faults: requests in, replies out, and rest when there are none."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil
import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.deployment.archives import Archives, pack
from penstock.deployment.deploy_order import append_deployment, wait_for_deployment
from penstock.errors import (
    Aborted,
    AlreadyExists,
    ConfigError,
    NoSuchEntity,
    RequestConflict,
    RequestError,
)
from penstock.journal.deployments import Deployments
from penstock.log.api import Entry
from penstock.model.call import Call
from penstock.model.control import DeployedCode
from penstock.process.config import Config
from penstock.process.epoch_report import EpochReport
from penstock.runtime.spark.runtime import SparkRuntime
from tests.faults.load import Bank
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark]

DEADLINE_MS = 120_000
COUNT = 600
EPOCH = 150
IDLE_S = 3.0
IDLE_CPU_S_MAX = 2.0
BANK = Bank()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of the bank."""
    return tmp_path_factory.mktemp("bank") / "data"


@pytest.fixture(scope="module")
def bank(data: Path) -> Iterator[SparkRuntime]:
    """A running bank."""
    runtime = SparkRuntime(
        BANK.spec, Config(data, cores=2, epoch_records_max=EPOCH, small_epoch=50)
    )
    runtime.start()
    yield runtime
    runtime.stop()


def test_calls_come_back_typed(bank: SparkRuntime) -> None:
    """Creations, calls, references and functions work from outside as they read."""
    account = bank.call.Account.create("typed", balance=70)
    bank.call.Account.create("other")
    assert bank.call.Account.exists("typed")
    assert not bank.call.Account.exists("nobody")
    assert bank.call.Account("typed").deposit(5) == 75
    assert account.account_id == "typed"
    assert (
        bank.call.Account("typed").transfer(BANK.app.entities["Account"].of_text("other"), 25) == 50
    )
    bank.call.init_accounts(1_000, 3, 9)
    assert bank.call.Account("1002").deposit(1) == 10


def test_second_runtime_of_a_process_is_refused(bank: SparkRuntime, tmp_path: Path) -> None:
    """A process has one Spark: a second runtime says so, and its end leaves the first one alone."""
    second = SparkRuntime(BANK.spec, Config(tmp_path / "data"))
    with pytest.raises(ConfigError, match="Spark already runs in this process"):
        second.start()
    second.stop()
    bank.call.Account.create("after the second")
    assert bank.call.Account.exists("after the second")


def test_driver_records_the_code_that_runs(bank: SparkRuntime, data: Path) -> None:
    """The first deployment begins with the first epoch; its archive has the source, without its tests."""
    (deployment,) = Deployments(data / "journal").every()
    assert (deployment.number, deployment.since) == (1, 0)
    files = (path.name for path in sorted(Path(BANK.spec).glob("*.py")))
    names = [f"bank/{name}" for name in files if not name.startswith("test_")]
    assert list(Archives(data).files(deployment.code.archive)) == names


def test_small_epochs_run_in_the_resident_task(bank: SparkRuntime) -> None:
    """One task of Spark runs one small epoch after the other: all of their parts name the same attempt."""
    resident, _ = bank._jobs._residents
    wait_for(resident.connected, "the resident task")
    before = bank.progress().epoch
    for name in ("near", "nearer", "nearest"):
        bank.call.Account.create(name)
    commits = list(bank.journal.commits(before))
    attempts = {re.findall(r"-a(\d+)-", part.path)[0] for one in commits for part in one.parts}
    assert len(commits) == 3
    assert len(attempts) == 1


def test_table_is_of_one_epoch(bank: SparkRuntime) -> None:
    """While it runs, a class is a DataFrame of the newest epoch, or of an older one."""
    bank.call.Account.create("tabled", balance=1)
    before = bank.progress().epoch
    bank.call.Account("tabled").deposit(4)
    for as_of, balance in ((before, 1), (None, 5)):
        frame = bank.table("Account", as_of=as_of).where("account_id = 'tabled'")
        assert [one.balance for one in frame.collect()] == [balance]


def test_queries_of_a_user_run_as_generated_code(bank: SparkRuntime) -> None:
    """The query over the log runs without it, which does not change the session of tables."""
    session = bank.table("Account").sparkSession
    (plan,) = session.sql("EXPLAIN SELECT id + 1 FROM range(9)").collect()[0]
    assert "*(1)" in plan  # Spark's mark of a stage of generated code


def test_errors_come_back_typed(bank: SparkRuntime) -> None:
    """A failure raises the class of its code, names the user's exception, and leaves no effect."""
    bank.call.Account.create("strict", balance=3)
    with pytest.raises(AlreadyExists):
        bank.call.Account.create("strict")
    with pytest.raises(NoSuchEntity):
        bank.call.Account("missing").deposit(1)
    with pytest.raises(Aborted) as caught:
        bank.call.Account("strict").withdraw(4)
    assert caught.value.kind == "Overdrawn"
    with pytest.raises(RequestError):
        bank.call.Account("strict").deposit("much")
    with pytest.raises(RequestError):
        _ = bank.call.Account("strict").vanish
    assert bank.call.Account("strict").deposit(1) == 4


def test_workers_are_forked_from_what_is_installed(bank: SparkRuntime) -> None:
    """Spark's Python processes load PySpark as it is installed, compiled once, from no zip file."""
    bank.call.Account.create("forked")
    paths = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # some end meanwhile
            if "penstock.runtime.spark.daemon" in one.cmdline():
                paths.append(one.environ().get("PYTHONPATH", ""))
    assert paths
    assert not any("pyspark.zip" in path for path in paths)


def test_request_id_is_answered_once(bank: SparkRuntime) -> None:
    """A retry in a later epoch gets the recorded answer; the same id with another body is refused."""
    bank.call.Account.create("once")
    first = bank.submit(Call("Account", "once", "deposit", (5,), {}, "deposit-once"))
    assert bank.call.Account("once").deposit(1) == 6
    assert bank.submit(Call("Account", "once", "deposit", (5,), {}, "deposit-once")) == first
    with pytest.raises(RequestConflict):
        bank.submit(Call("Account", "once", "deposit", (6,), {}, "deposit-once"))
    assert bank.call.Account("once").deposit(1) == 7


def test_epochs_keep_the_admission_limit(bank: SparkRuntime) -> None:
    """However many requests wait, no epoch takes more than it may."""
    seen: list[EpochReport] = []
    before = bank.journal.last()
    assert before is not None
    bank.on_epoch.append(seen.append)
    end = Lsn(bank.log.append(BANK.entries(seed=11, count=COUNT))[-1] + 1)
    assert bank.wait_until(end, DEADLINE_MS)

    def told() -> list[EpochReport]:
        # A report comes just after its commit: that of the epoch before may still come here.
        return [report for report in seen if report.epoch > before.epoch]

    total = COUNT + BANK.accounts
    wait_for(lambda: sum(report.records for report in told()) == total, "the last report")
    bank.on_epoch.remove(seen.append)
    assert max(report.records for report in told()) <= EPOCH
    for report in told():  # each request counts once, also if it ran twice
        roots = [count for edge, count in report.calls.items() if edge.startswith(">")]
        assert sum(roots) == report.records


def test_epoch_says_who_called_whom(bank: SparkRuntime) -> None:
    """The report of an epoch counts the request as a call from outside, and the calls that it made."""
    for name in ("payer", "payee", "fees"):
        bank.call.Account.create(name, balance=100)
    account = bank.app.entities["Account"].of_text
    seen: list[EpochReport] = []
    bank.on_epoch.append(seen.append)
    assert bank.call.Account("payer").pay(account("payee"), 20, account("fees"), 1) == 79
    wait_for(lambda: any(">Account.pay" in report.calls for report in seen), "the report")
    bank.on_epoch.remove(seen.append)
    assert seen[-1].calls == {
        ">Account.pay": 1,
        "Account.pay>Account.transfer": 2,
        "Account.transfer>Account.withdraw": 2,
        "Account.transfer>Account.deposit": 2,
    }


def test_due_request_is_processed(bank: SparkRuntime) -> None:
    """A request that was scheduled is answered once it is due, without anybody appending it."""
    body, hint = bank.app.request("Account", "scheduled", "create", (), {"balance": 3})
    end = bank.log.end()
    bank.log.schedule(Entry(RequestId("later"), body, hint, 0), time.time_ns() // 1_000)
    wait_for(lambda: bank.log.scheduled(RequestId("later")) is None, "the promotion")
    assert bank.log.find(RequestId("later")) == (0, end)
    assert bank.wait_until(bank.log.end(), DEADLINE_MS)
    assert bank.call.Account("scheduled").deposit(1) == 4


def test_idle_runtime_rests(bank: SparkRuntime) -> None:
    """With nothing to do, driver, JVM and workers together leave a core mostly unused."""
    assert bank.wait_until(bank.log.end(), DEADLINE_MS)
    before = cpu_s()
    threading.Event().wait(IDLE_S)
    assert cpu_s() - before < IDLE_CPU_S_MAX


def changed(data: Path, was: bytes, now: bytes) -> DeployedCode:
    """Store the deployed source with a change of one text, and return the code."""
    code = Deployments(data / "journal").every()[0].code
    files = Archives(data).files(code.archive)
    name = "bank/account.py"
    assert was in files[name]
    archive = Archives(data).put(pack({**files, name: files[name].replace(was, now)}))
    return msgspec.structs.replace(code, archive=archive)


def test_a_deployment_takes_effect_while_the_application_runs(
    bank: SparkRuntime, data: Path
) -> None:
    """Later requests run with the new code, in the process that runs already; code that kills workers is refused."""
    bank.call.Account.create("moving")
    assert bank.call.Account("moving").deposit(1) == 1
    line = b"self.balance += amount"
    ends = b"import os, sys\nif 'pyspark' in sys.modules:\n    os.kill(os.getpid(), 9)\n"
    mortal = changed(data, b"from penstock", ends + b"from penstock")
    codes = [changed(data, line, line + b" * 10"), mortal]
    appended = [append_deployment(bank._config, code) for code in codes]
    first, second = (one for one in appended if one is not None)
    assert wait_for_deployment(bank._config, first, DEADLINE_MS / 1_000).number == 2
    with pytest.raises(ConfigError, match="ends the process"):
        wait_for_deployment(bank._config, second, DEADLINE_MS / 1_000)
    assert bank.call.Account("moving").deposit(1) == 11
    (deployment,) = Deployments(data / "journal").every()[1:]
    assert deployment.code == codes[0]
    newest = bank.progress().epoch
    assert deployment.since < newest
    assert bank.app.entities["Account"].cls.__module__ == "bank.account"


def cpu_s() -> float:
    """Return the processor time that this process and all below it have used."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total
