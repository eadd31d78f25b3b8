"""`penstock bench`: from options to a run, and from its figures to an exit code."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from benchmarks.harness.options import Kind, Options
from penstock.cli.options import (
    DIRECTORY,
    ConfigOption,
    CoresOption,
    PartitionsOption,
    SetOption,
    config_of,
    expanded,
)
from penstock.errors import ConfigError
from penstock.process.config import Config

HELP: Final = """Measure Penstock on this machine: log, Spark, journal, replies.

checkout and transfer append requests in bulk, encoded beforehand; http sends each request by itself.
A request counts when it is in the durable log, and another process has read its reply from the
journal and decoded it as a success. Loading and warm-up come before the measured seconds. Afterwards
the journal is audited: money and stock at the end of every epoch, every acknowledged request exactly
once, replies against state.

\b
Examples:
  penstock bench checkout --max --seconds 20 --json
  penstock bench checkout --rate 1000 --seconds 20
  penstock bench checkout --zipf 0.999 --partitions 4
  penstock bench checkout --requests 50000 --check-oracle
  penstock bench transfer --users 1000000
  penstock bench http --json
"""

CHECKOUT_HELP: Final = """Order.reorder in bulk: an order, its one to three items, its user.

One process appends requests that were encoded beforehand, up to 2,500 at once; up to three epochs of
them are in progress. Every request is Order.reorder, which reads and writes the same entities as
checkout of an unpaid order, so that each request moves stock and money (a second checkout of a paid
order is free). --zipf draws the items and users of the orders when they are loaded, and the orders
when they are checked out.

\b
Examples:
  penstock bench checkout --max --seconds 20 --json
  penstock bench checkout --rate 1000 --zipf 0.999
"""

TRANSFER_HELP: Final = """Transfer money in bulk between two of --users accounts, as in YCSB-T.

\b
Examples:
  penstock bench transfer --max --seconds 20 --json
  penstock bench transfer --zipf 0.999 --users 1000000
"""

HTTP_HELP: Final = """Check out orders of the shop over HTTP: client, gateway and Spark on this machine.

Each order is checked out once, so that each checkout moves stock and money. The measurement ends
early if the orders are used up: half of them are for plain HTTP, three
tenths for a pipelined connection. The exit code is 1 if an answer is not 200 with `Checkout successful`, or if money or stock is missing.

\b
Examples:
  penstock bench http --json
  penstock bench http --connections 200 --seconds 30
"""

Count = Annotated[int, typer.Option(metavar="N", min=10, help="How many are loaded.")]
Seconds = Annotated[
    float, typer.Option("--seconds", metavar="S", min=0.1, help="How long to measure.")
]


@dataclass(frozen=True, slots=True)
class RunPlace:
    """The options of every run on Spark: its resources and its data directory."""

    partitions: PartitionsOption = None
    cores: CoresOption = None
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="An empty directory, kept; default: temporary."),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="End standard output with one JSON object.")
    ] = False

    @contextmanager
    def opened(
        self, file: Path | None = None, assignments: list[str] | None = None
    ) -> Iterator[Config]:
        """Give the settings, with an empty data directory, which is removed unless it was named.

        The default lies below the current directory, because /tmp may be memory, where nothing is
        durable.

        Args:
            file: The value of `--config`.
            assignments: The values of `--set`.

        Raises:
            ConfigError: A setting is invalid, or the directory is not empty.
        """
        if self.data is not None and self.data.is_dir() and any(self.data.iterdir()):
            raise ConfigError(f"--data {self.data} is not empty; a benchmark needs an empty one")
        if self.data is None:
            DIRECTORY.mkdir(exist_ok=True)
        directory = self.data or Path(tempfile.mkdtemp(prefix="bench-", dir=DIRECTORY))
        try:
            directory.mkdir(parents=True, exist_ok=True)
            yield config_of(
                directory,
                data=directory,
                file=file,
                assignments=assignments,
                partitions=self.partitions,
                cores=self.cores,
            )
        finally:
            if self.data is None:
                shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Workload:
    """The options of a bulk benchmark: its requests, and further settings."""

    maximum: Annotated[bool, typer.Option("--max", help="As fast as possible; the default.")] = (
        False
    )
    rate: Annotated[
        int, typer.Option("--rate", metavar="R", min=0, help="Requests a second, on a schedule.")
    ] = 0
    seconds: Seconds = 20.0
    requests: Annotated[
        int, typer.Option("--requests", metavar="N", min=0, help="Measure so many, not by time.")
    ] = 0
    zipf: Annotated[
        float, typer.Option("--zipf", metavar="THETA", min=0, help="Skew, as 0.999; 0 is uniform.")
    ] = 0.0
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="The seed of everything that is drawn.")
    ] = 1
    check_oracle: Annotated[
        bool,
        typer.Option("--check-oracle", help="Compare all replies and the state with the oracle."),
    ] = False
    config: ConfigOption = None
    assignments: SetOption = None

    def run(self, kind: Kind, place: RunPlace, **counts: Any) -> None:
        """Run the benchmark.

        Args:
            kind: The kind of request.
            place: Where to run.
            counts: How many entities of each class are loaded.

        Raises:
            ConfigError: `--max` and `--rate` are both given.
        """
        if self.maximum and self.rate:
            raise ConfigError("--max and --rate exclude each other")
        options = Options(
            kind=kind,
            rate=self.rate,
            seconds=self.seconds,
            requests=self.requests,
            zipf=self.zipf,
            seed=self.seed,
            check_oracle=self.check_oracle,
        )
        options = replace(options, **counts)
        from benchmarks.harness.bench_run import bench_run  # noqa: PLC0415 -- help needs no packages

        with place.opened(self.config, self.assignments) as settings:
            bench_run(options, settings, as_json=place.as_json)


def checkout(
    workload: Workload,
    place: RunPlace,
    users: Count = 100_000,
    items: Count = 100_000,
    orders: Count = 100_000,
) -> None:
    """Measure checkouts; see `CHECKOUT_HELP`."""
    workload.run("checkout", place, users=users, items=items, orders=orders)


def transfer(workload: Workload, place: RunPlace, users: Count = 100_000) -> None:
    """Measure transfers; see `TRANSFER_HELP`."""
    workload.run("transfer", place, users=users)


def http(
    connections: Annotated[int, typer.Option(min=1, help="Requests in progress at once.")] = 1_000,
    seconds: Annotated[float, typer.Option(min=1, help="How long to measure.")] = 20.0,
    orders: Annotated[int, typer.Option(min=100, help="Items, users and orders.")] = 300_000,
    gateways: Annotated[int, typer.Option(min=1, help="Gateway processes.")] = 1,
    seed: Annotated[int, typer.Option(help="The seed of the sequence of orders.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure checkouts over HTTP; see `HTTP_HELP`."""
    from benchmarks.harness.http import measure_http  # noqa: PLC0415 -- help needs no packages

    measure_http(connections, seconds, orders, gateways, seed, as_json=as_json)


command: Final = typer.Typer(
    add_completion=False, help=HELP, no_args_is_help=True, rich_markup_mode=None
)
command.command("http", help=HTTP_HELP)(http)
command.command("checkout", help=CHECKOUT_HELP)(expanded(checkout))
command.command("transfer", help=TRANSFER_HELP)(expanded(transfer))
