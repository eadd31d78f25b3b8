"""`penstock bench http`: checkouts over HTTP, with everything on this machine.

It starts all processes of `penstock run`, imports the shop, and checks out each order once through the
gateway. Many clients send at the same time: every connection has one request in progress. Then, for a
fourth of the time, the clients send each request to `/send` and wait for its reply, which gives both latencies of the
same requests: accepted (durable in the log) and committed. For another fourth, the same number of requests is in
progress on a single pipelined connection. Afterwards the journal shows whether money and stock agree with the replies. The gateway's processor time for a
request is compared with that of an empty Starlette route, under the same server and the same load.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import psutil
import typer
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.harness.answers import DONE, succeeded
from benchmarks.harness.latencies import Timed, latencies_of, percentiles_ms, send_all
from benchmarks.harness.load import Answer, Load, Request
from benchmarks.harness.pipelined import pipelined_checkouts
from benchmarks.harness.ports import free_port
from benchmarks.harness.shop import EXAMPLE
from penstock.base.ids import BEFORE_FIRST
from penstock.cli.options import DIRECTORY
from penstock.cli.output import print_json
from penstock.deployment.loading import load_app
from penstock.errors import OperationalError
from penstock.journal.api import PartKind
from penstock.process import presence
from penstock.process.data_directory import DataDirectory
from penstock.process.process_limits import keep_present_objects
from penstock.runtime.spark.class_archive import RECORDING
from penstock.sql_view.view_client import view_epoch

HOST: Final = "127.0.0.1"
START_S: Final = 300.0
STOP_S: Final = 90.0
FILL_S: Final = 3_600
AMOUNT: Final = 1_000_000
ENDS: Final = (0.1, 0.6, 0.9)
"""The shares of the orders that are used up with the warm-up, the plain checkouts and the pipelined ones at the latest."""

_encode_line: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class HttpFigures:
    """The result of a run.

    Attributes:
        answers: The answers in the measured seconds.
        timed: The requests that were sent to `/send`, with both latencies.
        pipelined: The answers over the pipelined connection.
        pipelined_us: Processor time of the gateways for each of these, in microseconds.
        seconds: The time from the first request to the last answer.
        gateway_us: Processor time of the gateways for each request, in microseconds.
        empty_us: The same for a server whose route does nothing.
        empty_per_s: The requests a second to this route under the same load.
        complaints: The contradictions between answers and journal.
    """

    answers: list[Answer]
    timed: list[Timed]
    pipelined: list[Answer]
    pipelined_us: float
    seconds: float
    gateway_us: float
    empty_us: float
    empty_per_s: float
    complaints: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return the figures for `--json`. Keys are stable."""
        failed = [answer for answer in self.answers if not succeeded(answer)]
        lost = [answer for answer in self.pipelined if not succeeded(answer)]
        refused = [one for one in self.timed if not is_checkout(one)]
        both = latencies_of(self.timed)
        return {
            "requests_per_s": round((len(self.answers) - len(failed)) / self.seconds, 1),
            "latency_ms": percentiles_ms([answer.took_s for answer in self.answers]),
            "accepted_ms": both["accepted_ms"],
            "sent_committed_ms": both["committed_ms"],
            "pipelined_per_s": round((len(self.pipelined) - len(lost)) / span_s(self.pipelined), 1),
            "pipelined_latency_ms": percentiles_ms([answer.took_s for answer in self.pipelined]),
            "pipelined_gateway_us_per_request": round(self.pipelined_us, 1),
            "errors": len(failed) + len(lost) + len(refused),
            "error_examples": sorted(
                {f"{answer.status} {answer.body[:200]!r}" for answer in (*failed, *lost)}
                | {one.error or f"{one.value!r}" for one in refused}
            )[:3],
            "requests": len(self.answers),
            "seconds": round(self.seconds, 2),
            "conserved": not self.complaints,
            "complaints": self.complaints,
            "gateway_us_per_request": round(self.gateway_us, 1),
            "empty_route_us_per_request": round(self.empty_us, 1),
            "empty_route_per_s": round(self.empty_per_s, 1),
        }


