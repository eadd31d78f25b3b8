"""Measure TPC-C on PostgreSQL: the same company, terminals and conditions as those of `benchmarks.tpcc`.

    python -m benchmarks.tpcc_postgres [--seconds 10] [--terminals 60] [--ways function,statements,dbos,pgbench]

The company is that of `examples/tpcc`: its population runs in the serial runtime, and its entities become rows of the tables
of tpcc.sql. Two kinds of load:

over HTTP
    Terminals with one request under way each, sent by Penstock's own load generator to a service in Python
    (`tpcc_service.py`), with the rules in Python, in functions, or in functions in durable workflows of DBOS Transact.
pgbench
    The functions called by PostgreSQL's own load generator, in C and without HTTP, with 8 clients.

`synchronous_commit` and `fsync` are on. Each run follows a `CHECKPOINT` and three seconds of warm-up. Afterwards the
rows become tables of DuckDB, in which the very queries of `examples/tpcc/consistency.py` count violations. Prints one JSON
object as its last line; the exit code is 1 when a condition is violated, or a transaction failed that should not.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import psutil
import psycopg

from benchmarks.cluster import Cluster, running_cluster
from benchmarks.harness.http import HOST
from benchmarks.harness.latencies import percentiles_ms
from benchmarks.harness.ports import free_port
from benchmarks.tpcc_company import Company, rates_of
from examples import tpcc
from examples.tpcc.consistency import VIOLATIONS
from examples.tpcc.nurand import Scale, constants
from examples.tpcc.population import population
from penstock.testing import Kit

SCHEMA: Final = Path(__file__).with_name("tpcc.sql")
WARM_UP_S: Final = 3.0
POOL: Final = 8
"""Connections of the service, and with DBOS as many again for its own tables; also the clients of pgbench."""

WAYS: Final = ("function", "statements", "dbos", "pgbench")
"""Over HTTP, and PostgreSQL's load generator."""


def rows_of(kit: Kit) -> Iterator[tuple[str, Iterable[tuple[Any, ...]]]]:
    """Yield the tables with their rows, made from the entities."""
    for table, entity in (("warehouse", "Warehouse"), ("item", "Item")):
        yield table, ((*each.values(),) for each in kit.entities(entity).values())
    for table, entity in (("district", "District"), ("customer", "Customer"), ("stock", "Stock")):
        yield table, ((*key, *[*each.values()][1:]) for key, each in kit.entities(entity).items())
    paid = kit.entities("History").values()
    yield (
        "history",
        ((*each["h_c_id"], *each["h_district_id"], *[*each.values()][3:]) for each in paid),
    )
    orders = kit.entities("Order")
    names = ("o_c_id", "o_entry_d", "o_ol_cnt", "o_all_local", "o_carrier_id")
    yield "orders", ((*key, *(each[name] for name in names)) for key, each in orders.items())
    yield "new_order", ((*key,) for key in kit.entities("NewOrder"))
    yield (
        "order_line",
        (
            (*key, number, *vars(line).values())
            for key, each in orders.items()
            for number, line in enumerate(each["lines"], 1)
        ),
    )


def load(address: str, warehouses: int, scale: Scale, seed: int) -> Kit:
    """Create the tables and fill them; return the company in the serial runtime."""
    kit = Kit(tpcc.app)
    for work in population(warehouses, scale, seed):
        kit.call(work.function, *work.arguments)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(SCHEMA.read_bytes())
        with connection.cursor() as cursor:
            for table, rows in rows_of(kit):
                with cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
                    for row in rows:
                        copy.write_row(row)
        connection.execute("VACUUM ANALYZE")
    return kit


SHAPES: Final = {
    "Warehouse": "SELECT w_id, w_ytd FROM t.warehouse",
    "District": """SELECT struct_pack(w_id := d_w_id, d_id := d_id) AS district_id, d_ytd, d_next_o_id
        FROM t.district""",
    "Customer": """SELECT struct_pack(w_id := c_w_id, d_id := c_d_id, c_id := c_id) AS customer_id, c_balance,
        c_ytd_payment, c_delivery_cnt FROM t.customer""",
    "History": """SELECT struct_pack(w_id := h_c_w_id, d_id := h_c_d_id, c_id := h_c_id) AS h_c_id,
        struct_pack(w_id := h_w_id, d_id := h_d_id) AS h_district_id, h_amount FROM t.history""",
    '"Order"': """SELECT struct_pack(w_id := o_w_id, d_id := o_d_id, o_id := o_id) AS order_id, o_c_id, o_entry_d,
        o_ol_cnt, o_carrier_id, lines FROM t.orders LEFT JOIN (
            SELECT ol_w_id AS o_w_id, ol_d_id AS o_d_id, ol_o_id AS o_id,
            list(struct_pack(ol_amount := ol_amount, ol_delivery_d := ol_delivery_d)) AS lines
            FROM t.order_line GROUP BY ALL) USING (o_w_id, o_d_id, o_id)""",
    "NewOrder": """SELECT struct_pack(w_id := no_w_id, d_id := no_d_id, o_id := no_o_id) AS order_id
        FROM t.new_order""",
}
"""The tables of the conditions, made from those of PostgreSQL."""

