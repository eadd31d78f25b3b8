"""Completion of the words of an application and of a data directory: classes, methods, streams, request ids.

Completing the words of `penstock call` imports the application, as the command itself does. Completing a key reads the
stores of the state without a lock, in a child process that ends after `KEYS_S`.
"""

import io
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import msgspec
import typer

from penstock.cli.app_word import split_app
from penstock.cli.completion import application_names, beginning_in, silent
from penstock.cli.options import DIRECTORY, NOWHERE, DataOptions
from penstock.deployment.loading import load_app
from penstock.files.layout import JOURNAL, LOG, STATE

if TYPE_CHECKING:
    from penstock.model.application import App

IDS_MAX: Final = 50
"""The number of newest request ids that are offered."""

KEYS_MAX: Final = 50
"""The number of keys that are offered."""

KEYS_S: Final = 0.3
"""The longest time to read keys, in seconds."""


@silent
def call_words(ctx: typer.Context) -> Iterator[str]:
    """Complete the words of a call: the application, a class or function, a key, and a method."""
    app, words = _app_and_words(ctx)
    if app is None:
        yield from application_names()
    elif not words:
        yield from app.entities
        yield from app.functions
    elif len(words) == 1 and words[0] in app.entities:
        yield from _keys(ctx, app.stored_name(words[0]))
    elif len(words) == 2 and words[0] in app.entities:
        yield from app.entities[words[0]].methods
        from penstock.model.declaration import RESERVED

        yield from RESERVED


@silent
def append_words(ctx: typer.Context) -> Iterator[str]:
    """Complete the words of an append: the application, and the streams that take appends."""
    app, words = _app_and_words(ctx)
    if app is None:
        yield from application_names()
    elif not words:
        yield from _open_streams(app)


@silent
def flow_targets(ctx: typer.Context) -> Iterator[str]:
    """Complete the words of a pause: the application, and what can be paused."""
    app, words = _app_and_words(ctx)
    if app is None:
        yield from application_names()
    elif not words:
        from penstock.gateway.flow.limit_table import targets_of  # only this completion needs it

        yield from targets_of(app)


def _app_and_words(ctx: typer.Context) -> tuple["App | None", list[str]]:
    """Return the application that a command line or a setting names, and the words behind it."""
    words, options = list(ctx.params.get("words") or ()), _options(ctx)
    if words:
        options, words = split_app(options, [*words, "next"], "", remote=False)
        words = words[:-1]
    spec = options.settings().app
    return load_app(spec) if spec else None, words


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
        yield from msgspec.json.decode((data / JOURNAL / "_shapes.json").read_bytes())["shapes"]


@silent
def stored_keys(ctx: typer.Context) -> Iterator[str]:
    """Complete KEY: the keys of the stored entities of a class."""
    yield from _keys(ctx, ctx.params["entity"])


def _keys(ctx: typer.Context, class_name: str) -> Iterator[str]:
    """Yield keys that begin with the incomplete word; those of persons are offered nowhere."""
    from penstock.journal.shapes import versions_in  # only this completion needs them
    from penstock.model.shape import is_personal

    until = time.monotonic() + KEYS_S
    for data in _data_directories(ctx):
        versions = versions_in((data / JOURNAL / "_shapes.json").read_bytes()).get(class_name, ())
        if versions and not any(is_personal(version.shape) for version in versions):
            yield from _keys_in(data / STATE, class_name, beginning_in(ctx), until)


def _keys_in(directory: Path, class_name: str, beginning: str, until: float) -> list[str]:
    """Return keys in stores; none if the read takes longer, fails or ends its process."""
    from penstock.process.child_process import start

    def read(pipe: IO[bytes]) -> None:
        from penstock.state.key_glance import glance_at_keys

        keys = glance_at_keys(directory, class_name, beginning, KEYS_MAX)
        pipe.write(msgspec.json.encode(keys))

    child, answer = start(read, None, nullcontext()), io.BytesIO()
    try:
        whole = child.copy(answer, until)
    finally:
        child.end()
    keys = msgspec.json.decode(answer.getvalue(), type=list[str]) if whole else []
    return [key for key in keys if not key.startswith("-")]  # such a word is an option


@silent
def stored_streams(ctx: typer.Context) -> Iterator[str]:
    """Complete STREAM: the streams that have atoms in data directories."""
    from penstock.process.data_directory import DataDirectory  # only this completion needs it

    for data in _data_directories(ctx):
        directory = DataDirectory(data)
        with closing(directory.open_journal_of(directory.app_name or "")) as journal:
            last = journal.last()
            yield from sorted(last.atoms) if last is not None else []


@silent
def request_ids(ctx: typer.Context) -> Iterator[str]:
    """Complete REQUEST_ID: the newest requests in the logs of data directories, the newest first."""
    from penstock.base.ids import Lsn  # only this completion needs them
    from penstock.log.sqlite import SqliteLog

    for data in _data_directories(ctx):
        with closing(SqliteLog(data / LOG)) as log:
            first = max(log.start(), log.end() - IDS_MAX)
            yield from (entry.request_id for entry in reversed(log.read(Lsn(first), log.end())))


@silent
def scheduled_ids(ctx: typer.Context) -> Iterator[str]:
    """Complete the REQUEST_ID of a scheduled request: those that are due next, the first one first."""
    from penstock.log.sqlite import SqliteLog

    for data in _data_directories(ctx):
        with closing(SqliteLog(data / LOG)) as log:
            yield from (entry.request_id for _, entry in log.upcoming(IDS_MAX))


def _data_directories(ctx: typer.Context) -> list[Path]:
    chosen = _options(ctx).settings().data
    directories = sorted(DIRECTORY.iterdir()) if chosen == NOWHERE else [chosen]
    return [data for data in directories if (data / LOG).exists()]