def measure_http(
    connections: int, seconds: float, orders: int, gateways: int, seed: int, *, as_json: bool
) -> None:
    """Measure checkouts over HTTP, and print the figures.

    Args:
        connections: Requests in progress at once.
        seconds: How long to measure.
        orders: The number of items, of users and of orders.
        gateways: The number of gateway processes.
        seed: The seed of the sequence of orders.
        as_json: Whether to print one JSON object.

    Raises:
        Exit: An answer is wrong, or money or stock is missing; the exit code is 1.
    """
    console = Console(stderr=True)
    DIRECTORY.mkdir(exist_ok=True)  # not /tmp, which may be memory, where durable means nothing
    with tempfile.TemporaryDirectory(prefix="bench-", dir=DIRECTORY) as folder:
        data = Path(folder)
        with console.status("starting Spark and gateways …") as status:
            with running(data, gateways) as port:
                status.update("filling the shop …")
                fill(data, orders, seed)
                keep_present_objects()  # the clients share the processor cores with the server
                status.update("warming up …")
                first, second, third, fourth = numbers_of(orders, seed)
                warm = checkouts(port, connections, first, seconds=5.0)
                status.update("checking out …")
                measured, gateway_us = costed(
                    data, lambda: checkouts(port, connections, second, seconds)
                )
                pipelined, pipelined_us = costed(
                    data, lambda: pipelined_checkouts(port, connections, third, seconds / 4)
                )
                status.update("sending, and waiting for replies …")
                timed = sent_checkouts(port, connections, fourth, seconds / 4)
            status.update("asking the journal …")
            complaints = complaints_of(
                data, [*warm, *measured, *pipelined], sum(map(is_checkout, timed))
            )
            status.update("measuring an empty route …")
            empty_us, empty_per_s = empty_route(connections)
    figures = HttpFigures(
        measured,
        timed,
        pipelined,
        pipelined_us,
        span_s(measured),
        gateway_us,
        empty_us,
        empty_per_s,
        complaints,
    )
    plain = figures.as_json()
    if as_json:
        print_json(plain)
    else:
        _show(plain)
    if plain["errors"] or complaints:
        raise typer.Exit(1)


def numbers_of(orders: int, seed: int) -> list[list[int]]:
    """Return the numbers of all orders in a random order, in one list for each of the four loads."""
    numbers = np.random.default_rng(seed).permutation(orders)
    return [part.tolist() for part in np.split(numbers, [round(orders * end) for end in ENDS])]


def costed(data: Path, run: Callable[[], list[Answer]]) -> tuple[list[Answer], float]:
    """Return the answers of a run, and the processor time of the gateways for each, in microseconds."""
    before_s = cpu_seconds(data)
    answers = run()
    return answers, (cpu_seconds(data) - before_s) / len(answers) * 1e6


def span_s(answers: list[Answer]) -> float:
    """Return the seconds from the first request to the last answer."""
    last_s = max(answer.sent_s + answer.took_s for answer in answers)
    return last_s - min(answer.sent_s for answer in answers)


@contextmanager
def running(data: Path, gateways: int = 1, *assignments: str, app: str = EXAMPLE) -> Iterator[int]:
    """Run an application as `penstock run` does, and give the port.

    Args:
        data: The data directory.
        gateways: The number of gateways.
        assignments: Further settings, as `--set` takes them.
        app: The application.

    Raises:
        OperationalError: It did not start in time, or ended; the message has its last output.
    """
    port = free_port(HOST)
    command = [sys.executable, "-P", "-m", "penstock", "run", app, "--port", str(port)]
    command += ["--data", str(data), "--gateways", str(gateways)]
    command += [word for assignment in assignments for word in ("--set", assignment)]
    words = data / "run.log"
    data.mkdir(parents=True, exist_ok=True)
    with words.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _await_ready(data, gateways, process, words)
            await_archive(process.pid)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _await_ready(data: Path, gateways: int, process: subprocess.Popen[bytes], words: Path) -> None:
    wanted = {"driver": 1, "gateway": gateways}
    deadline = time.monotonic() + START_S
    while any(len(presence.find(data, role)) < count for role, count in wanted.items()):
        if process.poll() is not None or time.monotonic() > deadline:
            last = words.read_text(errors="replace")[-2_000:]
            raise OperationalError(f"the application did not start:\n{last}")
        time.sleep(0.05)


