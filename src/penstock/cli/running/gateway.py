"""`penstock gateway`: run one HTTP gateway in the foreground, until a signal."""

from functools import partial
from typing import Annotated, Final

import typer

from penstock.cli.options import (
    AppOptions,
    DeployedOption,
    HostOption,
    JsonLogOption,
    PortOption,
    SupervisedOption,
    log_flags,
)
from penstock.cli.running.replaced_source import load_to_run
from penstock.process import logs
from penstock.process.process_limits import end_with_threads

HELP: Final = """Run one of an application's gateways alone: it serves requests over HTTP.

The gateway appends requests to the log and reads their replies from the journal; a driver of the same
data directory processes them. Several gateways may share one port. penstock run starts gateways
together with a driver and the SQL view.

If a deployment has replaced the source since it ran, the command runs that deployment, and says so.

At the first SIGINT or SIGTERM, the gateway takes no more requests, answers those that wait, and ends.
The second signal ends it at once, which loses nothing: a client that asks again with the same request
id gets the reply.

\b
Examples:
  penstock gateway examples/shop
  penstock gateway examples/shop --port 8001 --data /var/lib/shop
  penstock gateway shop:app --host 0.0.0.0 --set gateway.jwks=/etc/shop/jwks.json
"""


def command(
    options: AppOptions,
    host: HostOption = None,
    port: PortOption = None,
    dev: Annotated[bool, typer.Option("--dev", hidden=True)] = False,
    supervised: SupervisedOption = False,
    deployed: DeployedOption = False,
    as_json: JsonLogOption = False,
) -> None:
    """Run a gateway in the foreground; see `HELP`."""
    flags = {"gateway.host": host, "gateway.port": port, **log_flags(as_json=as_json)}
    application, settings = load_to_run(options, flags, deployed=deployed)
    logs.configure_service("gateway", settings.log_format, settings.log_level)
    end_with_threads()
    from penstock.console.routes import console_handlers
    from penstock.gateway.auth.exposure import check_exposure
    from penstock.gateway.auth.keys import KeyStore
    from penstock.gateway.auth.webhooks import check_webhooks
    from penstock.gateway.serving import serve_gateway

    check_exposure(settings, KeyStore(settings.data).exists)
    check_webhooks(application, settings.gateway)
    more = partial(console_handlers, config=settings, dev=dev)
    serve_gateway(application, settings.app, settings, more=more, supervised=supervised)
