"""`penstock bench` and `penstock demo`: from flags to a run, and from its figures to an exit code.

The demo is a benchmark of fixed size. Both fail with exit code 1 when anything is off.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from benchmarks.harness.http import HTTP_HELP, http
from benchmarks.harness.measure import Driver, Start, measure
from benchmarks.harness.options import Options
from benchmarks.harness.progress import watching
from benchmarks.harness.summary import figures_of, table_of
from penstock.cli.options import (
    DIRECTORY,
    ConfigOption,
    CoresOption,
    PartitionsOption,
    SetOption,
    config_of,
)
from penstock.errors import ConfigError
from penstock.process.config import Config

BENCH_HELP: Final = """Measure Penstock on this machine: log, Spark, journal, replies.

checkout and transfer append requests in bulk, encoded beforehand; http sends each by itself. Every
request counted was appended to the durable log, and another process has read its reply from the
journal and decoded it to the success of that request. Loading and warm-up come before the measured seconds. Afterwards the journal is
audited: money and stock at the end of every epoch, every acknowledged request exactly once,
replies against state.

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
them are under way. Every request is Order.reorder, which reads and writes the same as checkout of an
unpaid order, so that each one moves stock and money (a second checkout of a paid order is free).
--zipf draws the items and users of the orders when they are loaded, and the orders when they are
checked out.

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

DEMO_HELP: Final = """Run the shop on Spark for some seconds, and prove that nothing got lost.

Starts Spark, loads 100,000 users, items and orders, appends checkouts (Order.reorder, encoded
beforehand) to the durable log in bulk, and prints how many a second came out, how long they took, and whether the journal conserves money and
stock. The exit code is 1 when anything is off.

\b
Examples:
  penstock demo
  penstock demo --seconds 30
"""

FAILED: Final = 1
WARM_UP_MAX: Final = 60_000
WARM_UP_S: Final = 4
BACKLOG_EPOCHS: Final = 3

Maximum = Annotated[bool, typer.Option("--max", help="As fast as possible; the default.")]
Rate = Annotated[
    int, typer.Option("--rate", metavar="R", min=0, help="Requests a second, on a schedule.")
]
Seconds = Annotated[float, typer.Option("--seconds", metavar="S", min=0.1, help="To measure.")]
Requests = Annotated[
    int,
    typer.Option("--requests", metavar="N", min=0, help="Measure so many, instead of by time."),
]
Zipf = Annotated[
    float, typer.Option("--zipf", metavar="THETA", min=0, help="Skew, as 0.999; 0 is uniform.")
]
Count = Annotated[int, typer.Option(metavar="N", min=10, help="How many are loaded.")]
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", help="All that is drawn follows from it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="End standard output with one JSON object.")]
BenchData = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="An empty directory, kept; default: a passing one."),
]
CheckOracle = Annotated[
    bool, typer.Option("--check-oracle", help="Compare all replies and the state with the oracle.")
]

bench: Final = typer.Typer(
    add_completion=False, help=BENCH_HELP, no_args_is_help=True, rich_markup_mode="rich"
)


bench.command("http", help=HTTP_HELP)(http)


