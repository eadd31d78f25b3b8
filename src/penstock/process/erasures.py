"""Erasure: the order of an operator to forget a person, and the certificate that remains.

An erasure is a control record of the log. The epoch of this record deletes the entity, and after its commit the driver
destroys the key of the subject (`files.key_file`). The certificate is durable before the commit. Each process that opens the
journal destroys the keys of all certificates whose epoch is committed. So a crash in between delays the destruction
only, and an older file of keys brings no person back. Backups and forks have the certificates, also those of epochs
that they leave out.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import EntityKey, Epoch, split_entity_key
from penstock.errors import Corrupt, RequestError, Unencodable
from penstock.files import durable
from penstock.files.key_file import KeyFile
from penstock.files.layout import ERASURES, SUBJECT_KEYS
from penstock.files.lock import locked_directory
from penstock.files.sealed import seal, unseal
from penstock.model.application import App, unknown

_FIELD: Final = "erasures"


class Certificate(msgspec.Struct, frozen=True):
    """The proof that a subject was erased.

    Attributes:
        subject: The entity, such as `User/ada`.
        generation: How often the subject had been erased before.
        epoch: The epoch from which on the subject is gone.
        time_us: When the driver executed the erasure, microseconds since the Unix epoch.
        hash: SHA-256 of the other attributes as a JSON array, in this order.
    """

    subject: str
    generation: int
    epoch: int
    time_us: int
    journal: str
    hash: str = ""

    def sealed(self) -> "Certificate":
        """Return the certificate with its hash."""
        facts = (self.subject, self.generation, self.epoch, self.time_us, self.journal)
        digest = hashlib.sha256(msgspec.json.encode(facts)).hexdigest()
        return msgspec.structs.replace(self, hash=digest)

    def counts(self, journal: str, upto: Epoch) -> bool:
        """Say whether the erasure is committed: in the other journal, or in a journal with this newest epoch."""
        return self.journal != journal or self.epoch <= upto


class Erasures:
    """The certificates in a data directory."""

    def __init__(self, data: Path) -> None:
        self._path = data / ERASURES
        self._keys = KeyFile(data / SUBJECT_KEYS)

    @property
    def exist(self) -> bool:
        """Whether there may be certificates."""
        return self._path.exists()

    def every(self, journal: str, upto: Epoch) -> list[Certificate]:
        """Return the certificates that count, in order.

        Args:
            journal: The identity of the journal. The certificates of another journal, from which this one was
                restored or forked, count all.
            upto: Its newest epoch; a certificate of an epoch that is not committed does not count.

        Raises:
            Corrupt: The file is damaged.
        """
        return [each for each in self._stored() if each.counts(journal, upto)]

    def generation(self, subject: str) -> int:
        """Return how often a subject was erased."""
        return self._keys.tree().generation(subject)

    def record(self, certificate: Certificate) -> None:
        """Store a certificate durably, before the commit of its epoch; it replaces one of the same epoch.

        Raises:
            Corrupt: The file is damaged.
        """
        with self._locked():
            self._replace(certificate.journal, Epoch(certificate.epoch - 1), [certificate])

    def forget(self, journal: str, after: Epoch) -> None:
        """Remove the certificates after the newest epoch durably: their erasures have failed or did not happen.

        The driver calls this before it records an erasure as failed. Else the certificate would count with the commit
        of the same epoch, and the key would be destroyed.

        Raises:
            Corrupt: The file is damaged.
            JournalUnavailable: The disk is full or fails.
        """
        with self._locked():
            self._replace(journal, after, [])

    def add(self, certificates: Iterable[Certificate]) -> None:
        """Store those certificates again that the file has lost; raises as `record`."""
        with self._locked():
            stored = self._stored()
            durable.replace(
                self._path,
                seal(_FIELD, stored + [each for each in certificates if each not in stored]),
            )

    def keep_committed(self, journal: str, upto: Epoch) -> None:
        """Do as `forget`, in a copy that no other process uses."""
        self._replace(journal, upto, [])

    def complete(self, journal: str, upto: Epoch) -> None:
        """Destroy the keys of all certificates that count, as far as that is not done."""
        self._keys.complete()
        for certificate in self.every(journal, upto):
            if self.generation(certificate.subject) <= certificate.generation:
                self._keys.destroy(certificate.subject, certificate.generation)

    def is_complete(self, certificate: Certificate) -> bool:
        """Say whether the key of a certificate is destroyed, and its bytes are overwritten."""
        is_destroyed = self.generation(certificate.subject) > certificate.generation
        return is_destroyed and not self._keys.has_remains

    def _replace(self, journal: str, after: Epoch, new: list[Certificate]) -> None:
        """Put certificates in the place of those after an epoch of a journal, durably."""
        with durable.storage("store the certificates of erasures"):
            stored = self._stored()
            wanted = [each for each in stored if each.counts(journal, after)] + new
            if wanted != stored:
                durable.replace(self._path, seal(_FIELD, wanted))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let no other process change the file during the block."""
        with (
            durable.storage("store the certificates of erasures"),
            locked_directory(self._path.parent),
        ):
            yield

    def _stored(self) -> list[Certificate]:
        with durable.storage("read the certificates of erasures"):
            try:
                return unseal(_FIELD, self._path.read_bytes(), list[Certificate])
            except FileNotFoundError:
                return []
            except ValueError as error:
                raise Corrupt(
                    f"{self._path} {error}; put a copy of the file back, which backups contain"
                ) from error


def subject_named(app: App, text: str) -> EntityKey:
    """Return the subject that a text names: `User/ada`."""
    given, key = split_entity_key(EntityKey(text))
    name = app.stored_name(given)
    personal = [each for each, entity_type in app.readable.items() if entity_type.personal]
    if name not in personal:
        if name in app.readable:
            raise RequestError(
                f"{given} is not a personal class, so its data are not encrypted and cannot be erased; delete the entity"
            )
        raise RequestError(unknown("personal class", given, personal))
    entity_type = app.readable[name]
    try:
        return EntityKey(entity_type.prefix + entity_type.key_text(entity_type.key_at(key)))
    except Unencodable as error:
        raise RequestError(f"{text}: {error}; write a subject as User/ada") from error
