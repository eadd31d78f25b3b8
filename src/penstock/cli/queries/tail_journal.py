"""The atoms that `penstock tail` prints from the journal of a data directory."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import msgspec

from penstock.cli.options import AppOptions
from penstock.cli.queries.sql_answer import require_journal
from penstock.cli.queries.tail_atoms import Chosen
from penstock.gateway.responses import json_of
from penstock.gateway.stream_bodies import fitting_part, json_atom
from penstock.journal.atoms import AtomReader
from penstock.model.event_filter import event_filter, follow_texts
from penstock.process.data_directory import DataDirectory


def atoms_here(
    options: AppOptions, name: str, chosen: Chosen, where: Mapping[str, str], *, follow: bool
) -> Iterator[dict[str, Any]]:
    """Yield the atoms in the journal of a data directory, as JSON objects; see `tail_atoms.atoms_at`."""
    app, settings = options.load()
    stream = app.stream(name)
    only = event_filter(stream, follow_texts(where)) if where else None
    require_journal(settings)
    with closing(DataDirectory(settings.data).open_journal(app)) as journal:
        reader = AtomReader(journal)
        start = _first(chosen, reader.published(name), reader.oldest(name))
        for atom in reader.follow(name, start) if follow else reader.atoms(name, start):
            wanted = atom if only is None else fitting_part(stream, atom, only)
            if wanted is not None:
                yield msgspec.json.decode(json_of(json_atom(stream, wanted)))


def _first(chosen: Chosen, published: int, oldest: int) -> int:
    """Return the number of the first atom."""
    match chosen:
        case int():
            return max(oldest, published - chosen)
        case "earliest":
            return oldest
        case "latest":
            return published
        case _:
            return int(chosen)