COLUMNS: Final = {
    "warehouse": "w_id int, w_ytd decimal(18,4)",
    "district": "d_w_id int, d_id int, d_ytd decimal(18,4), d_next_o_id int",
    "customer": "c_w_id int, c_d_id int, c_id int, c_balance decimal(18,4), c_ytd_payment decimal(18,4),"
    " c_delivery_cnt int",
    "history": "h_c_w_id int, h_c_d_id int, h_c_id int, h_w_id int, h_d_id int, h_amount decimal(18,4)",
    "orders": "o_w_id int, o_d_id int, o_id int, o_c_id int, o_entry_d text, o_ol_cnt int, o_carrier_id int",
    "order_line": "ol_w_id int, ol_d_id int, ol_o_id int, ol_amount decimal(18,4), ol_delivery_d text",
    "new_order": "no_w_id int, no_d_id int, no_o_id int",
}
"""The columns that the conditions use, with their types in DuckDB."""


def violations(address: str) -> dict[int, int]:
    """Return how many places violate each condition, by its number; conditions that hold are left out."""
    with (
        tempfile.TemporaryDirectory() as folder,
        psycopg.connect(address) as connection,
        connection.cursor() as cursor,
        duckdb.connect() as ours,
    ):
        ours.execute("CREATE SCHEMA t")
        for table, columns in COLUMNS.items():
            names = ", ".join(column.split()[0] for column in columns.split(", "))
            path = Path(folder, f"{table}.csv")
            with (
                path.open("wb") as file,
                cursor.copy(
                    f"COPY (SELECT {names} FROM {table}) TO STDOUT (FORMAT csv)".encode()
                ) as copy,
            ):
                file.writelines(copy)
            ours.execute(f"CREATE TABLE t.{table} ({columns})")
            ours.execute(f"COPY t.{table} FROM '{path}' (FORMAT csv, HEADER false)")
        for name, query in SHAPES.items():
            ours.execute(f"CREATE TABLE {name} AS {query}")
        return {number: count for number, count in ours.execute(VIOLATIONS).fetchall() if count}


@contextmanager
def running_service(cluster: Cluster, way: str) -> Iterator[tuple[int, psutil.Process]]:
    """Give the port and the process of the company over HTTP."""
    port = free_port(HOST)
    command = [sys.executable, "-m", "benchmarks.tpcc_service", str(port), cluster.address]
    with subprocess.Popen([*command, way, str(POOL)]) as process:
        try:
            yield port, psutil.Process(process.pid)
        finally:
            process.kill()


def over_http(
    cluster: Cluster, way: str, chosen: argparse.Namespace, scale: Scale
) -> dict[str, Any]:
    """Let terminals work."""
    with running_service(cluster, way) as (port, service):
        company = Company(port, chosen.warehouses, scale, chosen.seed, place="call")
        company.run(chosen.terminals, WARM_UP_S, waits=False)
        company.done.clear()
        before = service.cpu_times()
        company.run(chosen.terminals, chosen.seconds, waits=False)
        after = service.cpu_times()
    spent_s = after.user + after.system - before.user - before.system
    return {
        "id": f"http {way}",
        "kind": "http",
        "way": way,
        "clients": chosen.terminals,
        "service_ms": round(spent_s / max(1, len(company.done)) * 1e3, 3),
        **rates_of(company.done, chosen.seconds),
    }


