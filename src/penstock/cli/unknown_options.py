"""Unknown options of the commands whose words may begin with a hyphen, as `-5` does: they are not taken as words."""

import difflib
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import typer

_OPTION: Final = re.compile("--[A-Za-z][A-Za-z0-9_-]*")


def refuse_unknown_options(command: Any) -> None:
    """Let a command refuse words that look like options, unless they are behind `--`."""
    command.parse_args = partial(_parse, command.parse_args, command)


def _parse(
    parse: Callable[[Any, list[str]], list[str]], command: Any, ctx: Any, args: list[str]
) -> list[str]:
    """Parse the words of a command line.

    Args:
        parse: The command's own method.
        command: The command.
        ctx: The context, of typer.
        args: The words.

    Returns:
        The words that are left.

    Raises:
        typer.BadParameter: A word looks like an option, and the command has no such option.
    """
    known = {name for parameter in command.get_params(ctx) for name in parameter.opts}
    words = args[: args.index("--")] if "--" in args else args
    for word in () if ctx.resilient_parsing else words:
        name = word.partition("=")[0]
        if _OPTION.fullmatch(name) and name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise typer.BadParameter(
                f"there is no option {name}{hint} A word that begins with -- goes behind --",
                ctx=ctx,
            )
    return parse(ctx, args)
