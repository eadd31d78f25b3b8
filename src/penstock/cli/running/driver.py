"""`penstock driver`: run Spark in the foreground, until a signal."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from penstock.cli.options import (
    AppOptions,
    CoresOption,
    DeployedOption,
    JsonLogOption,
    MasterOption,
    PartitionsOption,
    StandbyOption,
    SupervisedOption,
    log_flags,
    with_deployed_code,
)
from penstock.cli.running.replaced_source import load_to_run, new_migrations_tried
from penstock.process import logs
from penstock.process.config import Config
from penstock.process.process_limits import end_with_threads

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.runtime.spark.jvm import Jvm

HELP: Final = """Run an application's driver alone: Spark, in the foreground, until SIGINT or SIGTERM.

It processes the requests in the log, to which penstock call and gateways append. penstock run starts
the driver together with gateways and the SQL view.

At the first signal, the driver commits the epoch that runs and stops. A second signal ends it at
once, which loses nothing either: the next start goes on from the journal.

If a deployment has replaced the source since it ran, the command runs that deployment, and says so.

With --standby, the command waits while another driver runs: Spark, its workers and the application are
loaded, and when the other driver ends or is killed, this one takes over within a second or two. Only one
driver at a time commits.

Settings come from a TOML file, from PENSTOCK_<NAME> in the environment and from options; the later
ones win. In the file they have the names that --set takes: cores, small_epoch, limits.time_ms …

\b
Examples:
  penstock driver examples/shop
  penstock driver shop.services:app --data /var/lib/shop --partitions 8
  penstock driver shop.services:app --data /var/lib/shop --standby
  penstock driver app.py --set limits.time_ms=500 --set epoch_records_max=2000
  PENSTOCK_CORES=2 penstock driver examples/bank --config production.toml
"""

ROLE: Final = "driver"


def command(
    options: AppOptions,
    partitions: PartitionsOption = None,
    cores: CoresOption = None,
    master: MasterOption = None,
    standby: StandbyOption = False,
    supervised: SupervisedOption = False,
    deployed: DeployedOption = False,
    as_json: JsonLogOption = False,
) -> None:
    """Run an application's driver in the foreground; see `HELP`."""
    flags = {
        "partitions": partitions,
        "cores": cores,
        "master": master,
        **log_flags(as_json=as_json),
    }
    options = with_deployed_code(options) if deployed else options
    from rich.console import Console

    with ExitStack() as stack:
        # `penstock run` has checked the application, so Java starts while this process loads it.
        jvm = stack.enter_context(_java(options.settings(**flags))) if supervised else None
        console = Console(quiet=supervised)
        settings = _checked(options, flags, console, deployed=deployed, supervised=supervised)
        logs.configure_service(ROLE, settings.log_format, settings.log_level)
        end_with_threads()
        from penstock.process import presence
        from penstock.process.stop import Stop

        if not standby:
            presence.refuse_second(settings.data, ROLE)
        if not (standby or supervised):  # `penstock run` has asked before
            _ask(options, settings, partitions)
        stop = stack.enter_context(Stop(supervised=supervised))
        _say_start(settings, console)
        jvm = jvm or stack.enter_context(_java(settings))
        # These imports take long; Java starts meanwhile.
        from penstock.cli.running.driver_service import nothing, serve
        from penstock.cli.running.standby import stand_by
        from penstock.files.shared_root import be_patient
        from penstock.runtime.spark.runtime import SparkRuntime

        be_patient()
        if stop.wanted.is_set():
            return
        runtime = SparkRuntime(settings.app, settings, jvm)
        make = jvm.archive.make_in_background if settings.class_archive else nothing
        if standby and not stand_by(runtime, settings.app, settings.data, stop, console):
            return
        serve(runtime, settings.app, settings, stop, console, when_running=make)


def _ask(options: AppOptions, settings: Config, partitions: int | None) -> None:
    """Ask for the number of partitions that an option or a setting names."""
    from penstock.orders.partitions import ask_for_partitions

    chosen = [f"partitions={partitions}"] if partitions is not None else []
    ask_for_partitions(settings, [*(options.assignments or ()), *chosen])


def _say_start(settings: "Config", console: "Console") -> None:
    from penstock.native.choice import describe

    line = f"{settings.app} in {settings.data}: starting Spark; transactions run {describe()} …"
    console.print(line, highlight=False, soft_wrap=True)


def _checked(
    options: AppOptions,
    flags: dict[str, str | int | None],
    console: "Console",
    *,
    deployed: bool,
    supervised: bool,
) -> Config:
    """Return the settings of the code that this start runs; `penstock run` has tried its functions with `@migrate`."""
    if deployed:  # it starts again after its end, and goes on with the hosts that are there
        return options.load(**flags, hosts=1)[1]
    application, settings = load_to_run(options, flags)
    if not supervised:
        for line in new_migrations_tried(application, settings):
            console.print(line, highlight=False, markup=False)
    return settings


def _java(settings: Config) -> "Jvm":
    from penstock.runtime.spark.jvm import Jvm
    from penstock.runtime.spark.scratch import new_scratch

    return Jvm(settings, new_scratch(settings.data))
