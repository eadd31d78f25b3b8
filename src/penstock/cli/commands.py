"""The table of commands. Each command is imported when it is called, with only its own imports.

A command's module has a function `command`, or a `typer.Typer` of that name with commands below it,
and its help as `HELP`.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from penstock.cli.missing_extra import MISSING
from penstock.cli.options import expanded
from penstock.errors import ConfigError

CHECKOUT: Final = Path(__file__).parents[3]
"""The top folder of a checkout, when Penstock runs from one."""

HARNESS: Final = "benchmarks.harness"
"""The package of commands that exist only in a checkout."""

COMMANDS: Final = {
    "new": "penstock.cli.new",
    "dev": "penstock.cli.dev",
    "run": "penstock.cli.run",
    "status": "penstock.cli.status",
    "driver": "penstock.cli.driver",
    "gateway": "penstock.cli.gateway",
    "view": "penstock.cli.view",
    "sql": "penstock.cli.sql",
    "changes": "penstock.cli.changes",
    "call": "penstock.cli.call",
    "explain": "penstock.cli.explain",
    "replay": "penstock.cli.replay",
    "what-if": "penstock.cli.what_if",
    "trace": "penstock.cli.trace",
    "history": "penstock.cli.history",
    "snapshot": "penstock.cli.snapshot",
    "savepoint": "penstock.cli.savepoint",
    "backup": "penstock.cli.backup",
    "restore": "penstock.cli.restore",
    "fork": "penstock.cli.fork",
    "verify": "penstock.cli.verify",
    "demo": f"{HARNESS}.demo",
    "keys": "penstock.cli.keys",
    "flow": "penstock.cli.flow",
    "bench": f"{HARNESS}.command",
}
"""The module of each command, in the order of the help."""


def is_available(name: str) -> bool:
    """Say whether this installation has the package of a command."""
    return not COMMANDS[name].startswith(HARNESS) or (CHECKOUT / "benchmarks/harness").is_dir()


def load(name: str) -> Any:
    """Import a command.

    Raises:
        ConfigError: The command needs a package or a checkout that this installation lacks.
    """
    if not is_available(name):
        raise ConfigError(f"`penstock {name}` runs only from a checkout of Penstock's repository")
    if COMMANDS[name].startswith(HARNESS) and str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    try:
        module = importlib.import_module(COMMANDS[name])
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("penstock"):
            raise
        raise ConfigError(MISSING.format(module=error.name)) from error
    group = module.command
    if not isinstance(group, typer.Typer):
        group = typer.Typer(add_completion=False, rich_markup_mode="rich")
        settings = getattr(module, "CONTEXT_SETTINGS", None)
        group.command(help=module.HELP, context_settings=settings)(expanded(module.command))
    command = get_command(group)
    command.name = name
    _unwrap(command)
    return command


def _unwrap(command: Any) -> None:
    r"""Make each paragraph of a help text one line, so that it fits any terminal.

    Paragraphs that begin with \b keep their lines.
    """
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(
        text if text.startswith("\b") else text.replace("\n", " ") for text in paragraphs
    )
    for subcommand in getattr(command, "commands", {}).values():
        _unwrap(subcommand)


class _LazyCommands(Mapping[str, Any]):
    """Commands by name; each is imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        return load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Commands(TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast("Any", _LazyCommands())  # typer only reads this dictionary

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands that this installation has, without importing any."""
        return [name for name in COMMANDS if is_available(name)]
