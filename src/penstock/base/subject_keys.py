"""Keys of subjects: each subject of personal data has a key of its own, and the key can be destroyed.

The keys are the leaves of a tree of hashes: the seed of a node is a hash of the seed of its parent, and a subject's
leaf is chosen by a hash of its name. So one seed gives the keys of all subjects, and a new subject costs nothing.
To destroy the key of a leaf, the seeds on the way to it are replaced by the seeds of the branches that leave this way:
all other keys stay, and this key cannot be computed any more. Source: Goldreich, Goldwasser, Micali, "How to
construct random functions" (1986); Boneh, Waters, "Constrained pseudorandom functions" (2013), section 4 (punctured
functions).

Data are encrypted with AES-SIV (RFC 5297), which is deterministic: equal data of a subject in the same context have
equal bytes. So rows can be compared, and a repeated execution writes the same bytes. A reader of files sees which
rows of a subject are equal, and their sizes, and no content.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

import msgspec

from penstock.errors import Corrupt, Erased

DEPTH: Final = 32
"""The levels of the tree; each level has four branches, so a leaf is 64 bits of a hash."""

_SEED_BYTES: Final = 16
_KEY_BYTES: Final = 32
_BRANCHES: Final = "0123"
_GENERATION_BYTES: Final = 4
_CIPHERS_MAX: Final = 10_000


class SubjectCipher:
    """Encrypts and decrypts the data of one subject in one generation.

    Args:
        generation: How often the subject had been erased when the key began.
        key: 32 bytes.
    """

    def __init__(self, generation: int, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # noqa: PLC0415 -- of `server`, and slow

        self._head = generation.to_bytes(_GENERATION_BYTES, "big")
        self._cipher = AESSIV(key)

    def seal(self, data: bytes, context: bytes) -> bytes:
        """Return encrypted data, which can be opened in the same context only."""
        return self._head + self._cipher.encrypt(data, [self._head + context])

    def unseal(self, sealed: bytes, context: bytes) -> bytes:
        """Return the data of `seal`.

        Raises:
            ValueError: The bytes were changed, or belong to another subject or context.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 -- as above

        try:
            return self._cipher.decrypt(sealed[_GENERATION_BYTES:], [self._head + context])
        except InvalidTag as error:
            raise ValueError("is damaged, or encrypted with other keys") from error


def generation_of(sealed: bytes) -> int:
    """Return the generation in the first bytes of sealed data."""
    return int.from_bytes(sealed[:_GENERATION_BYTES], "big")


