"""`penstock bench`: from options to a run, and from its figures to an exit code."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from benchmarks.harness.http import HTTP_HELP, http
from benchmarks.harness.measure import Driver, Start, measure
from benchmarks.harness.options import Kind, Options
from benchmarks.harness.progress import watching
from benchmarks.harness.summary import figures_of, table_of
from penstock.cli.options import (
    DIRECTORY,
    ConfigOption,
    CoresOption,
    PartitionsOption,
    SetOption,
    config_of,
    expanded,
)
from penstock.cli.output import print_json
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

FAILED: Final = 1
WARM_UP_MAX: Final = 60_000
WARM_UP_S: Final = 4
BACKLOG_EPOCHS: Final = 3

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


command: Final = typer.Typer(
    add_completion=False, help=HELP, no_args_is_help=True, rich_markup_mode="rich"
)
command.command("http", help=HTTP_HELP)(http)
command.command("checkout", help=CHECKOUT_HELP)(expanded(checkout))
command.command("transfer", help=TRANSFER_HELP)(expanded(transfer))


def start_spark(spec: str, config: Config) -> Driver:
    """Return the Spark runtime; the import of Spark takes long."""
    from penstock.runtime.spark.runtime import SparkRuntime  # noqa: PLC0415

    return SparkRuntime(spec, config)


def bench_run(
    options: Options, config: Config, *, as_json: bool, start: Start = start_spark
) -> None:
    """Run a benchmark, print its figures, and fail if a check fails.

    Args:
        options: What to run.
        config: The settings of the application.
        as_json: Whether to end standard output with the figures as one JSON object.
        start: Starts the driver.

    Raises:
        Exit: The audit has complaints, or no request succeeded; the exit code is 1.
    """
    options = paced(options, config)
    messages = Console(stderr=True)
    with watching(messages) as watcher:
        measured = measure(options, config, start, watcher)
    figures = figures_of(options, config, measured)
    if as_json:
        print_json(figures)
    else:
        Console().print(table_of(options, figures))
    problems = problems_of(options, figures)
    for problem in problems:
        messages.print(problem, style="bold red", highlight=False)
    if problems:
        raise typer.Exit(FAILED)


def paced(options: Options, config: Config) -> Options:
    """Return the options with a warm-up and a backlog that fit the rate and the epochs."""
    warm_up = min(WARM_UP_MAX, options.rate * WARM_UP_S) if options.rate else WARM_UP_MAX
    if options.requests:
        warm_up = min(warm_up, options.requests)
    backlog = BACKLOG_EPOCHS * config.epoch_records_max
    return replace(options, warm_up=warm_up, backlog=backlog)


def problems_of(options: Options, figures: dict[str, Any]) -> list[str]:
    """Return the failed checks: complaints of the audit, unexpected aborts, no success at all."""
    problems = list(figures["complaints"])
    if figures["aborts_by_code"]:
        problems.append(f"requests were aborted, and none should be: {figures['aborts_by_code']}")
    if not figures[options.unit]:
        problems.append(f"no {options.unit} succeeded in the measured window")
    return problems