def await_archive(pid: int) -> None:
    """Wait while a process of a family makes Java's class archive: a second Java would share the processor for a minute.

    Raises:
        OperationalError: It takes too long.
    """
    deadline = time.monotonic() + FILL_S
    while any(map(_makes_archive, psutil.Process(pid).children(recursive=True))):
        if time.monotonic() > deadline:
            raise OperationalError("the class archive of Java is not made")
        time.sleep(0.2)


def _makes_archive(process: psutil.Process) -> bool:
    try:
        return RECORDING in process.cmdline()
    except psutil.Error:  # it has ended
        return False


def fill(data: Path, count: int, seed: int) -> None:
    """Import items, users and orders, with the same number of each; an order names a user and two items.

    Raises:
        OperationalError: A class was not imported.
    """
    # Not by the shop's own bulk routes: a transaction that creates 300,000 orders is longer on a slow machine than any limit.
    draw = np.random.default_rng(seed).integers
    users, baskets = draw(count, size=count), draw(count, size=(count, 2))
    rows: dict[str, Iterator[dict[str, Any]]] = {
        "Item": ({"item_id": str(one), "price": 1, "stock": AMOUNT} for one in range(count)),
        "User": ({"user_id": str(one), "credit": AMOUNT} for one in range(count)),
        "Order": (
            {
                "order_id": str(one),
                "user_id": str(user),
                "items": [[str(item), 1] for item in basket],
                "total_cost": 2,
            }
            for one, (user, basket) in enumerate(zip(users, baskets, strict=True))
        ),
    }
    for entity, of_class in rows.items():
        source = data / f"{entity}.jsonl"
        with source.open("wb") as lines:
            lines.writelines(_encode_line(row) + b"\n" for row in of_class)
        command = [sys.executable, "-P", "-m", "penstock", "import", entity, str(source), EXAMPLE]
        command += ["--data", str(data), "--timeout", str(FILL_S)]
        done = subprocess.run(command, capture_output=True, check=False)
        source.unlink()
        if done.returncode:
            raise OperationalError(f"{entity}: not imported:\n{done.stderr[-2_000:].decode()}")
    _await_view(data)


def _await_view(data: Path) -> None:
    """Wait until the SQL view has what was imported: until then it works, and would slow down the first seconds.

    Raises:
        OperationalError: It takes too long.
    """
    journal = DataDirectory(data).open_journal_of(load_app(EXAMPLE).name)
    last = journal.last()
    journal.close()
    assert last is not None, "the import has committed epochs"
    deadline = time.monotonic() + FILL_S
    while (shown := view_epoch(data)) is None or shown < last.epoch:
        if time.monotonic() > deadline:
            raise OperationalError(f"the SQL view shows {shown}, and the journal {last.epoch}")
        time.sleep(0.1)


def checkouts(
    port: int, connections: int, numbers: list[int], seconds: float = float("inf")
) -> list[Answer]:
    """Check out orders of these numbers, until they or the seconds are used up."""
    requests = (Request("POST", f"/orders/checkout/{number}") for number in numbers)
    return Load(HOST, port, connections).run(requests, seconds)


def sent_checkouts(port: int, connections: int, numbers: list[int], seconds: float) -> list[Timed]:
    """Check out orders of these numbers by `/send`, and wait for each reply.

    Args:
        port: The port of the gateway.
        connections: The number of clients.
        numbers: The numbers of orders that are not paid.
        seconds: How long clients begin checkouts.
    """
    requests = (
        Request("POST", f"/send/Order/{number}/checkout", b"[]", f"sent-{number}")
        for number in numbers
    )
    return uvloop.run(send_all(Load(HOST, port, connections), requests, seconds))


