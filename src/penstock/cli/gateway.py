"""`penstock gateway`: one HTTP gateway, in the foreground, until a signal stops it."""

from typing import Annotated, Final

import typer

from penstock.cli.application import application_of
from penstock.cli.options import (
    AppArgument,
    ConfigOption,
    DataOption,
    HostOption,
    PortOption,
    SetOption,
    SupervisedOption,
)
from penstock.console.routes import console_routes
from penstock.gateway.auth.exposure import check_exposure
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.serving import serve_gateway
from penstock.process import logs
from penstock.process.threads import end_with_threads

HELP: Final = """Run one of an application's gateways alone: HTTP in, replies out.

It appends to the log and follows the journal; a driver of the same data directory processes what it
appends. Several gateways may share one port. penstock run starts gateways together with a driver
and the SQL view.

The first SIGINT or SIGTERM stops taking requests, answers those that wait, and ends; the second
ends at once, which loses nothing: a client that asks again with its request id gets the answer.

\b
Examples:
  penstock gateway examples/shop
  penstock gateway examples/shop --port 8001 --data /var/lib/shop
  penstock gateway shop:app --host 0.0.0.0 --set gateway.jwks=/etc/shop/jwks.json
"""


def gateway(  # noqa: PLR0913 -- one parameter for each flag
    app: AppArgument,
    data: DataOption = None,
    host: HostOption = None,
    port: PortOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    dev: Annotated[bool, typer.Option("--dev", hidden=True)] = False,  # noqa: FBT002 -- a flag
    supervised: SupervisedOption = False,  # noqa: FBT002 -- a flag
) -> None:
    """Run a gateway in the foreground; see `HELP`."""
    application, settings = application_of(
        app,
        data=data,
        file=config,
        assignments=[
            *(assignments or ()),
            *([f"gateway.host={host}"] if host is not None else ()),
            *([f"gateway.port={port}"] if port is not None else ()),
        ],
    )
    logs.configure("gateway", settings.log_format, settings.log_level)
    end_with_threads()
    check_exposure(settings, KeyStore(settings.data).exists)
    more = console_routes(application, settings, dev=dev)
    serve_gateway(application, app, settings, more=more, supervised=supervised)
