"""The content of a journal and the stores, read without the engine's help."""

from typing import Any

from penstock.base.ids import BEFORE_FIRST, EntityKey
from penstock.journal.api import Commit, Journal, PartKind
from penstock.journal.atoms import decode_atom
from penstock.log.api import Record
from penstock.model.streams.stream import Atom
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.state.digest import digest_of_mapping
from tests.differential.simulation import Answer, apply


def answers_of(journal: Journal) -> list[Answer]:
    """Return all replies, in log order within each epoch."""
    return [answer for commit in journal.commits(BEFORE_FIRST) for answer in _of(journal, commit)]


def _of(journal: Journal, commit: Commit) -> list[Answer]:
    rows = _rows_of(journal, commit)
    return [Answer(row["request_id"], row["error"], row["reply"]) for row in rows]


def _rows_of(journal: Journal, commit: Commit) -> list[dict[str, Any]]:
    parts = commit.parts_of(PartKind.TRANSACTIONS)
    rows = [row for part in parts for row in journal.read(part).to_pylist()]
    return sorted(rows, key=lambda row: int(row["lsn"]))


def records_of(journal: Journal) -> list[Record]:
    """Return the records that have been processed, in log order within each epoch; the log has forgotten the oldest."""
    return [
        Record(row["lsn"], row["request_id"], row["request"], row["time_us"])
        for commit in journal.commits(BEFORE_FIRST)
        for row in _rows_of(journal, commit)
    ]


def streams_of(journal: Journal) -> dict[str, list[Atom]]:
    """Return the atoms of each stream; their numbers have no gaps, and commits count them."""
    streams: dict[str, list[Atom]] = {}
    for commit in journal.commits(BEFORE_FIRST):
        rows = [
            row
            for part in commit.parts_of(PartKind.EVENTS)
            for row in journal.read(part).to_pylist()
        ]
        for row in rows:
            atoms = streams.setdefault(row["stream"], [])
            assert row["atom"] == len(atoms), "numbers have no gaps"
            atoms.append(decode_atom(row["events"]))
        counted = {stream: len(atoms) for stream, atoms in streams.items()}
        assert dict(commit.atoms) == counted, "a commit counts the atoms"
    return streams


def state_of(journal: Journal) -> dict[EntityKey, bytes]:
    """Fold all changes; an epoch changes an entity once at most."""
    state: dict[EntityKey, bytes] = {}
    for commit in journal.commits(BEFORE_FIRST):
        changed: set[tuple[str, str]] = set()
        for part in commit.parts_of(PartKind.CHANGES):
            table = journal.read(part)
            names = set(zip(*table.select(["entity", "key"]).to_pydict().values(), strict=True))
            assert not changed & names, "two parts of one epoch change the same entity"
            changed |= names
            apply(state, table)
    return state


def digest_of_stores(config: Config, journal: Journal) -> str:
    """Return the digest of the stores after the last epoch."""
    last = journal.last()
    assert last is not None, "an epoch was committed"
    stores = DataDirectory(config.data).open_stores(journal)
    stores.follow(last)
    try:
        with stores.at(last.epoch) as reader:
            return digest_of_mapping(dict(reader.items()))
    finally:
        stores.close()
