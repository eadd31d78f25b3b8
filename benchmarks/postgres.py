"""Measure the checkout of `penstock bench` on PostgreSQL: the same users, items, orders, baskets.

    python -m benchmarks.postgres [--seconds 10] [--clients 100,1000]

Every order is checked out again and again, as `Order.reorder` does. Three kinds of load:

bulk
    One client sends the numbers of many orders in one statement, which is one transaction: as a set
    (`checkout_all` of checkout.sql), and as one call of the function `checkout` for each. The next
    statement is sent when all replies of the last are decoded.
over HTTP
    Clients with one request under way each, sent by Penstock's own load generator to a service in
    Python (`shop_service.py`), with the rules in Python or in the function `checkout`, or with that function in a
    durable workflow of DBOS Transact.
pgbench
    The function called by PostgreSQL's own load generator, in C and without HTTP: the most that a
    transaction for each checkout can do here.

`synchronous_commit` and `fsync` are on. Each run follows a `CHECKPOINT` and three seconds of warm-up.
Afterwards SQL must find that stock, credit and the orders' own counters agree with each other, and
that the counters are the acknowledged commits. Prints one JSON object as its last line; the exit
code is 1 when something does not agree.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import numpy as np
import psutil
import psycopg

from benchmarks.cluster import Cluster, running_cluster
from benchmarks.harness import shop
from benchmarks.harness.answers import succeeded
from benchmarks.harness.http import HOST
from benchmarks.harness.load import Load, Request
from benchmarks.harness.options import Options
from benchmarks.harness.ports import free_port
from benchmarks.harness.workload import workload_of

Connection = psycopg.Connection[tuple[Any, ...]]

SCHEMA: Final = Path(__file__).with_name("checkout.sql")
WARM_UP_S: Final = 3.0
BULK: Final = {
    "set-based statement": (5_000, "SELECT checkout_all(%s)"),
    "one function call each": (
        1_000,
        "SELECT array_agg(checkout(one)) FROM unnest(%s::integer[]) AS one",
    ),
}
"""How many checkouts a statement has (the best of 100, 1,000, 5,000 and 10,000), and the statement."""

WAYS: Final = ("function", "statements", "dbos")
POOL: Final = 8
"""Connections of the service, and with DBOS as many again for its own tables; 4 and 16 gave less."""

PGBENCH_CLIENTS: Final = 16


@dataclass(frozen=True, slots=True)
class Result:
    """One run.

    Attributes:
        id: A name for the page: kind, way and clients.
        kind: `bulk`, `http` or `pgbench`; `way` says how the checkout was called.
        clients: How many wait for an answer; `in_flight` the checkouts that they wait for.
        committed: How many checkouts succeeded in all, with those of the warm-up.
        seconds: Measured.
        took_ms: How long each measured checkout took, from sending it to having decoded its reply.
        service_us: Processor time of the HTTP service for each request.
    """

    id: str
    kind: str
    way: str
    clients: int
    in_flight: int
    committed: int
    seconds: float
    took_ms: "np.ndarray[tuple[int], np.dtype[np.float64]]"
    service_us: float | None = None

    def as_json(self, *, checked: bool) -> dict[str, Any]:
        """Return the figures as they are printed."""
        found = asdict(self)
        del found["took_ms"], found["committed"]
        return {
            **found,
            "seconds": round(self.seconds, 2),
            "checkouts_per_s": round(len(self.took_ms) / self.seconds, 1),
            "latency_ms": {
                f"p{one}": round(float(np.percentile(self.took_ms, one)), 2) for one in (50, 99)
            },
            "checked": checked,
        }


def baskets_of(options: Options) -> Iterator[tuple[int, int, list[int]]]:
    """Yield number, user and items of every order, from the very requests that Penstock loads."""
    for body, _ in workload_of(options).loading:
        _, _, function, positional, _ = msgspec.msgpack.decode(body)
        if function == "load_orders":
            first, baskets = positional
            for number, (user, items) in enumerate(baskets, first):
                yield number, user, items


def price_of(item: int) -> int:
    """Return the price that `shop.load_items` sets for an item."""
    return 1 + item % shop.PRICES


def load(cluster: Cluster, options: Options) -> None:
    """Create the tables and fill them."""
    with psycopg.connect(cluster.address, autocommit=True) as connection:
        connection.execute(SCHEMA.read_bytes())
        rows: dict[str, Iterator[tuple[object, ...]]] = {
            "items": ((one, price_of(one), shop.STOCK) for one in range(options.items)),
            "users": ((one, shop.CREDIT) for one in range(options.users)),
            "orders (order_id, user_id, items, quantities, total_cost)": (
                (number, user, items, [1] * len(items), sum(map(price_of, items)))
                for number, user, items in baskets_of(options)
            ),
        }
        with connection.cursor() as cursor:
            for table, some in rows.items():
                with cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
                    for row in some:
                        copy.write_row(row)
        connection.execute("VACUUM ANALYZE")


def in_bulk(cluster: Cluster, way: str, options: Options) -> Result:
    """Send statements of many checkouts, one after the other."""
    size, statement = BULK[way]
    draw = np.random.default_rng(options.seed)
    batches = [draw.integers(0, options.orders, size).tolist() for _ in range(100)]
    committed, took_ms = 0, []
    with (
        psycopg.connect(cluster.address, autocommit=True, prepare_threshold=0) as connection,
        connection.cursor(binary=True) as cursor,
    ):
        warm_until = time.monotonic() + WARM_UP_S
        begins = now = 0.0
        for batch in cycle(batches):
            began = time.monotonic()
            row = cursor.execute(statement, (batch,)).fetchone()
            if row is None or row[0] != [True] * size:
                raise RuntimeError(f"{statement} refused some of {size} checkouts")
            now = time.monotonic()
            committed += size
            if began < warm_until:
                begins = now
                continue
            took_ms.append((now - began) * 1_000)
            if now >= begins + options.seconds:
                break
    return Result(
        f"bulk {way}", "bulk", way, 1, size, committed, now - begins, np.repeat(took_ms, size)
    )


@contextmanager
def running_service(cluster: Cluster, way: str) -> Iterator[tuple[int, psutil.Process]]:
    """Give the port and the process of the shop over HTTP."""
    port = free_port(HOST)
    command = [sys.executable, "-m", "benchmarks.shop_service", str(port), cluster.address]
    with subprocess.Popen([*command, way, str(POOL)]) as process:
        try:
            yield port, psutil.Process(process.pid)
        finally:
            process.kill()


def over_http(cluster: Cluster, way: str, clients: int, options: Options) -> Result:
    """Send one request for each checkout."""
    numbers = np.random.default_rng(options.seed).permutation(options.orders).tolist()
    requests = (Request("POST", f"/orders/checkout/{number}") for number in cycle(numbers))
    with running_service(cluster, way) as (port, service):
        generator = Load(HOST, port, clients)
        warm = generator.run(requests, WARM_UP_S)  # it tries until the service listens
        before = service.cpu_times()
        answers = generator.run(requests, options.seconds)
        after = service.cpu_times()
    good = [one for one in answers if succeeded(one)]
    ended = max(one.sent_s + one.took_s for one in answers)
    spent_s = after.user + after.system - before.user - before.system
    return Result(
        f"http {way} {clients}",
        "http",
        way,
        clients,
        clients,
        len(good) + sum(map(succeeded, warm)),
        ended - min(one.sent_s for one in answers),
        np.array([one.took_s for one in good]) * 1_000,
        round(spent_s / len(answers) * 1e6, 1),
    )


def by_pgbench(cluster: Cluster, options: Options) -> Result:
    """Run PostgreSQL's load generator, which stops where a reply is not true."""
    with TemporaryDirectory(dir=cluster.socket) as name:
        script = Path(name, "checkout.sql")
        script.write_text(
            f"\\set which random(0, {options.orders - 1})\n"
            "SELECT checkout(:which) AS done \\gset\n"
            "\\if :done\n\\else\nSELECT 1 / 0;\n\\endif\n"
        )
        command: list[str | Path] = [
            *(cluster.programs / "pgbench", "--no-vacuum", "--protocol=prepared", "--log"),
            *(f"--log-prefix={name}/log", f"--file={script}", f"--client={PGBENCH_CLIENTS}"),
            *(f"--time={WARM_UP_S + options.seconds:.0f}", "--jobs=1"),
            *("--host", cluster.socket, "--username", "benchmark", "postgres"),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        # A row: client, its count, latency in µs, script, and the end in seconds and µs of the day.
        rows = np.concatenate(
            [np.loadtxt(path, usecols=(2, 4, 5)) for path in sorted(Path(name).glob("log.*"))]
        )
    ended = rows[:, 1] + rows[:, 2] / 1e6
    began = ended - rows[:, 0] / 1e6
    begins = began.min() + WARM_UP_S
    inside = (began >= begins) & (ended <= begins + options.seconds)
    clients = PGBENCH_CLIENTS
    took_ms = rows[inside, 0] / 1_000
    name = "pgbench function"
    return Result(
        name, "pgbench", "function", clients, clients, len(rows), options.seconds, took_ms
    )


def agrees(connection: Connection, committed: int) -> bool:
    """Say whether stock, credit and orders tell of the same checkouts, as many as were committed."""
    row = connection.execute(
        """
        SELECT (SELECT sum(checkouts) FROM orders),
               (SELECT sum(checkouts * total_cost) FROM orders),
               (SELECT sum(%s - credit) FROM users),
               (SELECT sum(checkouts * cardinality(items)) FROM orders),
               (SELECT sum(%s - stock) FROM items),
               (SELECT count(*) FROM (
                   SELECT item_id, stock FROM items EXCEPT
                   SELECT item, %s - sum(checkouts * quantity)
                   FROM orders, unnest(items, quantities) AS line (item, quantity) GROUP BY item
               ) AS wrong WHERE stock <> %s)
        """,
        (shop.CREDIT, shop.STOCK, shop.STOCK, shop.STOCK),
    ).fetchone()
    assert row is not None
    checkouts, cost, spent, ordered, taken, wrong = row
    return (checkouts, cost, ordered, wrong) == (committed, spent, taken, 0)


def run(cluster: Cluster, options: Options, crowds: list[int]) -> Iterator[dict[str, Any]]:
    """Run everything, one after the other."""
    runs: list[Callable[[], Result]] = [
        *(lambda way=way: in_bulk(cluster, way, options) for way in BULK),
        *(
            lambda way=way, clients=clients: over_http(cluster, way, clients, options)
            for way in WAYS
            for clients in crowds
        ),
        lambda: by_pgbench(cluster, options),
    ]
    committed = 0
    with psycopg.connect(cluster.address, autocommit=True) as connection:
        for one in runs:
            connection.execute("CHECKPOINT")
            result = one()
            committed += result.committed
            yield result.as_json(checked=agrees(connection, committed))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", default="100,1000", metavar="N,…", help="over HTTP")
    parser.add_argument("--entities", type=int, default=100_000, help="of each of the three kinds")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    chosen = parser.parse_args()
    count = chosen.entities
    options = Options(seconds=chosen.seconds, users=count, items=count, orders=count)
    results = []
    with running_cluster(chosen.directory) as cluster:
        load(cluster, options)
        for result in run(cluster, options, [int(one) for one in chosen.clients.split(",")]):
            print(result, file=sys.stderr, flush=True)
            results.append(result)
        version = cluster.version
    print(json.dumps({"version": version, "runs": results}))
    sys.exit(not all(one["checked"] for one in results))


if __name__ == "__main__":
    main()