class KeyTree(msgspec.Struct, frozen=True):
    """The seeds from which all keys follow that are not destroyed.

    Attributes:
        salt: Makes the leaves of names unknown to others.
        seeds: The seeds by path; a path has a digit 0 to 3 for each level, and the root's path is empty.
        erased: How often a subject was erased, by the hash of its name.
    """

    salt: bytes
    seeds: dict[str, bytes]
    erased: dict[str, int] = {}

    def generation(self, subject: str) -> int:
        """Return how often a subject was erased; a value that is encrypted now has this generation."""
        return self.erased.get(self._hash(subject).hex(), 0) if self.erased else 0

    def cipher(self, subject: str, generation: int) -> SubjectCipher:
        """Return the cipher of a subject."""
        path = self._path(subject, generation)
        start = self._start(path)
        if start is None:
            raise Erased(f"{subject} was erased, and the key of its data is destroyed")
        seed = self.seeds[path[:start]]
        for digit in path[start:]:
            seed = _branch(seed, digit)
        return SubjectCipher(generation, blake2b(seed, digest_size=_KEY_BYTES).digest())

    def without(self, subject: str, generation: int) -> "KeyTree":
        """Return the tree that lacks the key of a subject up to a generation; itself if it lacks the key already."""
        path = self._path(subject, generation)
        start = self._start(path)
        if start is None:
            return self
        seeds = dict(self.seeds)
        seed = seeds.pop(path[:start])
        for level in range(start, DEPTH):
            for digit in _BRANCHES.replace(path[level], ""):
                seeds[path[:level] + digit] = _branch(seed, digit)
            seed = _branch(seed, path[level])
        erased = {**self.erased, self._hash(subject).hex(): generation + 1}
        return KeyTree(self.salt, seeds, erased)

    def _start(self, path: str) -> int | None:
        """Return the length of the path whose seed leads to a leaf; None if the leaf is destroyed."""
        return next((size for size in range(DEPTH + 1) if path[:size] in self.seeds), None)

    def _hash(self, text: str) -> bytes:
        return blake2b(text.encode(), key=self.salt, digest_size=DEPTH // 4).digest()

    def _path(self, subject: str, generation: int) -> str:
        bits = int.from_bytes(self._hash(f"{generation}:{subject}"), "big")
        return "".join(_BRANCHES[bits >> 2 * level & 3] for level in range(DEPTH))


def new_tree(secret: bytes) -> KeyTree:
    """Return a tree with all keys, which follow from a secret."""
    drawn = blake2b(secret, digest_size=2 * _SEED_BYTES, person=b"subject keys").digest()
    return KeyTree(drawn[:_SEED_BYTES], {"": drawn[_SEED_BYTES:]})


def _branch(seed: bytes, digit: str) -> bytes:
    return blake2b(digit.encode(), key=seed, digest_size=_SEED_BYTES).digest()


class SubjectKeys:
    """Encrypts and decrypts the data of subjects with the keys of the newest tree.

    Args:
        tree: Returns the newest tree; a tree that has not changed is the same object.
    """

    def __init__(self, tree: Callable[[], KeyTree]) -> None:
        self._newest = tree
        self._known: tuple[KeyTree, dict[tuple[str, int], SubjectCipher]] | None = None

    def seal(self, subject: str, data: bytes, context: bytes) -> bytes:
        """Return data encrypted with the present key of a subject."""
        tree = self._newest()
        return self._cipher(tree, subject, tree.generation(subject)).seal(data, context)

    def unseal(self, subject: str, sealed: bytes, context: bytes) -> bytes:
        """Return the data of `seal`.

        Raises:
            Erased: The key is destroyed.
            Corrupt: The bytes were changed, or are encrypted with other keys, or the keys cannot be read.
        """
        cipher = self._cipher(self._newest(), subject, generation_of(sealed))
        try:
            return cipher.unseal(sealed, context)
        except ValueError as error:
            raise Corrupt(
                f"an encrypted value of {subject} {error}; look for damage with penstock verify, and use the file of keys "
                "that belongs to this data directory"
            ) from error

    def is_erased(self, subject: str, sealed: bytes) -> bool:
        """Say whether the key of encrypted data is destroyed; this decrypts nothing."""
        return generation_of(sealed) < self._newest().generation(subject)

    def pseudonym(self, data: bytes) -> str:
        """Return a hash of data that cannot be computed without the tree; no erasure changes it."""
        salt = self._newest().salt
        return blake2b(data, key=salt, digest_size=_KEY_BYTES, person=b"index value").hexdigest()

    def erasures(self) -> int:
        """Return how many erasures there have been; the number changes with each of them."""
        return sum(self._newest().erased.values())

    def _cipher(self, tree: KeyTree, subject: str, generation: int) -> SubjectCipher:
        if self._known is None or self._known[0] is not tree:
            self._known = (tree, {})  # a destroyed key is forgotten here, too
        ciphers = self._known[1]
        cipher = ciphers.get((subject, generation))
        if cipher is None:
            if len(ciphers) >= _CIPHERS_MAX:
                ciphers.clear()
            cipher = ciphers[subject, generation] = tree.cipher(subject, generation)
        return cipher


class MemoryKeys(SubjectKeys):
    """Keys in memory, for an application without a data directory."""

    def __init__(self, tree: KeyTree) -> None:
        self._tree = tree
        super().__init__(lambda: self._tree)

    def generation(self, subject: str) -> int:
        """Return how often a subject was erased."""
        return self._tree.generation(subject)

    def destroy(self, subject: str) -> None:
        """Destroy the present key of a subject."""
        self._tree = self._tree.without(subject, self._tree.generation(subject))
