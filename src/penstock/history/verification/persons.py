"""Checks of personal data: the file of keys can be read, and each erasure of the journal has its certificate.

No backup contains the keys, and a copy of their file may be older than an erasure. The certificates destroy the keys of
erased persons in such a copy again, so a missing certificate brings a person back. The journal holds each certificate as
the reply to its control record, until retention removes the epoch.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST
from penstock.errors import Corrupt
from penstock.files.key_file import KEYS_REMEDY, KeyFile
from penstock.files.layout import ERASURES, SUBJECT_KEYS
from penstock.history.verification.finding import (
    Finding,
    Remedy,
    harmless,
    rebuildable,
    unrecoverable,
)
from penstock.journal.api import Journal, PartKind, newest_epoch
from penstock.orders.erasure_order import ORDER
from penstock.orders.order import control_id
from penstock.process.erasures import Certificate, Erasures

_COLUMNS = ("request_id", "error", "reply")


def check_keys(data: Path) -> Iterator[Finding]:
    """Check that the file of keys can be read, if there is one."""
    key_file = KeyFile(data / SUBJECT_KEYS)
    if not key_file.path.exists():
        return  # `DataDirectory` refuses a journal with personal data then
    try:
        key_file.tree()
    except Corrupt:
        what = "the keys of personal data are damaged"
        yield Finding(what, SUBJECT_KEYS, Remedy.BACKUP, KEYS_REMEDY)


def check_certificates(data: Path, journal: Journal) -> Iterator[Finding]:
    """Check that the file of certificates has those of the journal, and one for each destroyed key.

    Raises:
        Corrupt: The journal is damaged.
    """
    erasures, key_file = Erasures(data), KeyFile(data / SUBJECT_KEYS)
    try:
        destroyed = key_file.keys().erasures() if key_file.path.exists() else 0
    except Corrupt:
        destroyed = 0  # `check_keys` reports it
    wanted = certificates_in(journal)
    try:
        stored = erasures.every(journal.identity, newest_epoch(journal))
    except Corrupt:
        what = "the certificates of erasures are damaged"
        finding = unrecoverable(what, ERASURES)
        how = f"{finding.how}; then penstock verify APP --repair adds the certificates that only the journal has"
        yield msgspec.structs.replace(finding, how=how)
        return
    if missing := [each.subject for each in wanted if each not in stored]:
        what = f"{len(missing)} erasures of the journal have no certificate, for example that of {missing[0]}"
        how = f"penstock verify APP --repair writes them again, from the journal; without them an older copy of {SUBJECT_KEYS} "
        yield rebuildable(what, ERASURES, f"{how}brings the persons back")
    elif len(stored) < destroyed:
        what = f"{destroyed - len(stored)} destroyed keys have no certificate"
        why = (
            f"{SUBJECT_KEYS} is newer than this directory, or {ERASURES} was removed: then put the file of the newest backup "
            f"back. Use no older copy of {SUBJECT_KEYS} here: it brings the persons back"
        )
        yield harmless(what, ERASURES, why)


def certificates_in(journal: Journal) -> list[Certificate]:
    """Return the certificates of all erasures that the journal holds, in order."""
    last = journal.last()
    if last is None:
        return []
    certificates: list[Certificate] = []
    for _, table in journal.rows(PartKind.TRANSACTIONS, BEFORE_FIRST, last.epoch, _COLUMNS):
        is_order = pc.starts_with(table["request_id"], control_id(ORDER, ""))
        done = table.filter(pc.and_(is_order, pc.is_null(table["error"])))
        certificates += [
            msgspec.msgpack.decode(reply, type=Certificate) for reply in done["reply"].to_pylist()
        ]
    return certificates
