"""The atoms that `penstock tail --url` prints; no package of the extra `server` is needed."""

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from penstock.base.json_keys import as_text, json_bytes
from penstock.cli.remote import RemoteOptions
from penstock.client.atoms import Atom, Start
from penstock.client.synchronous import Client
from penstock.errors import Gone, Unreachable

_encode: Final = msgspec.json.Encoder(enc_hook=as_text).encode
_PAUSE_S: Final = 2.0
"""Between two tries of a gateway that has answered before."""

Chosen = int | str
"""The number of newest atoms to begin with; or as text the first atom: its number, `earliest` or `latest`."""


def atoms_at(
    remote: RemoteOptions, name: str, chosen: Chosen, where: Mapping[str, str], *, follow: bool
) -> Iterator[dict[str, Any]]:
    """Yield the atoms that a gateway sends, as JSON objects.

    Args:
        where: The texts of the values that fields of the events must have.
        follow: Whether to wait for new atoms.

    Raises:
        Gone: Retention has removed the first atom.
        RequestError: The events have no such field or value.
    """
    with remote.client() as client:
        start = _first_at(client, name, chosen)
        atoms = client.stream(name, start, follow=follow, where=where)
        while True:
            try:
                for atom in atoms:
                    yield _plain(atom)
                return
            except Unreachable as error:
                if not follow:
                    raise
                sys.stderr.write(f"{error}; waiting for the gateway at atom {atoms.next}\n")
                time.sleep(_PAUSE_S)


def print_atom(atom: dict[str, Any], *, as_json: bool) -> None:
    """Print an atom in one line: as JSON, or its number, time, epoch and events for people."""
    line = json_bytes(_encode, atom).decode()
    if not as_json:
        events = "  ".join(json_bytes(_encode, event).decode() for event in atom["events"])
        line = f"{atom['atom']}  {atom['time']}  epoch {atom['epoch']}  {events or '(no events)'}"
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _first_at(client: Client, name: str, chosen: Chosen) -> Start:
    """Return the number of the first atom, or `earliest` or `latest`."""
    if isinstance(chosen, str):
        position: Literal["earliest", "latest"] = "earliest" if chosen == "earliest" else "latest"
        return int(chosen) if chosen.isdecimal() else position
    newest = client.stream(name, "latest", follow=False)
    list(newest)
    assert isinstance(newest.next, int), "the gateway has answered"
    start = max(0, newest.next - chosen)
    try:
        next(client.stream(name, start, follow=False), None)
    except Gone as gone:
        return max(start, gone.oldest)
    return start


def _plain(atom: Atom[Any]) -> dict[str, Any]:
    plain = {"atom": atom.number, "events": atom.events, "time": atom.time, "epoch": atom.epoch}
    return msgspec.to_builtins(plain)  # type: ignore[no-any-return]
