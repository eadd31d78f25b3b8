"""The application among the words of `penstock call` and `penstock append`; no model of applications is needed for it."""

import sys
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from penstock.cli.options import UNNAMED, DataOptions
from penstock.errors import ConfigError

_SIGNS_OF_APP: Final = "/.:"
"""A word with one of these characters names an application: classes and functions have none."""


def split_app(
    options: DataOptions, words: list[str], form: str, *, remote: bool
) -> tuple[DataOptions, list[str]]:
    """Return the options with the application that the words name, and the other words.

    The first word is the application if it has the form of a path or of `module:name`. A bare word is
    the application only if no option or setting names one, and if the call is not sent to a URL. A word with dots alone
    names a module of a package, as in `shop.services`, if there is such a package.

    Args:
        form: The command and its words without the application: `penstock call ENTITY KEY METHOD`.
        remote: Whether a gateway gets the call or the append; it needs no application.
    """
    first, *rest = words
    known = options.settings().app
    if options.named is None and first != known:
        _check_dots(first)
    bare = not any(sign in first for sign in _SIGNS_OF_APP)
    if options.named is not None or (bare and first != known and (known or remote)):
        return options, words
    if not rest:
        raise ConfigError(
            f"{first} is taken for the application, and nothing follows; write {form} with --app APP. "
            f"Or {UNNAMED}"
        )
    return replace(options, named=first), rest


def _check_dots(word: str) -> None:
    """Refuse a word such as `Item.create`, unless it names a module of a package."""
    outer, dot, inner = word.partition(".")
    if not dot or word.endswith(".py") or not all(map(str.isidentifier, word.split("."))):
        return
    package = PathFinder.find_spec(outer, [str(Path.cwd()), *sys.path])
    if package is None or package.submodule_search_locations is None:
        raise ConfigError(
            f"{word} can be read in two ways. For method {inner} of class {outer}, write {outer} KEY {inner}. "
            f"It is no application's module: there is no package {outer}"
        )
