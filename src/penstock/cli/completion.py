"""Completion of words on the command line, for a shell, and of the names of applications.

`penstock --install-completion` installs it. A failure completes nothing and prints nothing. `word_completion` completes
the words of an application and of a data directory.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Final

import typer

FILES_MAX: Final = 500
"""The most files that are searched for applications."""

_PLACES: Final = ("*.py", "*/__init__.py", "*/*.py", "*/*/__init__.py")
_SIZE_MAX: Final = 1 << 20

_WORDS: Final = "COMP_WORDS"
_INDEX: Final = "COMP_CWORD"
_BREAKS: Final = frozenset(":=")
"""bash makes words of their own of these characters."""

_GIVEN: Final = "_PENSTOCK_GIVEN"
"""The part of the incomplete word before its last `:`, which bash keeps."""

_SAFE: Final = re.compile(r"[\w@%+=:,./~-]+")
"""A shell may run the other characters as code, and callers choose keys and request ids."""

Complete = Callable[[typer.Context, list[str], str], list[str]]


def silent(find: Callable[[typer.Context], Iterator[str]]) -> Complete:
    """Return a completion of the words that a function finds; it raises and prints nothing.

    A word that a shell must quote is not offered.
    """

    @wraps(find)
    def complete(ctx: typer.Context, args: list[str], incomplete: str) -> list[str]:
        try:
            with _no_output():
                given = os.environ.get(_GIVEN, "")
                words = [word for word in find(ctx) if word.startswith(given + incomplete)]
                return [word.removeprefix(given) for word in words if _SAFE.fullmatch(word)]
        except (Exception, SystemExit):  # noqa: BLE001 -- a shell must not show an error here
            return []

    # Typer chooses the arguments by the signature.
    del complete.__wrapped__
    complete.__annotations__ = {"ctx": typer.Context, "args": list[str], "incomplete": str}
    return complete


@silent
def applications(ctx: typer.Context) -> Iterator[str]:
    """Complete APP: the modules and packages here, and one folder below, that make an `App`."""
    yield from application_names()


def application_names() -> Iterator[str]:
    """Yield the modules and packages here, and one folder below, that make an `App`."""
    paths = (path for place in _PLACES for path in sorted(Path().glob(place)))
    for path in islice(paths, FILES_MAX):
        if path.stat().st_size <= _SIZE_MAX and b"App(" in path.read_bytes():
            yield str(path.parent if path.name == "__init__.py" else path)


def join_words(environment: MutableMapping[str, str]) -> None:
    """Join the words that bash divides at `:` and `=`, as `kiosk.py:app` and `--app=kiosk.py`.

    Args:
        environment: The environment in which bash asks for a completion; other environments stay as they are.
    """
    if not {_WORDS, _INDEX} <= environment.keys():
        return
    index = int(environment[_INDEX])
    joined: list[list[str]] = []
    is_open = False
    for word in environment[_WORDS].split("\n")[: index + 1]:
        is_break = bool(word) and set(word) <= _BREAKS
        if is_break and word == "=" and joined and joined[-1][0].startswith("-"):
            joined.append([""])  # the value of an option
            is_open = True
        elif joined and (is_break or is_open):
            joined[-1].append(word)
            is_open = is_break
        else:
            joined.append([word])
    *before, last = joined
    given, incomplete = ("", "".join(last)) if len(last) == 1 else ("".join(last[:-1]), last[-1])
    if incomplete and set(incomplete) <= _BREAKS:
        given, incomplete = given + incomplete, ""
    environment[_WORDS] = "\n".join(["".join(parts) for parts in before] + [incomplete])
    environment[_INDEX] = str(len(before))
    environment[_GIVEN] = given


@contextmanager
def _no_output() -> Iterator[None]:
    """Discard everything that the application prints when it is imported."""
    with Path(os.devnull).open("w") as nowhere:
        before = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = nowhere
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
