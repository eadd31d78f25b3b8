"""Completion of words on the command line, for a shell: applications, classes, methods, request ids.

`penstock --install-completion` installs it. A failure completes nothing and prints nothing. Completing
the words of `penstock call` imports the application, as the command itself does.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
import typer

from penstock.files.layout import JOURNAL, LOG

DIRECTORY: Final = Path(".penstock")
FILES_MAX: Final = 500
"""The most files that are searched for applications."""

IDS_MAX: Final = 50
"""The number of newest request ids that are offered."""

_PLACES: Final = ("*.py", "*/__init__.py", "*/*.py", "*/*/__init__.py")
_SIZE_MAX: Final = 1 << 20
_BUILT_IN: Final = ("create", "delete", "exists", "upsert")

Complete = Callable[[typer.Context, list[str], str], list[str]]


def _silent(find: Callable[[typer.Context], Iterator[str]]) -> Complete:
    """Return a completion of the words that a function finds; it raises and prints nothing."""

    @wraps(find)
    def complete(ctx: typer.Context, args: list[str], incomplete: str) -> list[str]:
        try:
            with _no_output():
                return [word for word in find(ctx) if word.startswith(incomplete)]
        except (Exception, SystemExit):  # noqa: BLE001 -- a shell must not show an error here
            return []

    # Typer chooses the arguments by the signature.
    del complete.__wrapped__
    complete.__annotations__ = {"ctx": typer.Context, "args": list[str], "incomplete": str}
    return complete


@_silent
def applications(ctx: typer.Context) -> Iterator[str]:
    """Complete APP: the modules and packages here, and one folder below, that make an `App`."""
    yield from _applications()


@_silent
def call_words(ctx: typer.Context) -> Iterator[str]:
    """Complete the words of a call: the application, a class or function, and the method after a key."""
    from penstock.process.loading import load_app  # only this completion needs it

    words = list(ctx.params.get("words") or ())
    named = ctx.params.get("named") or (words.pop(0) if words else None)
    if named is None:
        yield from _applications()
        return
    app = load_app(named)
    if not words:
        yield from app.entities
        yield from app.functions
    elif len(words) == 2 and words[0] in app.entities:
        yield from app.entities[words[0]].methods
        yield from _BUILT_IN


@_silent
def append_words(ctx: typer.Context) -> Iterator[str]:
    """Complete the words of an append: the application, and the streams that take appends."""
    from penstock.process.loading import load_app  # only this completion needs it

    words = list(ctx.params.get("words") or ())
    named = ctx.params.get("named") or (words.pop(0) if words else None)
    if named is None:
        yield from _applications()
    elif not words:
        streams = load_app(named).topology.streams.values()
        yield from (stream.name for stream in streams if stream.is_open)


def _applications() -> Iterator[str]:
    paths = (path for place in _PLACES for path in sorted(Path().glob(place)))
    for path in islice(paths, FILES_MAX):
        if path.stat().st_size <= _SIZE_MAX and b"App(" in path.read_bytes():
            yield str(path.parent if path.name == "__init__.py" else path)


@_silent
def stored_classes(ctx: typer.Context) -> Iterator[str]:
    """Complete CLASS or ENTITY: the classes whose entities are stored in data directories."""
    for data in _data_directories(ctx):
        yield from msgspec.json.decode((data / JOURNAL / "_shapes.json").read_bytes())["shapes"]


@_silent
def stored_streams(ctx: typer.Context) -> Iterator[str]:
    """Complete STREAM: the streams that have atoms in data directories."""
    from penstock.process.data_directory import DataDirectory  # only this completion needs it

    for data in _data_directories(ctx):
        directory = DataDirectory(data)
        journal = directory.open_journal_of(directory.app_name or "")
        try:
            last = journal.last()
            yield from sorted(last.atoms) if last is not None else []
        finally:
            journal.close()


@_silent
def request_ids(ctx: typer.Context) -> Iterator[str]:
    """Complete REQUEST_ID: the newest requests in the logs of data directories, the newest first."""
    from penstock.base.ids import Lsn  # only this completion needs them
    from penstock.log.sqlite import SqliteLog

    for data in _data_directories(ctx):
        log = SqliteLog(data / LOG)
        try:
            first = max(log.start(), log.end() - IDS_MAX)
            yield from (entry.request_id for entry in reversed(log.read(Lsn(first), log.end())))
        finally:
            log.close()


@_silent
def scheduled_ids(ctx: typer.Context) -> Iterator[str]:
    """Complete the REQUEST_ID of a scheduled request: those that are due next, the first one first."""
    from penstock.log.sqlite import SqliteLog

    for data in _data_directories(ctx):
        log = SqliteLog(data / LOG)
        try:
            yield from (entry.request_id for _, entry in log.upcoming(IDS_MAX))
        finally:
            log.close()


def _data_directories(ctx: typer.Context) -> list[Path]:
    chosen = ctx.params.get("data")
    directories = [Path(chosen)] if chosen else sorted(DIRECTORY.iterdir())
    return [data for data in directories if (data / LOG).exists()]


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
