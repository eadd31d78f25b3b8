"""`penstock dev`: run an application, and deploy its source when a file changes."""

from typing import Final

from penstock.cli.options import (
    AppOptions,
    CoresOption,
    DropOption,
    GenerateOption,
    JsonLogOption,
    PortOption,
    log_flags,
)
from penstock.cli.running.run import foreground_of
from penstock.deployment.loading import locate

HELP: Final = """Run an application while you write it: log, Spark, SQL view, gateway and console.

When a source file of the application changes, the new code is deployed into the running processes; nothing
starts again. If the new source has an error, the error is shown and the old code stays in force. The
console has a button that kills the driver, so that you can watch it recover with nothing lost. The data
stay in .penstock/<app name> between two runs.

If a class changes after entities of it were stored, they are read as the new class declares them. A change that they
do not fit is shown, and the old code stays in force: undo the change, write a function with @migrate, or begin with an
empty directory, by --data or by removing that folder. If a class is gone, start again with --drop CLASS.

\b
Examples:
  penstock dev app.py
  penstock dev examples/shop --port 8080
  penstock dev shop.services:app --cores 2 --set small_epoch=100
"""


def command(
    options: AppOptions,
    port: PortOption = None,
    cores: CoresOption = None,
    generate: GenerateOption = False,
    drop: DropOption = None,
    as_json: JsonLogOption = False,
) -> None:
    """Run an application for its developer; see `HELP`."""
    flags = {"gateway.port": port, "cores": cores, **log_flags(as_json=as_json)}
    foreground = foreground_of(options, flags, development=True, generates=generate, drop=drop)
    from penstock.cli.running.source_deployer import SourceDeployer, SourceFiles

    foreground.run(SourceDeployer(foreground, SourceFiles(locate(foreground.options.app))).look)
