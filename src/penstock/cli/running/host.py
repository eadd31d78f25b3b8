"""`penstock host`: all processes of one host of a cluster under one supervisor, until a signal."""

from typing import Annotated, Final

import typer

from penstock.cli.options import (
    AppOptions,
    GatewaysOption,
    HostOption,
    JsonLogOption,
    LogOption,
    MasterOption,
    PortOption,
    log_flags,
)

HELP: Final = """Run one host of a cluster: its Spark worker, gateways and SQL view, until SIGINT or SIGTERM.

Each host has a copy of the whole state. It runs tasks for the driver, and its gateways take requests and answer
reads. The history of the application is in an object store, and its log in Kafka, so a host may come, go, and be lost
at any time.

With --with-master, the host that --master names runs Spark's master, too; so all hosts may have the same options. Hosts
with --driver may be the driver. The first one of them is, and each further one waits as a standby, with Spark and the application loaded. Give
--driver to two hosts, or to all.

Without APP the host runs the code that is deployed; it waits for the first deployment. With APP, and without any deployment,
it runs that source.

The folder of this host is the setting host_data, or a folder in ~/.local/share/penstock. Its content comes from the object
store and from Kafka: a host that has lost it makes it again. A folder has one supervisor at a time.

A process that dies is started again. At the first signal, the gateways answer the requests that they have taken, then the
driver ends after the epoch that runs, then Spark. A second signal ends all at once, which loses nothing either.

Settings come from a TOML file, from PENSTOCK_<NAME> in the environment and from options; the later ones win. Let all
hosts have the same file.

\b
Examples:
  penstock host --config penstock.toml --with-master --driver examples/shop
  penstock host --config penstock.toml --driver
  penstock host --master spark://10.0.0.1:7077 --data s3://company/shop \\
    --log kafka://10.0.0.4:9092/shop --set master_secret=/etc/penstock/secret
"""


def command(
    options: AppOptions,
    with_master: Annotated[
        bool,
        typer.Option("--with-master", help="Run Spark's master, too, if --master names this host."),
    ] = False,
    driver: Annotated[
        bool,
        typer.Option(
            "--driver", help="Run a driver here, too; a standby while another host has the driver."
        ),
    ] = False,
    master: MasterOption = None,
    port: PortOption = None,
    host: HostOption = None,
    gateways: GatewaysOption = None,
    log: LogOption = None,
    as_json: JsonLogOption = False,
) -> None:
    """Run the processes of a host in the foreground; see `HELP`."""
    flags = {
        "log": log,
        "gateway.port": port,
        "gateway.host": host,
        "gateway.processes": gateways,
        "master": master,
        **log_flags(as_json=as_json),
    }
    from penstock.cli.running.cluster_host import run_host

    run_host(options, flags, with_master=with_master, drives=driver)
