"""Measure Penstock and its peers, one after the other, in one run on one disk.

    python -m benchmarks.peers checkouts [--seconds 10] [--update-docs]
    python -m benchmarks.peers keys [--seconds 10] [--update-docs]
    python -m benchmarks.peers tpcc [--seconds 10] [--update-docs]

`checkouts`: the shop's checkout in bulk and over HTTP, on Penstock (`penstock bench checkout`,
`penstock bench http`), on PostgreSQL and on DBOS Transact (`benchmarks.postgres`); five minutes. `keys`: updates of
one or two keys, `penstock bench transfer` and Spark's own `transformWithState`
(`benchmarks.transform_with_state`); two minutes. `tpcc`: the transactions of TPC-C from the same terminals, with the same
checks (`benchmarks.tpcc`, `benchmarks.tpcc_postgres`); six minutes. Every program runs by itself: nothing else of this
run is alive while it measures.

Prints a Markdown table, then one JSON object as the last line. `--update-docs` writes the JSON, the
plot and the page of docs, and wants a machine that does nothing else. The exit code is 1 when any
system's own check of its results failed.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks import page, plot
from benchmarks.machine import figures_of, machine, module, require_idle

CROWDS: Final = (100, 1_000)
KEYS_OF_TRANSFER: Final = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table.

    Attributes:
        id: Its name in the JSON, for prose that quotes it.
        what: The operation, and how clients ask for it.
        system: The system that answers.
        clients: How many ask; `in_flight` how many operations they wait for at most.
        per_s: Operations a second.
        latency_ms: `p50` and `p99` until an operation is committed; empty if it has no reply of its own.
        accepted_ms: The same until it is durable; empty for a system that has nothing durable before the commit.
        durable: The data that are on disk and synced when an operation counts.
        checked: Whether the system's own check of its results held.
        figures: All that its program printed.
    """

    id: str
    what: str
    system: str
    clients: int
    in_flight: int
    per_s: float
    latency_ms: dict[str, float]
    accepted_ms: dict[str, float]
    durable: str
    checked: bool
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Setup:
    """How everything is measured: so many seconds and entities, in one directory."""

    seconds: float
    entities: int
    directory: Path

    def penstock(self, *arguments: str) -> dict[str, Any]:
        """Run `penstock bench`, whose data lie below the directory in which it runs."""
        shared = ("--seconds", str(self.seconds), "--json")
        command = [sys.executable, "-m", "penstock", "bench", *arguments, *shared]
        print("running", *command, file=sys.stderr, flush=True)
        return figures_of(command, self.directory / "messages.txt", self.directory)

    def module(self, name: str, *arguments: str) -> dict[str, Any]:
        """Run a program that lies beside this one."""
        shared = ("--seconds", str(self.seconds), "--directory", self.directory)
        command = module(name, *shared, *arguments)
        print("running", *command, file=sys.stderr, flush=True)
        return figures_of(command, self.directory / "messages.txt")

    def bulk(self, kind: str, what: str, *flags: str) -> Row:
        """Append requests of `penstock bench` as fast as they are answered."""
        found = self.penstock(kind, "--max", *flags)
        return Row(
            id=f"penstock-{kind}",
            what=what,
            system="Penstock",
            clients=1,
            in_flight=found["in_flight"],
            per_s=found[f"{kind}s_per_s"],
            latency_ms=found["latency_ms"],
            accepted_ms=found["accepted_ms"],
            durable="request, change, reply",
            checked=found["conserved"],
            figures=found,
        )


IN_BULK: Final = "bulk append of pre-encoded requests (`Order.reorder`)"
OVER_HTTP: Final = "over HTTP, one request each"
POSTGRES: Final = {
    "bulk": "bulk, {in_flight:,} checkouts a statement",
    "http": OVER_HTTP,
    "pgbench": "one call each, without HTTP (`pgbench`)",
}

SYSTEMS: Final = {"dbos": "DBOS Transact on PostgreSQL"}
"""The systems that are not PostgreSQL alone, by the way of the checkout."""


def over_http(setup: Setup, clients: int) -> Row:
    """Check out over HTTP through a gateway."""
    orders = ("--orders", str(setup.entities))
    found = setup.penstock("http", "--connections", str(clients), *orders)
    return Row(
        id=f"penstock-http-{clients}",
        what=OVER_HTTP,
        system="Penstock",
        clients=clients,
        in_flight=clients,
        per_s=found["requests_per_s"],
        latency_ms=found["latency_ms"],
        accepted_ms=found["accepted_ms"],
        durable="request, change, reply",
        checked=found["conserved"] and not found["errors"],
        figures=found,
    )


def row_of(run: dict[str, Any], name: str, what: str, per_s: float) -> Row:
    """Return the row of a run of a system on PostgreSQL."""
    return Row(
        id=name,
        what=what,
        system=SYSTEMS.get(run["way"], f"PostgreSQL, {run['way']}"),
        clients=run["clients"],
        in_flight=run.get("in_flight", run["clients"]),
        per_s=per_s,
        latency_ms=run["latency_ms"],
        accepted_ms={},
        durable="request, change, reply" if run["way"] in SYSTEMS else "change",
        checked=run["checked"],
        figures=run,
    )


