"""The benchmark measures real work, and fails when its results are wrong."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import typer

from benchmarks.harness import shop, transfer
from benchmarks.harness.answers import succeeded
from benchmarks.harness.bench_run import bench_run, paced
from benchmarks.harness.ledger import Ledger, Row, ShopLedger, TransferLedger
from benchmarks.harness.load import Answer, Request
from benchmarks.harness.measure import Driver, Start
from benchmarks.harness.options import Options
from benchmarks.harness.workload import Drawing, loading_count, workload_of
from penstock.base.ids import EntityKey, Lsn
from penstock.cli.main import execute
from penstock.engine.execute import Outcome
from penstock.log.api import Record
from penstock.model.application import App
from penstock.model.call import Call
from penstock.process.config import Config
from penstock.runtime.local.runtime import LocalRuntime
from tests.serial_driver import SerialDriver

pytestmark = pytest.mark.long

SMALL = Options(users=300, items=300, orders=300, requests=1_000, check_oracle=True)


def figures_of(
    options: Options,
    data: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    epoch_records_max: int = 400,
    start: Start = SerialDriver,
) -> dict[str, Any]:
    """Run a benchmark without Spark and return the JSON object in the last line."""
    config = Config(data, cores=1, epoch_records_max=epoch_records_max)
    data.mkdir(exist_ok=True)
    bench_run(options, config, as_json=True, start=start)
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_checkouts_are_counted_conserved_and_equal_to_the_oracle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The figures have every promised key, and epochs change neither replies nor state."""
    figures = figures_of(SMALL, tmp_path / "a", capsys)
    assert figures["conserved"] is True
    assert figures["complaints"] == []
    assert figures["aborts"] == 0
    assert figures["requests"] == loading_count(SMALL) + 2 * SMALL.requests
    assert 0 < figures["checkouts"] <= SMALL.requests
    assert figures["checkouts_per_s"] > 0
    assert figures["latency_ms"].keys() == figures["accepted_ms"].keys() == {"p50", "p90", "p99"}
    assert figures["rounds_per_epoch"] == 1
    assert figures["ratio_to_serial"] > 0
    assert figures["phases_ms"].keys() == {"round1", "commit"}
    assert (figures["partitions"], figures["cores"]) == (1, 1)
    other = figures_of(SMALL, tmp_path / "b", capsys, epoch_records_max=133)
    for name in ("replies_hash", "state_hash"):
        assert figures[name] == other[name]


