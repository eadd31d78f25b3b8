"""Transfers between two accounts, as in SpacetimeDB's benchmark "keynote-2".

    python -m benchmarks.transfers [--seconds 10] [--alpha 0 1.5] [--clients 64] [--in-flight 40]

The scenario of that benchmark: 100,000 accounts, each transfer moves one unit between two accounts drawn by Zipf's
distribution with the exponent alpha, and a transfer counts when its client has seen the success. With alpha 0 all
accounts are equally likely; with 1.5 most transfers share a few accounts.

`sequential` clients have one transfer at a time, over HTTP: it is sent to `/send`, then its reply is awaited. `pipelined`
clients have `--in-flight` transfers at a time, over one pipelined connection each. So every transfer has both
latencies: accepted (durable in the log) and committed. A rate is the mean of the transfers in each second, with the
sample deviation of these seconds. The test that was published runs 300 seconds: `--seconds 300`. All clients are in the
process of this program, which shares the processor cores with the application.

Prints a table, and with `--json` one JSON object. The exit code is 1 if a transfer failed, or if the sum of all balances
or the balance of an account is wrong afterwards.
"""

import argparse
import asyncio
import itertools
import json
import math
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import uvloop

from benchmarks.harness import transfer
from benchmarks.harness.http import HOST, running
from benchmarks.harness.latencies import Timed, latencies_of, send_all
from benchmarks.harness.load import Load, Request
from benchmarks.harness.pipelined import call_all
from benchmarks.harness.workload import LOADED_AT_ONCE, Drawing
from benchmarks.machine import machine
from benchmarks.page import table
from penstock import AsyncClient
from penstock.errors import OperationalError
from penstock.model.call import Call

