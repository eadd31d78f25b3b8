"""The table of commands. Each command is imported when it is called, with only its own imports."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from penstock.cli.missing_extra import MISSING
from penstock.errors import ConfigError

CHECKOUT: Final = Path(__file__).parents[3]
"""The top folder of a checkout, when Penstock runs from one."""
HARNESS: Final = "benchmarks.harness"


@dataclass(frozen=True, slots=True)
class Command:
    """The place of a command's code.

    Attributes:
        module: The name of the module inside of `package`.
        function: The name of the function, or of a `typer.Typer` with its own commands. The default
            is the name of the module.
        help: The name of the help text in the module.
        settings: The settings of the command's context in typer.
        package: The package of the module. `HARNESS` exists only in a checkout.
    """

    module: str
    function: str = ""
    help: str = "HELP"
    settings: dict[str, Any] = field(default_factory=dict)
    package: str = "penstock.cli"

    @property
    def is_available(self) -> bool:
        """Whether this installation has the package of the command."""
        return self.package != HARNESS or (CHECKOUT / Path(*HARNESS.split("."))).is_dir()

    def load(self, name: str) -> Any:
        """Import the command.

        Raises:
            ConfigError: The command needs a package or a checkout that this installation lacks.
        """
        if not self.is_available:
            raise ConfigError(
                f"`penstock {name}` runs only from a checkout of Penstock's repository"
            )
        if self.package == HARNESS and str(CHECKOUT) not in sys.path:
            sys.path.insert(0, str(CHECKOUT))
        try:
            module = importlib.import_module(f"{self.package}.{self.module}")
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("penstock"):
                raise
            raise ConfigError(MISSING.format(module=error.name)) from error
        found = getattr(module, self.function or self.module)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
            settings = self.settings or None
            alone.command(name, help=getattr(module, self.help), context_settings=settings)(found)
            found = alone
        command = get_command(found)
        command.name = name
        _unwrap(command)
        return command


COMMANDS: Final = {
    "new": Command("new"),
    "dev": Command("dev"),
    "run": Command("run"),
    "status": Command("status"),
    "driver": Command("driver"),
    "gateway": Command("gateway"),
    "view": Command("view"),
    "sql": Command("sql"),
    "changes": Command("changes"),
    "call": Command("call", settings={"ignore_unknown_options": True}),
    "explain": Command("explain"),
    "replay": Command("replay", "replay_command"),
    "what-if": Command("what_if", "what_if_command"),
    "trace": Command("trace", "trace_request"),
    "history": Command("history", "history_of"),
    "snapshot": Command("snapshot"),
    "savepoint": Command("savepoint"),
    "backup": Command("backup"),
    "restore": Command("restore", "restore_command"),
    "fork": Command("fork"),
    "verify": Command("verify", "verify_command"),
    "demo": Command("command", "demo", "DEMO_HELP", package=HARNESS),
    "keys": Command("keys"),
    "bench": Command("command", "bench", package=HARNESS),
}


def _unwrap(command: Any) -> None:
    """Make each paragraph of a help text one line, so that it fits any terminal; not examples."""
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(
        one if one.startswith("\b") else one.replace("\n", " ") for one in paragraphs
    )
    for below in getattr(command, "commands", {}).values():
        _unwrap(below)


class _Loaded(Mapping[str, Any]):
    """Commands by name, each loaded when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        return COMMANDS[name].load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Commands(TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast("Any", _Loaded())  # a dict to typer, to which nobody adds

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands that this installation can run, without importing any."""
        return [name for name, command in COMMANDS.items() if command.is_available]