def postgres(setup: Setup) -> tuple[str, list[Row]]:
    """Run the checkout on PostgreSQL, every way; return its version and the rows."""
    crowds = ",".join(map(str, CROWDS))
    found = setup.module("postgres", "--clients", crowds, "--entities", str(setup.entities))
    rows = [
        row_of(
            one,
            f"postgres-{one['id'].replace(' ', '-')}",
            POSTGRES[one["kind"]].format_map(one),
            one["checkouts_per_s"],
        )
        for one in found["runs"]
    ]
    return found["version"].split()[2], rows


def checkouts(setup: Setup) -> dict[str, Any]:
    """Measure checkouts in bulk and over HTTP; return the content of checkouts.json."""
    entities = [f"--{name}={setup.entities}" for name in ("users", "items", "orders")]
    rows = [setup.bulk("checkout", IN_BULK, *entities)]
    rows += [over_http(setup, clients) for clients in CROWDS]
    server, theirs = postgres(setup)
    rows = sorted([*rows, *theirs], key=lambda row: (_group(row), row.clients))
    versions = {each: version(each) for each in ("psycopg", "dbos")}
    return {"versions": versions | {"postgresql": server}, "rows": rows}


def _group(row: Row) -> int:
    """Return the place of a kind of load in the table: bulk, HTTP, the rest."""
    return 0 if "bulk" in row.what else 1 if row.what == OVER_HTTP else 2


def keys(setup: Setup) -> dict[str, Any]:
    """Measure updates of one or two keys; return the content of keys.json."""
    users = f"--users={setup.entities}"
    transfer = setup.bulk("transfer", "bulk append of pre-encoded transfers, two keys each", users)
    found = setup.module("transform_with_state", "--keys", str(setup.entities))
    counter = Row(
        id="transform-with-state",
        what="records generated inside Spark, one counter each",
        system="Spark transformWithState",
        clients=0,
        in_flight=found["records"],
        per_s=found["records_per_s"],
        latency_ms={},
        accepted_ms={},
        durable="nothing is synced",
        checked=found["checked"],
        figures=found,
    )
    transfer.figures["keys_per_s"] = round(transfer.per_s * KEYS_OF_TRANSFER, 1)
    return {"versions": {}, "rows": [transfer, counter]}


TERMINALS: Final = (20, 60, 240, 480)
"""With few of them PostgreSQL is ahead; Penstock has the more transactions in an epoch the more ask."""

COMPANY: Final = ("--items", "10000", "--customers", "300")
"""A tenth of TPC-C's scale, so that every system is loaded in a minute."""


def tpcc(setup: Setup) -> dict[str, Any]:
    """Measure the transactions of TPC-C; return the content of tpcc.json."""
    rows = []
    ways, server = "function,statements,dbos,pgbench", ""
    for clients in TERMINALS:  # in turns, because machines have slow minutes
        company = (*COMPANY, "--terminals", str(clients))
        ours = setup.module("tpcc", *company, "--call", "--check", "0", "--json")
        rows.append(
            Row(
                id=f"penstock-http-{clients}",
                what=OVER_HTTP,
                system="Penstock",
                clients=clients,
                in_flight=clients,
                per_s=ours["transactions_per_s"],
                latency_ms=ours["latency_ms"],
                accepted_ms={},
                durable="request, change, reply",
                checked=not ours["violations"] and not ours["failures"],
                figures=ours,
            )
        )
        theirs = setup.module("tpcc_postgres", *company, "--ways", ways)
        ways = ways.removesuffix(",pgbench")  # it has no terminals
        server = theirs["version"].split()[2]
        rows += [
            row_of(
                one,
                f"postgres-{one['id'].replace(' ', '-')}-{one['clients']}",
                POSTGRES[one["kind"]],
                one["transactions_per_s"],
            )
            for one in theirs["runs"]
        ]
    rows.sort(key=lambda row: row.what != OVER_HTTP)  # pgbench has its row below the others
    versions = {each: version(each) for each in ("psycopg", "dbos", "duckdb")}
    return {"versions": versions | {"postgresql": server}, "rows": rows}


TABLES: Final[dict[str, Callable[[Setup], dict[str, Any]]]] = {
    "checkouts": checkouts,
    "keys": keys,
    "tpcc": tpcc,
}


def main() -> None:
    """Measure, print, and write the docs if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--seconds", type=float, default=10.0, help="measured, for each row")
    parser.add_argument("--entities", type=int, default=100_000, help="of each kind")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    parser.add_argument("--update-docs", action="store_true", help="write docs/")
    chosen = parser.parse_args()
    if chosen.update_docs:
        require_idle()
    with tempfile.TemporaryDirectory(dir=chosen.directory, prefix="penstock-peers-") as name:
        Path(name).chmod(0o755)  # PostgreSQL's own user passes through it
        about = machine(Path(name))
        found = TABLES[chosen.table](Setup(chosen.seconds, chosen.entities, Path(name)))
    versions = {one: version(one) for one in ("penstock", "pyspark")}
    figures = {
        "machine": about,
        "seconds": chosen.seconds,
        "versions": versions | found["versions"],
        "rows": [asdict(row) for row in found["rows"]],
    }
    if chosen.update_docs:
        page.update(chosen.table, figures)
        if chosen.table in plot.PLOTS:
            plot.PLOTS[chosen.table](figures, [page.DOCS / f"{chosen.table}.svg"])
    print(page.CONTENTS[chosen.table](figures))
    print(json.dumps(figures))
    sys.exit(not all(row["checked"] for row in figures["rows"]))


if __name__ == "__main__":
    main()