def test_transfers_at_a_rate_are_counted_from_when_they_were_due(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A schedule is kept, and every latency is positive."""
    options = replace(SMALL, kind="transfer", rate=2_000, zipf=0.999)
    figures = figures_of(options, tmp_path, capsys)
    assert figures["conserved"] is True
    assert 0 < figures["transfers"] <= SMALL.requests
    assert 0 < figures["latency_ms"]["p50"] <= figures["latency_ms"]["p99"]
    for name, accepted in figures["accepted_ms"].items():
        assert 0 < accepted < figures["latency_ms"][name], "durable before it is committed"


def test_damaged_history_is_not_conserved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change that the replies do not explain fails the command, with any report of the engine."""

    def damage(key: EntityKey, data: bytes | None) -> bytes | None:
        if not key.startswith("User/") or data is None:
            return data
        tag, credit = msgspec.msgpack.decode(data)
        return msgspec.msgpack.encode([tag, credit + 1 if credit < shop.CREDIT else credit])

    def start(spec: str, config: Config) -> Driver:
        return SerialDriver(spec, config, break_state=damage)

    with pytest.raises(typer.Exit) as caught:
        figures_of(SMALL, tmp_path, capsys, start=start)
    assert caught.value.exit_code == 1
    printed = capsys.readouterr()
    figures = json.loads(printed.out.splitlines()[-1])
    assert figures["conserved"] is False
    assert "users have spent" in printed.err
    assert "has credit" in printed.err
    assert "the state differs from the serial oracle's" in printed.err


class Mumbling(SerialDriver):
    """Changes the right entities, and gives a wrong answer."""

    def _commit(
        self,
        end: Lsn,
        outcomes: list[tuple[Record, Outcome]],
        changes: dict[EntityKey, bytes | None],
    ) -> None:
        said = msgspec.msgpack.encode("Checkout perhaps")
        changed = [
            (record, msgspec.structs.replace(outcome, reply=said)) for record, outcome in outcomes
        ]
        super()._commit(end, changed, changes)


def test_replies_that_are_no_success_do_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reply counts only after it was decoded and was the success of its request."""
    options = replace(SMALL, check_oracle=False)
    with pytest.raises(typer.Exit):
        figures_of(options, tmp_path, capsys, start=Mumbling)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["checkouts"] == 0
    complaint = f"{loading_count(SMALL) + 2 * SMALL.requests} replies are no success of a checkout, nor errors"
    assert figures["complaints"] == [complaint]


@pytest.mark.parametrize(
    ("status", "body"), [(200, b""), (200, b"Checkout perhaps"), (400, b"Checkout successful")]
)
def test_answer_over_http_is_read_before_it_counts(status: int, body: bytes) -> None:
    """Only status 200 with the words of a checkout is a success."""
    right = Answer(Request("POST", "/"), 200, b"Checkout successful", sent_s=0, took_s=0, tries=1)
    assert succeeded(right)
    assert not succeeded(replace(right, status=status, body=body))


def test_bench_begins_with_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory that is not empty is refused, and not measured with its content."""
    (tmp_path / "something").touch()
    assert execute(["bench", "checkout", "--data", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err


def test_maximum_and_rate_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """A run is either as fast as possible or on a schedule."""
    assert execute(["bench", "transfer", "--max", "--rate", "10"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_same_seed_gives_the_same_requests() -> None:
    """Two runs can be compared, and another seed is another run."""
    first, again = workload_of(SMALL), workload_of(SMALL)
    other = workload_of(replace(SMALL, seed=2))
    assert first.loading == again.loading
    assert first.draw(50).tolist() == again.draw(50).tolist()
    assert first.loading != other.loading
    assert len(first.loading) == loading_count(SMALL)


def test_zipf_draws_as_its_exponent_says() -> None:
    """Number n is drawn with weight 1/(n + 1)^theta."""
    count, theta, size = 1_000, 0.999, 200_000
    drawn = Drawing(np.random.default_rng(1), count, theta)(size)
    weights = np.arange(1, count + 1) ** -theta
    shares = np.bincount(drawn, minlength=count)[:5] / size
    assert shares == pytest.approx(weights[:5] / weights.sum(), rel=0.05)


def test_small_runs_warm_up_less() -> None:
    """Warm-up follows the rate or the number of requests, and its requests are fixed by the seed too."""
    config = Config(Path("d"), epoch_records_max=100)
    assert paced(replace(SMALL, requests=50), config).warm_up == 50
    assert paced(Options(rate=1_000), config).warm_up == 4_000
    assert paced(Options(), config).backlog == 300


def changes_of(runtime: LocalRuntime) -> list[Row]:
    return [(*key.split("/", 1), data) for key, data in runtime.state.items()]  # type: ignore[misc]


def filled(app: App, load: list[tuple[str, tuple[Any, ...]]]) -> LocalRuntime:
    runtime = LocalRuntime(app)
    for function, arguments in load:
        runtime.submit(Call("", None, function, tuple(arguments))).value()
    return runtime


def shop_ledger() -> tuple[LocalRuntime, Ledger]:
    load: list[tuple[str, tuple[Any, ...]]] = [
        ("load_items", (0, 3)),
        ("load_users", (0, 2)),
        ("load_orders", (0, [(0, [1, 1]), (1, [2])])),
    ]
    runtime, ledger = filled(shop.app, load), ShopLedger(shop.app)
    assert ledger.changed(changes_of(runtime)) is None
    return runtime, ledger


def test_shop_ledger_agrees_with_honest_checkouts() -> None:
    """Money and stock that replies explain are conserved."""
    runtime, ledger = shop_ledger()
    for order in ("0", "1", "0"):
        runtime.call.Order(order).reorder()
        ledger.answered(order, "reorder", [])
    assert ledger.changed(changes_of(runtime)) is None
    assert ledger.complaints() == []


def test_shop_ledger_notices_a_lost_reply() -> None:
    """An effect without a reply is found."""
    runtime, ledger = shop_ledger()
    runtime.call.Order("0").reorder()
    assert ledger.changed(changes_of(runtime)) is None
    assert ledger.complaints() == ["order 0 was checked out 1 times, 0 replies"]


def test_shop_ledger_notices_a_lost_update() -> None:
    """Stock that was sold and is still there is found in the same epoch."""
    runtime, ledger = shop_ledger()
    before = runtime.state[EntityKey("Item/1")]
    runtime.call.Order("0").reorder()
    runtime.state[EntityKey("Item/1")] = before
    assert ledger.changed(changes_of(runtime)) == "0 pieces are missing, 2 were sold"


def test_transfer_ledger_notices_who_got_too_much() -> None:
    """A total that is right does not hide that money went to the wrong account."""
    runtime = filled(transfer.app, [("load_accounts", (0, 3))])
    ledger = TransferLedger(transfer.app)
    assert ledger.changed(changes_of(runtime)) is None
    account = transfer.app.entities["Account"].cls
    runtime.call.Account("0").transfer(account("1"), 5)
    ledger.answered("0", "transfer", ["2", 5])
    assert ledger.changed(changes_of(runtime)) is None
    assert len(ledger.complaints()) == 2
