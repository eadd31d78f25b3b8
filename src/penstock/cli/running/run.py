"""`penstock run`: keep all processes of an application running, until a signal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.cli.options import (
    AbandonLogOption,
    AppOptions,
    CoresOption,
    DropOption,
    GatewaysOption,
    GenerateOption,
    HostOption,
    JsonLogOption,
    LogOption,
    MasterOption,
    PartitionsOption,
    PortOption,
    StandbyOption,
    log_flags,
    prepare_log,
    schema_changes,
)
from penstock.cli.running.replaced_source import new_migrations_tried, replacement_in
from penstock.errors import ConfigError
from penstock.process import logs

if TYPE_CHECKING:
    from penstock.cli.running.foreground import Foreground

HELP: Final = """Run an application: Spark, the SQL view and gateways, until SIGINT or SIGTERM.

A process that dies is started again at once, and nothing is lost. At the first signal, gateways
answer the requests that they have taken; then the view ends, and then the driver, after the epoch
that runs. A second signal ends all processes at once, which loses nothing either.

With --generate, the generators of the application run, too: each goes on behind its atoms that are on
the stream, and no atom is appended twice. penstock status shows how far they are.

With --standby, a second driver waits with Spark, its workers and the application loaded. If the driver dies,
requests are processed again within a second or two, and not after a complete start. The standby needs the
memory of another driver.

If a deployment or a rollback has replaced the source since it ran, the command says which deployment is in force, and
runs that one. penstock deploy puts the source in force.

If classes have changed since the last run, the command shows how, and stored entities are read as the new
classes declare them. A change that stored entities do not fit is refused, and nothing is written. A class
that has disappeared is refused, too, unless --drop names it: its entities stay stored.

With --log kafka://…, requests are appended to a topic of Kafka, for many hosts. The first start moves the log of the data
directory there, and later starts need no option.

Before it says that it runs, the command warns of lines of the application that would make replay
differ, such as calls to other services, as penstock explain does.

With --data s3://BUCKET/PREFIX the history of the application is in an object store, and its log is on this host. On another
host, the command goes on behind a clean stop. If the host with the log is lost, --abandon-log begins another log: requests
that were acknowledged and not processed yet are lost.

Settings come from a TOML file, from PENSTOCK_<NAME> in the environment and from options; the later
ones win. In the file they have the names that --set takes: cores, gateway.port, limits.time_ms …
If the journal has another number of partitions than the option --partitions, the first epoch changes it.

\b
Examples:
  penstock run examples/shop
  penstock run examples/shop --port 8000 --data /var/lib/shop --gateways 2
  penstock run examples/shop --standby
  penstock run examples/shop --log kafka://10.0.0.1:9092,10.0.0.2:9092/shop
  penstock run shop.services:app --partitions 8 --set limits.time_ms=500
  PENSTOCK_CORES=2 penstock run examples/bank --config production.toml
"""


def command(
    options: AppOptions,
    port: PortOption = None,
    host: HostOption = None,
    gateways: GatewaysOption = None,
    partitions: PartitionsOption = None,
    cores: CoresOption = None,
    master: MasterOption = None,
    generate: GenerateOption = False,
    standby: StandbyOption = False,
    drop: DropOption = None,
    log: LogOption = None,
    abandon_log: AbandonLogOption = False,
    as_json: JsonLogOption = False,
) -> None:
    """Run an application in the foreground; see `HELP`."""
    flags = {
        "log": log,
        "gateway.port": port,
        "gateway.host": host,
        "gateway.processes": gateways,
        "partitions": partitions,
        "cores": cores,
        "master": master,
        **log_flags(as_json=as_json),
    }
    foreground_of(
        options, flags, generates=generate, standby=standby, drop=drop, abandons_log=abandon_log
    ).run()


def foreground_of(
    options: AppOptions,
    flags: dict[str, str | int | None],
    *,
    development: bool = False,
    generates: bool = False,
    standby: bool = False,
    drop: Sequence[str] | None = None,
    abandons_log: bool = False,
    drives: bool = True,
) -> "Foreground":
    """Load an application to run in the foreground, and configure the logs of this process.

    Args:
        flags: Other options by the name of their setting; None if not given.
        development: Whether gateways offer a developer's pages and actions.
        generates: Whether the generators of the application run.
        standby: Whether a second driver waits, ready to take over.
        drop: The stored classes to remove.
        abandons_log: Whether the log of another host may be abandoned.
        drives: Whether a driver runs here.
    """
    application, settings = options.load_unchecked(**flags)
    spec = settings.app
    replacement = None if development else replacement_in(settings)
    if replacement is not None:
        from penstock.deployment.code_in_force import load_deployed, unpacked

        spec = unpacked(settings.data, replacement.code).spec
        application = load_deployed(settings.data, spec)
    if generates and not application.topology.generators:
        raise ConfigError(f"application {application.name} has no generator; omit --generate")
    if drop:
        from penstock.deployment.dropped_classes import drop_at_start, dropped

        drop_at_start(settings.data, application, dropped(drop))
    changes = schema_changes(application, settings)
    prepare_log(settings)
    tried = () if replacement else new_migrations_tried(application, settings)
    from rich.console import Console

    from penstock.cli.running.foreground import ROLE, Foreground
    from penstock.cli.running.processes import ChildOptions
    from penstock.gateway.flow.limit_table import limits_in_force

    limits_in_force(application, settings.gateway.limits)  # so that no gateway has to refuse it
    logs.configure_service(ROLE, settings.log_format, settings.log_level)
    chosen = [f"{name}={value}" for name, value in flags.items() if value is not None]
    assignments = [*(options.assignments or ()), *chosen]
    children = ChildOptions(  # the classes of a replaced source need not fit the stored entities
        spec, options.config, assignments, development, generates, standby, drives
    )
    return Foreground(
        application,
        children,
        settings,
        Console(stderr=True),
        schema_changes=changes,
        tried=tried,
        replacement=replacement,
        abandons_log=abandons_log,
    )