@bench.command("checkout", help=CHECKOUT_HELP)
def checkout(  # noqa: PLR0913 -- one parameter for each flag
    maximum: Maximum = False,  # noqa: FBT002 -- a flag
    rate: Rate = 0,
    seconds: Seconds = 20.0,
    requests: Requests = 0,
    zipf: Zipf = 0.0,
    users: Count = 100_000,
    items: Count = 100_000,
    orders: Count = 100_000,
    partitions: PartitionsOption = None,
    cores: CoresOption = None,
    seed: Seed = 1,
    as_json: AsJson = False,  # noqa: FBT002 -- a flag
    data: BenchData = None,
    check_oracle: CheckOracle = False,  # noqa: FBT002 -- a flag
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Measure checkouts; see `CHECKOUT_HELP`."""
    options = Options(
        kind="checkout",
        rate=_rate(maximum, rate),
        seconds=seconds,
        requests=requests,
        zipf=zipf,
        users=users,
        items=items,
        orders=orders,
        seed=seed,
        check_oracle=check_oracle,
    )
    with _settings(data, config, assignments, partitions, cores) as settings:
        bench_run(options, settings, as_json=as_json)


@bench.command("transfer", help=TRANSFER_HELP)
def transfer(  # noqa: PLR0913 -- one parameter for each flag
    maximum: Maximum = False,  # noqa: FBT002 -- a flag
    rate: Rate = 0,
    seconds: Seconds = 20.0,
    requests: Requests = 0,
    zipf: Zipf = 0.0,
    users: Count = 100_000,
    partitions: PartitionsOption = None,
    cores: CoresOption = None,
    seed: Seed = 1,
    as_json: AsJson = False,  # noqa: FBT002 -- a flag
    data: BenchData = None,
    check_oracle: CheckOracle = False,  # noqa: FBT002 -- a flag
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Measure transfers; see `TRANSFER_HELP`."""
    options = Options(
        kind="transfer",
        rate=_rate(maximum, rate),
        seconds=seconds,
        requests=requests,
        zipf=zipf,
        users=users,
        seed=seed,
        check_oracle=check_oracle,
    )
    with _settings(data, config, assignments, partitions, cores) as settings:
        bench_run(options, settings, as_json=as_json)


def demo(
    seconds: Seconds = 10.0,
    partitions: PartitionsOption = None,
    cores: CoresOption = None,
    as_json: AsJson = False,  # noqa: FBT002 -- a flag
    data: BenchData = None,
) -> None:
    """Run the main job; see `DEMO_HELP`."""
    with _settings(data, None, None, partitions, cores) as settings:
        bench_run(Options(seconds=seconds), settings, as_json=as_json)


def start_spark(spec: str, config: Config) -> Driver:
    """Make the Spark runtime; nothing but this pays for importing Spark."""
    from penstock.runtime.spark.runtime import SparkRuntime  # noqa: PLC0415

    return SparkRuntime(spec, config)


def bench_run(
    options: Options, config: Config, *, as_json: bool, start: Start = start_spark
) -> None:
    """Run, print, and fail when anything is off.

    Raises:
        Exit: The audit has complaints, or nothing succeeded; the exit code is 1.
    """
    options = paced(options, config)
    messages = Console(stderr=True)
    with watching(messages) as watcher:
        measured = measure(options, config, start, watcher)
    figures = figures_of(options, config, measured)
    if as_json:
        sys.stdout.write(f"{json.dumps(figures)}\n")
        sys.stdout.flush()
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
    """Say what is off: the audit's complaints, aborts that no rule explains, nothing done."""
    found = list(figures["complaints"])
    if figures["aborts_by_code"]:
        found.append(f"requests were aborted, and none should be: {figures['aborts_by_code']}")
    if not figures[options.unit]:
        found.append(f"no {options.unit} succeeded in the measured window")
    return found


def _rate(maximum: bool, rate: int) -> int:  # noqa: FBT001 -- a flag
    if maximum and rate:
        raise ConfigError("--max and --rate exclude each other")
    return rate


@contextmanager
def _settings(
    data: Path | None,
    file: Path | None,
    assignments: list[str] | None,
    partitions: int | None,
    cores: int | None,
) -> Iterator[Config]:
    """Give the configuration, in a directory that is empty and, unless named, removed again.

    The default lies below the current directory, because /tmp may be memory, where durable means
    nothing.

    Raises:
        ConfigError: A setting cannot be used, or the directory holds something.
    """
    if data is not None and data.is_dir() and any(data.iterdir()):
        raise ConfigError(f"--data {data} is not empty; a benchmark begins with nothing")
    if data is None:
        DIRECTORY.mkdir(exist_ok=True)
    directory = data or Path(tempfile.mkdtemp(prefix="bench-", dir=DIRECTORY))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield config_of(
            directory,
            data=directory,
            file=file,
            assignments=assignments,
            partitions=partitions,
            cores=cores,
        )
    finally:
        if data is None:
            shutil.rmtree(directory, ignore_errors=True)
