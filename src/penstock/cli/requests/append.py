"""`penstock append`: append an atom to a stream of an application.

The append goes to the log in the data directory, or with `--url` to a gateway. For the second way, this
module loads no package of the extra `server`.
"""

import sys
import uuid
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.cli import word_completion
from penstock.cli.app_word import split_app
from penstock.cli.options import DataOptions, JsonOption, RequestIdOption, TimeoutOption
from penstock.cli.output import print_result
from penstock.cli.remote import RemoteOptions
from penstock.deployment.loading import load_app
from penstock.errors import ConfigError, RequestError

CONTEXT_SETTINGS: Final = {"ignore_unknown_options": True}

HELP: Final = """Append events to a stream as one atom, and wait until its epoch is committed.

WORDS are [APP] STREAM [EVENT …]. APP may be left out if --app or a setting names the application. An event is
JSON or bare text. The word - reads events from standard input, and --file from a file: one line of JSON for each
event.

The append is durable before the command waits: if penstock run is stopped, the append is processed at the
next start. The same --request-id never takes effect twice.

With --url, a gateway takes the append, and APP is needed only for events that JSON does not have.

\b
Examples:
  penstock append examples/cart puts '{"item": "tea", "price": 2}'
  penstock append words.py lines "the quick fox" --request-id line-1
  penstock append words.py lines --file lines.jsonl
  tail -n 100 lines.jsonl | penstock append words.py lines -
  penstock append lines "the end" --url http://127.0.0.1:8000
"""

_STANDARD_INPUT: Final = "-"


def command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="WORDS…",
            help="The stream and the events; see above.",
            autocompletion=word_completion.append_words,
        ),
    ],
    options: DataOptions,
    remote: RemoteOptions,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Read the events from JSON lines."),
    ] = None,
    request_id: RequestIdOption = None,
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Append events to a stream; see `HELP`."""
    from rich.text import Text

    from penstock.cli.requests.call_words import (
        append_of_words,  # the help needs no model of applications
    )

    form = "penstock append STREAM EVENT"
    options, (stream, *events) = split_app(options, words, form, remote=remote.url is not None)
    text = _text_of(events, file)
    chosen = request_id or uuid.uuid4().hex
    if remote.url is None:
        count = _append_here(options, (stream, events, text), chosen, timeout_s)
    else:
        spec = options.settings().app
        app = load_app(spec) if spec else None
        with remote.client(app, timeout_s) as client:
            (count,) = client.bulk([append_of_words(app, stream, events, text, chosen)])
    noun = "event" if count == 1 else "events"
    line = Text(f"Appended {count} {noun} to stream {stream}, as one atom with the id {chosen}.")
    plain = {"stream": stream, "events": count, "request_id": chosen}
    print_result(plain, lambda console: console.print(line), as_json=as_json)


def _append_here(
    options: DataOptions,
    given: tuple[str, list[str], bytes | None],
    request_id: str,
    timeout_s: float,
) -> int:
    """Append to the log of the data directory, and return the number of events.

    Args:
        options: The options that name the application and its data directory.
        given: The stream, the words of events, and the text with JSON lines.
        timeout_s: How long to wait for the epoch.
    """
    app, settings = options.load_unchecked()
    from penstock.cli.requests.call_words import append_of_words

    append = append_of_words(app, *given, request_id)
    # With --url, the command runs without the packages that read and write a data directory.
    from penstock.cli.requests.local_call import reply_to

    count: int = reply_to(app, settings, append, request_id, timeout_s).value(int)
    return count


def _text_of(words: list[str], file: Path | None) -> bytes | None:
    """Return the JSON lines with the events; None if the words are the events."""
    if words == [_STANDARD_INPUT] and file is None:
        return sys.stdin.buffer.read()
    if (file is None) == (not words):
        raise RequestError(
            "give the events in one place: as words after the stream, with --file FILE, or with the word - "
            "from standard input"
        )
    if file is None:
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"--file {file}: {error.strerror}") from error
