"""Which commands there are. Each is loaded when it is asked for: none waits for what others need."""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from penstock.cli.missing import MISSING
from penstock.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command is found.

    Attributes:
        module: Below `penstock.cli`; its `HELP` is the command's help.
        function: What runs, or a `typer.Typer` with commands of its own; named as the module, where
            nothing is said.
        help: The name of the help text.
        settings: For typer.
    """

    module: str
    function: str = ""
    help: str = "HELP"
    settings: dict[str, Any] = field(default_factory=dict)

    def load(self, name: str) -> Any:
        """Import it.

        Raises:
            ConfigError: This installation has not all that the command needs.
        """
        try:
            module = importlib.import_module(f"penstock.cli.{self.module}")
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
    "replay": Command("replay", "again"),
    "what-if": Command("what_if", "again"),
    "trace": Command("trace", "trace_request"),
    "history": Command("history", "history_of"),
    "snapshot": Command("snapshot"),
    "savepoint": Command("savepoint"),
    "backup": Command("backup"),
    "restore": Command("restore", "again"),
    "fork": Command("fork"),
    "verify": Command("verify", "again"),
    "demo": Command("bench.command", "demo", "DEMO_HELP"),
    "keys": Command("keys"),
    "bench": Command("bench.command", "bench"),
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
        """Return their names, and load none."""
        return list(self.commands)
