"""Completion of the words of an application and of a data directory: classes, methods, streams.

Completing the words of `penstock call` imports the application, as the command itself does.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from penstock.cli.app_word import split_app
from penstock.cli.completion import application_names, silent
from penstock.cli.options import DIRECTORY, NOWHERE, DataOptions
from penstock.deployment.loading import load_app
from penstock.files.roots import has_journal, journal_root

if TYPE_CHECKING:
    from penstock.model.application import App


@silent
def call_words(ctx: typer.Context) -> Iterator[str]:
    """Complete the words of a call: the application, a class or function, and a method."""
    return _words_behind_app(ctx, _words_of_call)


@silent
def append_words(ctx: typer.Context) -> Iterator[str]:
    """Complete the words of an append: the application, and the streams that take appends."""
    return _words_behind_app(ctx, lambda app, words: () if words else _open_streams(app))


@silent
def view_names(ctx: typer.Context) -> Iterator[str]:
    """Complete the words of an order about a view: the application, and its views."""
    return _words_behind_app(ctx, lambda app, words: () if words else app.views)


@silent
def capture_names(ctx: typer.Context) -> Iterator[str]:
    """Complete the words of an order about a stream of changes: the application, and its streams of changes."""
    return _words_behind_app(ctx, lambda app, words: () if words else app.topology.captures)


@silent
def flow_targets(ctx: typer.Context) -> Iterator[str]:
    """Complete the words of a pause: the application, and the targets of a pause."""
    from penstock.gateway.flow.limit_table import targets_of  # only this completion needs it

    return _words_behind_app(ctx, lambda app, words: () if words else targets_of(app))


def _words_of_call(app: "App", words: list[str]) -> Iterator[str]:
    if not words:
        yield from app.entities
        yield from app.functions
    elif len(words) == 2 and words[0] in app.entities:
        yield from app.entities[words[0]].methods
        from penstock.model.declaration import RESERVED

        yield from RESERVED


def _words_behind_app(
    ctx: typer.Context, behind: "Callable[[App, list[str]], Iterable[str]]"
) -> Iterator[str]:
    """Yield the names of applications, or the words that may follow those behind the application."""
    words, options = list(ctx.params.get("words") or ()), _options(ctx)
    if words:
        options, words = split_app(options, [*words, "next"], "", remote=False)
        words = words[:-1]
    spec = options.settings().app
    yield from behind(load_app(spec), words) if spec else application_names()


def _options(ctx: typer.Context) -> DataOptions:
    """Return the options of the command that choose the application and the settings."""
    names = ("named", "data", "config", "assignments")
    return DataOptions(**{name: ctx.params.get(name) or None for name in names})


def _open_streams(app: "App") -> Iterator[str]:
    streams = app.topology.streams.values()
    return (stream.name for stream in streams if stream.is_open)


@silent
def stored_classes(ctx: typer.Context) -> Iterator[str]:
    """Complete CLASS or ENTITY: the classes whose entities are stored in data directories."""
    for data in _data_directories(ctx):
        yield from msgspec.json.decode(journal_root(data).get("_shapes.json"))["shapes"]


@silent
def stored_streams(ctx: typer.Context) -> Iterator[str]:
    """Complete STREAM: the streams that have atoms in data directories."""
    from penstock.process.data_directory import DataDirectory  # only this completion needs it

    for data in _data_directories(ctx):
        directory = DataDirectory(data)
        with closing(directory.open_journal_of(directory.app_name or "")) as journal:
            last = journal.last()
            yield from sorted(last.atoms) if last is not None else []


def _data_directories(ctx: typer.Context) -> list[Path]:
    chosen = _options(ctx).settings().data
    directories = sorted(DIRECTORY.iterdir()) if chosen == NOWHERE else [chosen]
    return [data for data in directories if has_journal(data)]
