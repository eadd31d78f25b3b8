"""Erasure: the order of an operator to forget a person, and the certificate that remains.

An erasure is a control record of the log. The epoch of this record deletes the entity, and after its commit the driver
destroys the key of the subject (`files.key_file`). The certificate is durable before the commit. Each process that opens the
journal destroys the keys of all certificates whose epoch is committed. So a crash in between delays the destruction
only, and an older file of keys brings no person back. Backups and forks have the certificates, also those of epochs
that they leave out.

A view with personal data copies them into a store of its own, so an erasure has to pass it, too. Its applier notes that in
the certificate; the order notes the views that have not passed when it ends.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import EntityKey, Epoch, split_entity_key
from penstock.errors import Corrupt, RequestError, Unencodable
from penstock.files import durable
from penstock.files.key_file import KeyFile
from penstock.files.layout import ERASURES, SUBJECT_KEYS
from penstock.files.roots import shared_root
from penstock.files.sealed import seal, unseal
from penstock.model.application import App, unknown

PASSED: Final = "passed"
"""The state of a view that has passed an erasure."""

_FIELD: Final = "erasures"


class ViewPassage(msgspec.Struct, frozen=True):
    """The state of a view with personal data after an erasure.

    Attributes:
        view: The name of the view.
        target: The kind of its target; empty if its applier has never run here.
        state: `passed`: its tables were made again without the person, and the bytes of the former rows are gone. Else the
            state of the view.
        epoch: The epoch that the tables showed; -1 before the first.
        time_us: When this was noted, microseconds since the Unix epoch.
        reason: Why it had not passed; else empty.
        remedy: The action of an operator that lets it pass; empty if waiting helps.
    """

    view: str
    target: str
    state: str
    epoch: Epoch
    time_us: int
    reason: str = ""
    remedy: str = ""

    @property
    def passed(self) -> bool:
        """Whether it has passed the erasure."""
        return self.state == PASSED


class Certificate(msgspec.Struct, frozen=True, omit_defaults=True):
    """The proof that a subject was erased.

    Attributes:
        subject: The entity, such as `User/ada`.
        generation: How often the subject had been erased before.
        epoch: The epoch from which on the subject is gone.
        time_us: When the driver executed the erasure, microseconds since the Unix epoch.
        hash: SHA-256 of the attributes before it as a JSON array, in this order. The journal has the certificate up to here.
        views: The views with personal data that there were, by name. One that passes the erasure later changes its entry.
        views_hash: SHA-256 of `hash` and `views` as a JSON array; empty without views.
        existed: Whether the epoch has deleted the entity; without it, only the key of former data is destroyed. It is no part of
            a hash.
    """

    subject: str
    generation: int
    epoch: int
    time_us: int
    journal: str
    hash: str = ""
    views: list[ViewPassage] = []
    views_hash: str = ""
    existed: bool = True

    def sealed(self) -> "Certificate":
        """Return the certificate with its hashes."""
        facts = (self.subject, self.generation, self.epoch, self.time_us, self.journal)
        digest = _hash_of(facts)
        return msgspec.structs.replace(
            self, hash=digest, views_hash=_hash_of((digest, self.views)) if self.views else ""
        )

    @property
    def recorded(self) -> "Certificate":
        """The certificate as the journal has it, without the views."""
        return msgspec.structs.replace(self, views=[], views_hash="")

    def names(self, view: str) -> bool:
        """Say whether it has an entry of a view."""
        return any(each.view == view for each in self.views)

    def noting(self, passages: Iterable[ViewPassage]) -> "Certificate":
        """Return the certificate with the entries of views; a view that has passed stays so."""
        known = {each.view: each for each in self.views}
        for each in passages:
            if each.view not in known or not known[each.view].passed:
                known[each.view] = each
        views = [known[name] for name in sorted(known)]
        return msgspec.structs.replace(self, views=views).sealed()

    def counts(self, journal: str, upto: Epoch) -> bool:
        """Say whether the erasure is committed: in the other journal, or in a journal with this newest epoch."""
        return self.journal != journal or self.epoch <= upto


class Erasures:
    """The certificates in a data directory."""

    def __init__(self, data: Path) -> None:
        self._root = shared_root(data)
        self._keys = KeyFile(data / SUBJECT_KEYS)

    @property
    def exist(self) -> bool:
        """Whether there may be certificates."""
        with durable.storage("look for the certificates of erasures"):
            return self._root.has(ERASURES)

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
        after = Epoch(certificate.epoch - 1)
        self._change(partial(_replaced, certificate.journal, after, [certificate]))

    def forget(self, journal: str, after: Epoch) -> None:
        """Remove the certificates after the newest epoch durably: their erasures have failed or did not happen.

        The driver calls this before it records an erasure as failed. Else the certificate would count with the commit
        of the same epoch, and the key would be destroyed.

        Raises:
            Corrupt: The file is damaged.
            JournalUnavailable: The disk is full or fails.
        """
        self._change(partial(_replaced, journal, after, []))

    def add(self, certificates: Iterable[Certificate]) -> None:
        """Store those certificates again that the file has lost; raises as `record`."""
        lost = list(certificates)

        def edit(stored: list[Certificate]) -> list[Certificate]:
            known = [each.recorded for each in stored]
            return stored + [each for each in lost if each not in known]

        self._change(edit)

    def note(self, hashes: Collection[str], passages: Collection[ViewPassage]) -> None:
        """Write the entries of views into certificates, durably.

        Args:
            hashes: The hashes of the certificates.

        Raises:
            Corrupt: The file is damaged.
            JournalUnavailable: The disk is full or fails.
        """
        self._change(
            lambda stored: [
                each.noting(passages) if each.hash in hashes else each for each in stored
            ]
        )

    def keep_committed(self, journal: str, upto: Epoch) -> None:
        """Do as `forget`, in a copy that no other process uses."""
        stored = self._stored()
        kept = _replaced(journal, upto, [], stored)
        if kept != stored:
            with durable.storage("store the certificates of erasures"):
                self._root.replace(ERASURES, seal(_FIELD, kept))

    def complete(self, journal: str, upto: Epoch) -> None:
        """Destroy the keys of all certificates that count, as far as that is not done."""
        self._keys.complete()
        for certificate in self.every(journal, upto):
            if self.generation(certificate.subject) <= certificate.generation:
                self._keys.destroy(certificate.subject, certificate.generation)

    def completed(self, journal: str, upto: Epoch) -> list[Certificate]:
        """Return the certificates that count, up to the first whose key is not destroyed yet; raises as `every`."""
        return [*takewhile(self._is_destroyed, self.every(journal, upto))]

    def is_complete(self, certificate: Certificate) -> bool:
        """Say whether the key of a certificate is destroyed, and its bytes are overwritten."""
        return self._is_destroyed(certificate) and not self._keys.has_remains

    def _is_destroyed(self, certificate: Certificate) -> bool:
        return self.generation(certificate.subject) > certificate.generation

    def _change(self, edit: Callable[[list[Certificate]], list[Certificate]]) -> None:
        """Replace the certificates by those that `edit` returns, durably; no change of another process is lost."""

        def edited(content: bytes | None) -> bytes | None:
            stored = self._decoded(content)
            wanted = edit(stored)
            return None if wanted == stored else seal(_FIELD, wanted)

        with durable.storage("store the certificates of erasures"):
            self._root.change(ERASURES, edited)

    def _stored(self) -> list[Certificate]:
        with durable.storage("read the certificates of erasures"):
            try:
                content = self._root.get(ERASURES)
            except FileNotFoundError:
                content = None
        return self._decoded(content)

    def _decoded(self, content: bytes | None) -> list[Certificate]:
        try:
            return [] if content is None else unseal(_FIELD, content, list[Certificate])
        except ValueError as error:
            raise Corrupt(
                f"{self._root}/{ERASURES} {error}; put a copy of the file back, which backups contain"
            ) from error


def _replaced(
    journal: str, after: Epoch, new: list[Certificate], stored: list[Certificate]
) -> list[Certificate]:
    """Return the stored certificates with other ones in the place of those after an epoch of a journal."""
    return [each for each in stored if each.counts(journal, after)] + new


def behind(certificates: Sequence[Certificate], passed: str) -> Sequence[Certificate]:
    """Return the certificates behind that with a hash; all of them if none has it."""
    hashes = [each.hash for each in certificates]
    return certificates[hashes.index(passed) + 1 :] if passed in hashes else certificates


def newest_hash(certificates: Sequence[Certificate]) -> str:
    """Return the hash of the last certificate; empty without one."""
    return certificates[-1].hash if certificates else ""


def _hash_of(facts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()


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