ACCOUNTS: Final = 100_000
WARM_UP_S: Final = 3.0
DRAWN_AT_ONCE: Final = 10_000
LOADERS: Final = 8
SQL_TIMEOUT_S: Final = 120.0
_OK: Final = 200


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement: the skew, and how many transfers each client has in flight."""

    alpha: float
    clients: int
    in_flight: int

    @property
    def name(self) -> str:
        """The word for its clients."""
        return "sequential" if self.in_flight == 1 else "pipelined"


class Transfers:
    """Draws transfers, and adds up those that succeeded.

    Attributes:
        moved: The amount that each account should have received in all, by number.
    """

    def __init__(self, accounts: int, alpha: float, seed: int) -> None:
        self._count = accounts
        self._draw = Drawing(np.random.default_rng(seed), accounts, alpha)
        self._pairs: dict[str, tuple[int, int]] = {}

    def requests(self, prefix: str) -> Iterator[Request]:
        """Yield transfers of one unit without end, as requests over HTTP."""
        for name, source, target in self._drawn(prefix):
            path = f"/send/Account/{source}/transfer"
            yield Request("POST", path, b'["%d",1]' % target, name)

    def calls(self, prefix: str, client: AsyncClient) -> Iterator[Call[int]]:
        """Yield the same transfers as calls of a client."""
        account: Any = transfer.app.entities["Account"].cls
        for name, source, target in self._drawn(prefix):
            to = account(str(target))
            yield client.prepare.Account(str(source)).transfer(to, 1, request_id=name)

    def _drawn(self, prefix: str) -> Iterator[tuple[str, int, int]]:
        """Yield name, source and target of transfers without end; two accounts of a transfer differ."""
        sources: list[int] = []
        targets: list[int] = []
        for number in itertools.count():
            if number % DRAWN_AT_ONCE == 0:
                sources = self._draw(DRAWN_AT_ONCE).tolist()
                targets = self._draw(DRAWN_AT_ONCE).tolist()
            at = number % DRAWN_AT_ONCE
            source, target = sources[at], targets[at]
            if source == target:
                target = (target + 1) % self._count
            name = f"{prefix}-{number}"
            self._pairs[name] = (source, target)
            yield name, source, target

    def moved(self) -> Counter[int]:
        """Return the amount that all requests so far have added to each account."""
        found: Counter[int] = Counter()
        for source, target in self._pairs.values():
            found[source] -= 1
            found[target] += 1
        return found


def main() -> None:
    """Measure, and print."""
    chosen = options(sys.argv[1:])
    about = machine(chosen.directory)
    cases = [
        Case(alpha, chosen.clients, in_flight)
        for alpha in chosen.alpha
        for in_flight in (1, chosen.in_flight)
    ]
    rows = [run(case, chosen) for case in cases]
    found = {"machine": about, "accounts": chosen.accounts, "seed": chosen.seed, "rows": rows}
    print(report(found))
    if chosen.json:
        print(json.dumps(found))
    sys.exit(any(row["failures"] or row["complaints"] for row in rows))


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.transfers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="measured, for each row")
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.0, 1.5])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--in-flight", type=int, default=40, help="of a pipelined client")
    parser.add_argument("--accounts", type=int, default=ACCOUNTS)
    parser.add_argument("--gateways", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    return parser.parse_args(arguments)


def run(case: Case, chosen: argparse.Namespace) -> dict[str, Any]:
    """Start the application in an empty directory, run one case, and return its row."""
    print(f"{case.name} clients, alpha {case.alpha:g} …", file=sys.stderr, flush=True)
    app = f"{transfer.__file__}:app"
    with (
        tempfile.TemporaryDirectory(dir=chosen.directory, prefix="penstock-transfers-") as folder,
        running(Path(folder) / "data", chosen.gateways, app=app) as port,
    ):
        return measure(port, case, chosen)


def measure(port: int, case: Case, chosen: argparse.Namespace) -> dict[str, Any]:
    """Run one case on an application without accounts, and return its row."""
    load_accounts(port, chosen.accounts)
    transfers = Transfers(chosen.accounts, case.alpha, chosen.seed)
    began_s, timed = uvloop.run(send(port, case, transfers, chosen.seconds))
    return {
        **figures_of(case, timed, began_s, chosen.seconds),
        "complaints": complaints_of(port, chosen.accounts, transfers),
    }


async def send(
    port: int, case: Case, transfers: Transfers, seconds: float
) -> tuple[float, list[Timed]]:
    """Send the transfers of a case, after a warm-up.

    Args:
        port: The port of the gateway.
        case: The case.
        transfers: Draws the transfers.
        seconds: How long transfers begin after the warm-up; those under way are completed.

    Returns:
        The time at which the measurement began, on the clock of `time.perf_counter`, and all measured transfers.
    """
    if case.in_flight == 1:
        load = Load(HOST, port, case.clients)
        await send_all(load, transfers.requests("warm"), WARM_UP_S)
        began_s = time.perf_counter()
        return began_s, await send_all(load, transfers.requests("transfer"), seconds)
    async with (
        AsyncClient(f"http://{HOST}:{port}", transfer.app) as client,
        AsyncExitStack() as stack,
    ):
        pipelines = [
            await stack.enter_async_context(
                client.pipeline(unanswered=case.in_flight, accepted=True)
            )
            for _ in range(case.clients)
        ]

        async def all_of(prefix: str, for_s: float) -> list[Timed]:
            calls = transfers.calls(prefix, client)  # shared by all clients
            each = (call_all(one, calls, case.in_flight, for_s) for one in pipelines)
            return [timed for some in await asyncio.gather(*each) for timed in some]

        await all_of("warm", WARM_UP_S)
        began_s = time.perf_counter()
        return began_s, await all_of("transfer", seconds)


def load_accounts(port: int, count: int) -> None:
    """Create the accounts.

    Raises:
        OperationalError: A request was refused.
    """
    requests = (
        Request(
            "POST",
            "/call/load_accounts",
            b"[%d,%d]" % (first, min(LOADED_AT_ONCE, count - first)),
            f"load-{first}",
        )
        for first in range(0, count, LOADED_AT_ONCE)
    )
    for answer in Load(HOST, port, LOADERS).run(requests):
        if answer.status != _OK:
            raise OperationalError(f"{answer.request.path}: {answer.status} {answer.body[:500]!r}")


def figures_of(
    case: Case, timed: Sequence[Timed], began_s: float, seconds: float
) -> dict[str, Any]:
    """Return the figures of a case.

    Args:
        case: The case.
        timed: All measured transfers.
        began_s: When the measured time began.
        seconds: Its length; whole seconds count.
    """
    right = [one for one in timed if not one.error]
    whole = max(1, math.floor(seconds))
    ends = Counter(int(one.sent_s + one.committed_s - began_s) for one in right)
    by_second = [ends[second] for second in range(whole)]
    return {
        "clients": case.clients,
        "in_flight": case.in_flight,
        "kind": case.name,
        "alpha": case.alpha,
        "transfers_per_s": round(statistics.fmean(by_second), 1),
        "deviation_per_s": round(statistics.stdev(by_second), 1) if whole > 1 else 0.0,
        "transfers": len(right),
        "failures": len(timed) - len(right),
        "failure_examples": sorted({one.error for one in timed if one.error})[:3],
        **latencies_of(right),
        "by_second": by_second,
    }


def complaints_of(port: int, accounts: int, transfers: Transfers) -> list[str]:
    """Compare all balances with the transfers that were sent; each of them has been answered."""
    query = {"query": "SELECT number, balance FROM Account WHERE balance <> ?"}
    body = {**query, "parameters": [transfer.BALANCE]}
    total = {"query": "SELECT count(*), sum(balance) FROM Account"}
    with httpx.Client(base_url=f"http://{HOST}:{port}", timeout=SQL_TIMEOUT_S) as client:
        changed, sums = (_rows(client, one) for one in (body, total))
    found = {int(number): balance - transfer.BALANCE for number, balance in changed}
    expected = {number: amount for number, amount in transfers.moved().items() if amount}
    complaints = []
    if found != expected:
        wrong = {number for number, _ in found.items() ^ expected.items()}
        complaints.append(f"{len(wrong)} accounts have a wrong balance")
    if sums != [[accounts, accounts * transfer.BALANCE]]:
        complaints.append(f"{accounts} accounts have {sums[0]} in all")
    return complaints


def _rows(client: httpx.Client, query: Mapping[str, Any]) -> list[list[Any]]:
    response = client.post("/sql", json=query)
    if response.status_code != _OK:
        raise OperationalError(f"SQL: {response.status_code} {response.text[:500]}")
    rows: list[list[Any]] = response.json()["rows"]
    return rows


def report(found: Mapping[str, Any]) -> str:
    """Return the figures as text for people."""
    latencies = [
        f"{which} {name} ms:" for which in ("accepted", "committed") for name in ("p50", "p99")
    ]
    head = ("clients", "clients:", "in flight each:", "alpha:", "transfers/s:", "±:", *latencies)
    rows = [
        (
            row["kind"],
            str(row["clients"]),
            str(row["in_flight"]),
            f"{row['alpha']:g}",
            f"{row['transfers_per_s']:,.0f}",
            f"{row['deviation_per_s']:,.0f}",
            *(
                "-" if row[which][name] is None else f"{row[which][name]:,.1f}"
                for which in ("accepted_ms", "committed_ms")
                for name in ("p50", "p99")
            ),
        )
        for row in found["rows"]
    ]
    problems = [
        problem
        for row in found["rows"]
        for problem in (*row["complaints"], *row["failure_examples"])
    ]
    lines = [f"Transfers between two of {found['accounts']:,} accounts.", "", table(head, rows)]
    return "\n".join([*lines, *problems])


if __name__ == "__main__":
    main()
