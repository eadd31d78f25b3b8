"""A bulk benchmark of `penstock bench`: it runs, prints its figures, and checks them."""

from dataclasses import replace
from typing import Any, Final

import typer
from rich.console import Console

from benchmarks.harness.measure import Driver, Start, measure
from benchmarks.harness.options import Options
from benchmarks.harness.progress import watching
from benchmarks.harness.summary import figures_of, table_of
from penstock.cli.output import print_json
from penstock.process.config import Config

FAILED: Final = 1
WARM_UP_MAX: Final = 60_000
WARM_UP_S: Final = 4
BACKLOG_EPOCHS: Final = 3


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
