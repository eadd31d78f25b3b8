"""The table of commands. Each command is imported when it is called, with only its own imports.

A command's module has a function `command`, or a `typer.Typer` of that name with commands below it,
and its help as `HELP`.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from penstock.base.near_names import did_you_mean
from penstock.cli.error_output import EXIT_CODES
from penstock.cli.help_page import HelpContext, use_help_page
from penstock.cli.options import expanded
from penstock.errors import ConfigError

CHECKOUT: Final = Path(__file__).parents[3]
"""The top folder of a checkout, when Penstock runs from one."""

HARNESS: Final = "benchmarks.harness"
"""The package of commands that exist only in a checkout."""


class Listing(NamedTuple):
    """A command in the table: its module, its line in the help, which imports no command, and its function.

    The help of a function with another name than `command` is `RETRY_HELP` for `retry`.
    """

    module: str
    summary: str
    function: str = "command"


COMMANDS: Final = {
    "new": Listing("penstock.cli.new", "Write a first application with a test, or an example."),
    "dev": Listing(
        "penstock.cli.running.dev",
        "Run an application while you write it; a changed source is deployed at once.",
    ),
    "run": Listing(
        "penstock.cli.running.run",
        "Run an application: Spark, the SQL view and gateways, until SIGINT or SIGTERM.",
    ),
    "host": Listing(
        "penstock.cli.running.host",
        "Run one host of a cluster: its Spark worker, gateways and SQL view, perhaps a driver.",
    ),
    "status": Listing(
        "penstock.cli.running.status",
        "Show the processes of an application, its newest epoch, lag and rate.",
    ),
    "driver": Listing(
        "penstock.cli.running.driver",
        "Run an application's driver alone: Spark, in the foreground.",
    ),
    "gateway": Listing(
        "penstock.cli.running.gateway",
        "Run one of an application's gateways alone: it serves requests over HTTP.",
    ),
    "view": Listing(
        "penstock.cli.orders.view",
        "List, pause, resume and rebuild views; run the applier of a view, or the SQL view, alone.",
    ),
    "effects": Listing(
        "penstock.cli.orders.effects",
        "List effects that wait or have failed, retry and discard them; call effects alone.",
    ),
    "capture": Listing(
        "penstock.cli.orders.capture",
        "List, pause and resume streams of changes of databases; read their tables again; run one alone.",
    ),
    "resume": Listing(
        "penstock.cli.orders.resume",
        "Let the views of a restored or forked directory write into their targets, call its effects, take its changes.",
    ),
    "sql": Listing("penstock.cli.queries.sql", "Run a SQL query over all entities at one epoch."),
    "deploy": Listing(
        "penstock.cli.orders.deploy",
        "Deploy the present code into a running application, or check what that would change.",
        "deploy",
    ),
    "rollback": Listing(
        "penstock.cli.orders.deploy",
        "Deploy the code of a former deployment again, while it runs.",
        "rollback",
    ),
    "remove": Listing(
        "penstock.cli.orders.deploy",
        "Remove an application from the set that runs in one Penstock.",
        "remove",
    ),
    "apps": Listing(
        "penstock.cli.orders.apps",
        "List the deployments of an application: which code ran since when.",
    ),
    "rebalance": Listing(
        "penstock.cli.orders.rebalance",
        "Change the number of partitions of an application, which may run meanwhile.",
    ),
    "changes": Listing(
        "penstock.cli.queries.changes",
        "Show the changes that epochs made to the entities of a class.",
    ),
    "tail": Listing(
        "penstock.cli.queries.tail", "Show the newest atoms of a stream, and then each new one."
    ),
    "call": Listing(
        "penstock.cli.requests.call",
        "Send one request to an application, wait for its reply and print it as JSON.",
    ),
    "append": Listing(
        "penstock.cli.requests.append", "Append events to a stream of an application, as one atom."
    ),
    "import": Listing(
        "penstock.cli.exchange.import_command",
        "Import a file or a table into a class, all rows at one place in the order.",
    ),
    "export": Listing(
        "penstock.cli.exchange.export_command",
        "Write a class, a stream or the rows of a query, at one epoch, into a file.",
    ),
    "generate": Listing(
        "penstock.cli.running.generate", "Run the generators of an application against a gateway."
    ),
    "client": Listing(
        "penstock.cli.client", "Write a client of an application in TypeScript, from its types."
    ),
    "explain": Listing(
        "penstock.cli.queries.explain",
        "Show the dataflow graph of an application, from its source.",
    ),
    "replay": Listing(
        "penstock.cli.past.replay", "Run the journal's requests again in this process, and compare."
    ),
    "what-if": Listing(
        "penstock.cli.past.what_if",
        "Run the journal's requests again with changes, and show how the outcome differs.",
    ),
    "trace": Listing(
        "penstock.cli.past.trace",
        "Show one request: its calls, the entities that it read and changed, its reply.",
    ),
    "cancel": Listing(
        "penstock.cli.orders.cancel",
        "Cancel a request that was sent with a delay and is not due yet.",
    ),
    "failed": Listing(
        "penstock.cli.orders.attempts",
        "List the failed requests that no caller waits for.",
        "failed",
    ),
    "retry": Listing(
        "penstock.cli.orders.attempts",
        "Run failed requests again, when the code is mended.",
        "retry",
    ),
    "discard": Listing(
        "penstock.cli.orders.attempts", "Let failed requests have no further attempt.", "discard"
    ),
    "schedule": Listing(
        "penstock.cli.orders.schedule",
        "List, pause, resume and fire the schedules of an application.",
    ),
    "erase": Listing(
        "penstock.cli.orders.erase",
        "Erase a person: delete the entity, and destroy the key of its data.",
    ),
    "history": Listing(
        "penstock.cli.past.history",
        "Show the changes of one entity, with the request that made each.",
    ),
    "snapshot": Listing(
        "penstock.cli.past.snapshot", "Take a snapshot of the state, and maintain the history."
    ),
    "savepoint": Listing(
        "penstock.cli.past.savepoint",
        "Give the newest epoch a name, and keep this epoch and all later ones.",
    ),
    "backup": Listing(
        "penstock.cli.past.backup",
        "Back up an application, which may run meanwhile, into a directory of backups.",
    ),
    "restore": Listing("penstock.cli.past.restore", "Restore a backup into a new data directory."),
    "fork": Listing(
        "penstock.cli.past.fork",
        "Copy an application, which may run meanwhile, as it was at an epoch.",
    ),
    "verify": Listing(
        "penstock.cli.past.verify", "Check every checksum and invariant of a data directory."
    ),
    "demo": Listing(
        f"{HARNESS}.demo",
        "Run the shop on Spark for some seconds, and prove that nothing was lost.",
    ),
    "keys": Listing(
        "penstock.cli.running.keys", "Make, list and revoke the API keys of an application."
    ),
    "flow": Listing(
        "penstock.cli.orders.flow",
        "Pause, resume and drain an application: stop and admit new requests.",
    ),
    "bench": Listing(
        f"{HARNESS}.command", "Measure Penstock on this machine: log, Spark, journal, replies."
    ),
}
"""The commands, in the order of the help."""


def is_available(name: str) -> bool:
    """Say whether this installation has the package of a command."""
    return (
        not COMMANDS[name].module.startswith(HARNESS) or (CHECKOUT / "benchmarks/harness").is_dir()
    )


def load(name: str) -> Any:
    """Import a command.

    Raises:
        ModuleNotFoundError: The command needs a package that this installation lacks.
    """
    if not is_available(name):
        raise ConfigError(f"`penstock {name}` runs only from a checkout of Penstock's repository")
    if COMMANDS[name].module.startswith(HARNESS) and str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    module = importlib.import_module(COMMANDS[name].module)
    function = COMMANDS[name].function
    group = getattr(module, function)
    if not isinstance(group, typer.Typer):
        group = typer.Typer(add_completion=False, rich_markup_mode=None)
        settings = getattr(module, "CONTEXT_SETTINGS", None)
        text = getattr(module, "HELP" if function == "command" else f"{function.upper()}_HELP")
        group.command(help=text, context_settings=settings)(expanded(getattr(module, function)))
    command = get_command(group)
    command.name = name
    if (command.context_settings or {}).get("ignore_unknown_options"):
        refuse_unknown_options(command)
    _prepare(command)
    use_help_page(command)
    return command


def _prepare(command: Any) -> None:
    r"""Give a command plain values, and a help text that fits any terminal: each paragraph is one line.

    Paragraphs that begin with \b keep their lines.
    """
    take_plain_values(command)
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(
        text if text.startswith("\b") else text.replace("\n", " ") for text in paragraphs
    )
    for subcommand in getattr(command, "commands", {}).values():
        _prepare(subcommand)


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

    context_class = HelpContext

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        take_plain_values(self)
        self.commands = cast("Any", _LazyCommands())  # typer only reads this dictionary

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help from the table: it needs neither the modules of commands nor their packages."""
        self.commands = {
            name: TyperCommand(name, short_help=listing.summary)
            for name, listing in COMMANDS.items()
        }
        super().format_help(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Print the meaning of each exit code."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands that this installation has, without importing any."""
        return [name for name in COMMANDS if is_available(name)]


_UNCLEAR: Final = object()
_DIGITS_MAX: Final = 19


class _Coercion:
    """The conversion of a parameter's words to its value, as typer calls it."""

    def __init__(self, parameter: Any) -> None:
        self._validated = parameter.get_runtime_param
        self._annotation = parameter.type_descriptor.annotation
        info = parameter.type_descriptor.parameter_info
        bounds = {info.parser, info.path_type, info.min, info.max}
        checks = info.exists or info.resolve_path or info.writable or info.allow_dash
        self._is_free = bounds == {None} and info.file_okay and info.dir_okay and not checks

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of a parameter.

        Args:
            value: The word or the words of the command line; None without words.
            param: The parameter, of typer.
            ctx: The context, of typer.
        """
        is_multiple = param.multiple or param.nargs == -1
        plain = self._words(value) if is_multiple else self._word(value, param.default)
        if plain is _UNCLEAR:
            return self._validated().coerce(value, param=param, ctx=ctx)
        return plain

    def _words(self, value: Any) -> Any:
        if value is None:
            return ()
        if self._annotation != list[str] or not self._is_free or isinstance(value, str):
            return _UNCLEAR
        return list(value) if all(isinstance(word, str) for word in value) else _UNCLEAR

    def _word(self, value: Any, default: Any) -> Any:
        if value is None or (value is default and type(value) is self._annotation):
            return value
        if not isinstance(value, str) or not self._is_free:
            return _UNCLEAR
        is_number = value.isascii() and value.isdecimal() and len(value) < _DIGITS_MAX
        is_clear = {
            str: True,
            int: is_number,
            Path: os.access(value, os.R_OK) or not os.path.lexists(value),
        }
        return self._annotation(value) if is_clear.get(self._annotation, False) else _UNCLEAR


def take_plain_values(command: Any) -> None:
    """Let the parameters of a command take plain values without a validator, also the option `--help`."""
    command.get_params = partial(_plain_parameters, command.get_params)


def _plain_parameters(parameters_of: Callable[[Any], list[Any]], ctx: Any) -> list[Any]:
    parameters = parameters_of(ctx)
    for parameter in parameters:
        validated = getattr(parameter, "get_runtime_param", None)
        if validated is not None and not isinstance(validated, partial):
            parameter.get_runtime_param = partial(_same, _Coercion(parameter))
    return parameters


def _same(coercion: _Coercion) -> _Coercion:
    return coercion


_OPTION: Final = re.compile("--[A-Za-z][A-Za-z0-9_-]*")


def refuse_unknown_options(command: Any) -> None:
    """Let a command refuse words that look like options, unless they are behind `--`."""
    command.parse_args = partial(_parse, command.parse_args, command)


def _parse(
    parse: Callable[[Any, list[str]], list[str]], command: Any, ctx: Any, args: list[str]
) -> list[str]:
    """Parse the words of a command line.

    Args:
        ctx: The context, of typer.

    Returns:
        The words that are left.
    """
    known = {name for parameter in command.get_params(ctx) for name in parameter.opts}
    words = args[: args.index("--")] if "--" in args else args
    for word in () if ctx.resilient_parsing else words:
        name = word.partition("=")[0]
        if _OPTION.fullmatch(name) and name not in known:
            hint = did_you_mean(name, sorted(known)) or "."
            raise typer.BadParameter(
                f"there is no option {name}{hint} A word that begins with -- goes behind --",
                ctx=ctx,
            )
    return parse(ctx, args)