def is_checkout(timed: Timed) -> bool:
    """Say whether the reply is the success of a checkout."""
    return not timed.error and timed.value == DONE


def cpu_seconds(data: Path) -> float:
    """Return the processor time that the gateways have used so far."""
    times = [psutil.Process(found.pid).cpu_times() for found in presence.find(data, "gateway")]
    return float(sum(time_.user + time_.system for time_ in times))


def complaints_of(data: Path, answers: list[Answer], more: int = 0) -> list[str]:
    """Compare the answers with the state that follows from the journal's changes.

    Args:
        data: The data directory.
        answers: The answers.
        more: The number of further successes.
    """
    app = load_app(EXAMPLE)
    state: dict[tuple[str, str], dict[str, Any]] = {}
    journal = DataDirectory(data).open_journal_of(app.name)
    for commit in journal.commits(BEFORE_FIRST):
        for part in commit.parts_of(PartKind.CHANGES):
            rows = journal.read(part)
            for entity, key, encoded in zip(
                *(rows[name].to_pylist() for name in ("entity", "key", "state")), strict=True
            ):
                state[entity, key] = app.entities[entity].plain(key, encoded)
    journal.close()

    def total(entity: str, attribute: str) -> int:
        return sum(values[attribute] for (name, _), values in state.items() if name == entity)

    count = sum(entity == "Item" for entity, _ in state)
    successes = sum(map(succeeded, answers)) + more
    facts = {
        "orders are paid": total("Order", "paid"),
        "pairs of items are missing from stock": (count * AMOUNT - total("Item", "stock")) / 2,
        "orders' costs are missing from credit": (count * AMOUNT - total("User", "credit")) / 2,
    }
    return [
        f"{amount:g} {fact}, {successes} answers say so"
        for fact, amount in facts.items()
        if amount != successes
    ]


def empty_route(connections: int, seconds: float = 4.0) -> tuple[float, float]:
    """Return the processor time in microseconds of a request to an empty route, and requests a second."""
    port = free_port(HOST)
    command = [sys.executable, "-P", str(Path(__file__).with_name("empty_route.py")), str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            endless = iter(lambda: Request("POST", "/orders/checkout/1", request_id="x"), None)
            load = Load(HOST, port, connections)
            load.run(endless, 1.0)  # until it listens, and is warm
            times = psutil.Process(process.pid).cpu_times
            before = times()
            answers = load.run(endless, seconds)
            after = times()
        finally:
            process.kill()
    spent_s = after.user + after.system - before.user - before.system
    return spent_s / len(answers) * 1e6, len(answers) / seconds


def _show(plain: dict[str, Any]) -> None:
    table = Table(title="checkouts over HTTP", show_header=False)
    latencies = plain["latency_ms"]
    table.add_row("requests per second", f"{plain['requests_per_s']:,.0f}")
    for name, value in latencies.items():
        table.add_row(f"latency {name}, committed", f"{value:,.1f} ms")
    for what, name in (("accepted", "accepted_ms"), ("committed", "sent_committed_ms")):
        values = " / ".join("-" if one is None else f"{one:,.1f}" for one in plain[name].values())
        table.add_row(f"by /send: {what} p50 / p90 / p99", f"{values} ms")
    table.add_row("pipelined, requests per second", f"{plain['pipelined_per_s']:,.0f}")
    table.add_row(
        "pipelined, gateway", f"{plain['pipelined_gateway_us_per_request']:.0f} µs per request"
    )
    table.add_row("errors", str(plain["errors"]))
    table.add_row("money and stock", "conserved" if plain["conserved"] else "NOT conserved")
    table.add_row(
        "gateway, processor time", f"{plain['gateway_us_per_request']:.0f} µs per request"
    )
    table.add_row(
        "empty route, the same", f"{plain['empty_route_us_per_request']:.0f} µs per request"
    )
    console = Console()
    console.print(table)
    for complaint in (*plain["complaints"], *plain["error_examples"]):
        console.print(f"[red]{complaint}")
