"""`penstock tail`: the atoms of a stream, from the journal or from a gateway."""

from collections.abc import Iterator
from typing import Annotated, Final

import typer

from penstock.cli import word_completion
from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError

HELP: Final = """Show the newest atoms of a stream, and then each new one until you press Ctrl-C.

Every stream can be shown, also those of workflows, and those of failed atoms (NAME-failed). Each atom has its number
in the stream, the time of the request that caused it, its epoch and its events. The command reads the journal in the
data directory; no process of the application needs to run. With --url a gateway answers.

--where FIELD=VALUE shows only events with this value in this field of a record; atoms without such events are left out. The
value is written as in JSON, a text without quotation marks, a reference as its key. With several, an event has
all values. -n counts the atoms that are left out, too.

With --json, each line is one atom as JSON. After an interruption, --from with the number after the last one continues
without a gap.

\b
Examples:
  penstock tail counts words.py
  penstock tail counts words.py --from earliest --no-follow --json | jq .events
  penstock tail split-failed words.py -n 3 --where code=aborted
  penstock tail counts --from 120 --url http://127.0.0.1:8000
"""

SHOWN: Final = 10


def command(
    stream: Annotated[
        str,
        typer.Argument(
            metavar="STREAM", help="Its name.", autocompletion=word_completion.stored_streams
        ),
    ],
    options: AppOptions,
    remote: RemoteOptions,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="START", help="The number of the first atom, earliest or latest."
        ),
    ] = None,
    newest: Annotated[
        int | None,
        typer.Option("-n", "--last", metavar="N", min=0, help="Begin N atoms before the newest."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="FIELD=VALUE",
            help="Show the events with this value; may be repeated.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for new atoms, or end.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Print the atoms of a stream; see `HELP`."""
    if start is not None and newest is not None:
        raise ConfigError("--from and -n both choose the first atom; give one of them")
    if start is not None and start not in ("earliest", "latest") and not start.isdecimal():
        raise ConfigError(f"--from {start}: write a number, earliest or latest")
    texts = _texts_of(where or [])
    if remote.url is None:
        options.find()
    from penstock.cli.queries.tail_atoms import atoms_at, print_atom

    chosen = (SHOWN if newest is None else newest) if start is None else start
    atoms: Iterator[dict[str, object]]
    if remote.url is None:
        from penstock.cli.queries.tail_journal import atoms_here

        atoms = atoms_here(options, stream, chosen, texts, follow=follow)
    else:
        atoms = atoms_at(remote, stream, chosen, texts, follow=follow)
    for atom in atoms:
        print_atom(atom, as_json=as_json)


def _texts_of(words: list[str]) -> dict[str, str]:
    """Return the texts of the values that events must have, by field."""
    texts: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals):
            raise ConfigError(f"--where {word}: write FIELD=VALUE, as in --where item=tea")
        if name in texts:
            raise ConfigError(f"--where names {name} twice; an event has one value of a field")
        texts[name] = text
    return texts
