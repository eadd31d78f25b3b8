"""Measure the checkout of `penstock bench` on PostgreSQL: the same users, items, orders, baskets.

    python -m benchmarks.postgres [--seconds 20] [--connections 8,16]

Three ways to call it, each closed-loop with one transaction at a time on each connection:

statements
    What a service does: `BEGIN`, three `SELECT … FOR UPDATE` (order; items in key order; user), the
    rules in Python, three `UPDATE`, `COMMIT`. A process for each connection, psycopg 3, prepared.
function
    The same as one PL/pgSQL function, one round trip, from the same Python processes.
function by pgbench
    The same function, called by PostgreSQL's own load generator, which is written in C and leaves
    the machine's cores to the server: the most that PostgreSQL can do here.

Row locks and unconditional `synchronous_commit`; orders are drawn uniformly. Each run follows a
`CHECKPOINT` and two seconds of warm-up. Afterwards SQL must find that stock, credit and the
orders' own counters agree with each other, and that the counters are the acknowledged commits.
Prints one JSON object as its last line; the exit code is 1 when something does not agree.
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import numpy as np
import psycopg
from numpy.typing import NDArray

from benchmarks.buyer import WAYS, Connection, client
from benchmarks.cluster import Cluster, running_cluster
from penstock.cli.bench import shop
from penstock.cli.bench.options import Options
from penstock.cli.bench.workload import workload_of

SCHEMA: Final = Path(__file__).with_name("checkout.sql")
WARM_UP_S: Final = 2.0
START_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Result:
    """One run.

    Attributes:
        way: How the checkout was called; see the module.
        connections: At once.
        checkouts_per_s: Commits acknowledged in the measured seconds.
        latency_ms: Of a checkout, from before `BEGIN` to after `COMMIT`: `p50` and `p99`.
        checked: Whether SQL found everything to agree.
    """

    way: str
    connections: int
    checkouts_per_s: float
    latency_ms: dict[str, float]
    checked: bool


def baskets_of(options: Options) -> Iterator[tuple[int, int, list[int]]]:
    """Yield number, user and items of every order, from the very requests that Penstock loads."""
    for body, _ in workload_of(options).loading:
        _, _, function, positional, _ = msgspec.msgpack.decode(body)
        if function == "load_orders":
            first, baskets = positional
            for number, (user, items) in enumerate(baskets, first):
                yield number, user, items


def price_of(item: int) -> int:
    """Return what `shop.load_items` asks for an item."""
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


def by_processes(
    cluster: Cluster, way: str, connections: int, options: Options
) -> tuple[int, NDArray[np.float64]]:
    """Run a process for each connection; return all commits, and the measured latencies."""
    context = multiprocessing.get_context("spawn")
    found, meeting = context.Queue(), context.Barrier(connections)
    seconds = (WARM_UP_S, options.seconds)
    clients = [
        context.Process(
            target=client,
            args=(cluster.address, way, options.orders, seed, seconds, meeting, found),
            daemon=True,
        )
        for seed in range(connections)
    ]
    for one in clients:
        one.start()
    answers = [found.get(timeout=sum(seconds) + START_S) for _ in clients]
    for one in clients:
        one.join()
    return sum(count for count, _ in answers), np.concatenate([some for _, some in answers])


def by_pgbench(
    cluster: Cluster, connections: int, options: Options
) -> tuple[int, NDArray[np.float64]]:
    """Run PostgreSQL's load generator; return all commits, and the measured latencies."""
    with TemporaryDirectory(dir=cluster.socket) as name:
        script = Path(name, "checkout.sql")
        script.write_text(
            f"\\set which random(0, {options.orders - 1})\nSELECT checkout(:which);\n"
        )
        command: list[str | Path] = [
            *(cluster.programs / "pgbench", "--no-vacuum", "--protocol=prepared", "--log"),
            *(f"--log-prefix={name}/log", f"--file={script}", f"--client={connections}"),
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
    return len(rows), rows[inside, 0] / 1_000


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


def run(cluster: Cluster, options: Options, connections: list[int]) -> Iterator[Result]:
    """Run every way with every number of connections."""
    committed = 0
    with psycopg.connect(cluster.address, autocommit=True) as connection:
        for way in (*WAYS, "function by pgbench"):
            for count in connections:
                connection.execute("CHECKPOINT")
                if way in WAYS:
                    commits, latencies = by_processes(cluster, way, count, options)
                else:
                    commits, latencies = by_pgbench(cluster, count, options)
                committed += commits
                yield Result(
                    way=way,
                    connections=count,
                    checkouts_per_s=round(len(latencies) / options.seconds, 1),
                    latency_ms={
                        f"p{one}": round(float(np.percentile(latencies, one)), 2)
                        for one in (50, 99)
                    },
                    checked=agrees(connection, committed),
                )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--connections", default="8,16", metavar="N,…")
    parser.add_argument("--entities", type=int, default=100_000, help="of each of the three kinds")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    chosen = parser.parse_args()
    count = chosen.entities
    options = Options(seconds=chosen.seconds, users=count, items=count, orders=count)
    results = []
    with running_cluster(chosen.directory) as cluster:
        load(cluster, options)
        for result in run(cluster, options, [int(one) for one in chosen.connections.split(",")]):
            print(result, file=sys.stderr, flush=True)
            results.append(result)
        version = cluster.version
    print(json.dumps({"version": version, "runs": [asdict(one) for one in results]}))
    sys.exit(not all(one.checked for one in results))


if __name__ == "__main__":
    main()