SCRIPTS: Final = {
    "new-order": (
        45,
        "\\set c 1 + ((random(0, 1023) | random(1, :customers)) + :c_customer) % :customers\n"
        + "".join(
            f"\\set i{n} 1 + ((random(0, 8191) | random(1, :items)) + :c_item) % :items\n"
            f"\\set q{n} random(1, 10)\n"
            for n in range(15)
        )
        + "\\set n random(5, 15)\n\\set wrong random(0, 99)\n\\if :wrong = 0\n\\set i4 :items + 1\n\\endif\n"
        "SELECT enter_order(:w, :d, :c, (ARRAY["
        + ", ".join(f":i{n}" for n in range(15))
        + "]::integer[])[1:(:n)::integer], array_fill(:w::integer, ARRAY[:n::integer]), (ARRAY["
        + ", ".join(f":q{n}" for n in range(15))
        + "]::integer[])[1:(:n)::integer]);\n",
    ),
    "payment": (
        43,
        "\\set c 1 + ((random(0, 1023) | random(1, :customers)) + :c_customer) % :customers\n"
        "\\set cents random(100, 500000)\n"
        "\\set name random(0, 99)\n\\if :name < 60\n"
        "SELECT pay(:w, :d, :w, :d, middle_of(:w, :d, (SELECT c_last FROM customer"
        " WHERE c_w_id = :w AND c_d_id = :d AND c_id = :c)), :cents::numeric / 100);\n\\else\n"
        "SELECT pay(:w, :d, :w, :d, :c, :cents::numeric / 100);\n\\endif\n",
    ),
    "order-status": (
        4,
        "\\set c 1 + ((random(0, 1023) | random(1, :customers)) + :c_customer) % :customers\n"
        "SELECT show_status(:w, :d, :c);\n",
    ),
    "delivery": (4, "\\set carrier random(1, 10)\nSELECT deliver(:w, :carrier);\n"),
    "stock-level": (4, "\\set low random(10, 20)\nSELECT count_low_stock(:w, :d, :low);\n"),
}
"""The transactions as scripts of pgbench, each with its weight. A name is that of a customer, so its frequency is right."""


def by_pgbench(cluster: Cluster, chosen: argparse.Namespace, scale: Scale) -> dict[str, Any]:
    """Run PostgreSQL's load generator, which ends with an error where a statement fails."""
    place = f"\\set w random(1, {chosen.warehouses})\n\\set d random(1, 10)\n"
    drawn = constants(chosen.seed)
    with tempfile.TemporaryDirectory(dir=cluster.socket) as name:
        command: list[str | Path] = [
            *(cluster.programs / "pgbench", "--no-vacuum", "--protocol=prepared", "--log"),
            *(f"--log-prefix={name}/log", f"--client={POOL}", "--jobs=1"),
            *(f"--define=items={scale.items}", f"--define=customers={scale.customers}"),
            *(f"--define=c_item={drawn.item}", f"--define=c_customer={drawn.customer}"),
            f"--time={WARM_UP_S + chosen.seconds:.0f}",
        ]
        for kind, (weight, script) in SCRIPTS.items():
            path = Path(name, kind)
            path.write_text(place + script)
            command.append(f"--file={path}@{weight}")
        command += ["--host", cluster.socket, "--username", "benchmark", "postgres"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        # A row: client, its count, latency in µs, script, and the end in seconds and µs of the day.
        rows = np.concatenate(
            [np.loadtxt(path, usecols=(2, 3, 4, 5)) for path in sorted(Path(name).glob("log.*"))]
        )
    ended = rows[:, 2] + rows[:, 3] / 1e6
    begins = (ended - rows[:, 0] / 1e6).min() + WARM_UP_S
    inside = (ended - rows[:, 0] / 1e6 >= begins) & (ended <= begins + chosen.seconds)
    kept = rows[inside]
    orders = kept[kept[:, 1] == 0]
    return {
        "id": "pgbench function",
        "kind": "pgbench",
        "way": "function",
        "clients": POOL,
        "transactions_per_s": round(len(kept) / chosen.seconds, 1),
        "new_orders_per_minute": round(0.99 * len(orders) / chosen.seconds * 60, 1),
        "latency_ms": percentiles_ms(kept[:, 0] / 1e6),
        "failures": 0,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--warehouses", type=int, default=1)
    parser.add_argument("--terminals", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--customers", type=int, default=300, help="of a district")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ways", default=",".join(WAYS), help="what to run")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    chosen = parser.parse_args()
    scale = Scale(chosen.items, chosen.customers)
    runs: list[dict[str, Any]] = []
    with running_cluster(chosen.directory) as cluster:
        load(cluster.address, chosen.warehouses, scale, chosen.seed)
        ways = [way for way in chosen.ways.split(",") if way]
        each: list[Callable[[], dict[str, Any]]] = [
            partial(by_pgbench, cluster, chosen, scale)
            if way == "pgbench"
            else partial(over_http, cluster, way, chosen, scale)
            for way in ways
        ]
        for run in each:
            with psycopg.connect(cluster.address, autocommit=True) as connection:
                connection.execute("CHECKPOINT")
            found = run()
            found["violations"] = violations(cluster.address)
            found["checked"] = not found["violations"] and not found["failures"]
            print(found, file=sys.stderr, flush=True)
            runs.append(found)
        version = cluster.version
    print(json.dumps({"version": version, "runs": runs}))
    sys.exit(not all(one["checked"] for one in runs))


if __name__ == "__main__":
    main()
