"""The randomness and the UUIDs of a request: they repeat in every run of it, and no caller can predict them."""

from hashlib import blake2b
from random import Random
from uuid import UUID

from penstock.base.ids import RequestId


class DerivedValues:
    """Values that depend on a request id, or on the part of a step, and on the secret of the journal."""

    __slots__ = ("_random", "_request_id", "_secret", "_uuids")

    def __init__(self, request_id: RequestId, secret: bytes) -> None:
        self._request_id = request_id
        self._secret = secret
        self._random: Random | None = None
        self._uuids = 0

    def uuid(self) -> UUID:
        """Return the next UUID."""
        self._uuids += 1
        return UUID(bytes=self._derived(b"uuid", f"{self._uuids}/{self._request_id}"), version=5)

    def random(self) -> Random:
        """Return the source of randomness, which is the same object at each call."""
        if self._random is None:
            self._random = Random(self._derived(b"random", self._request_id))
        return self._random

    def _derived(self, purpose: bytes, text: str) -> bytes:
        """Return 16 bytes that depend on the request, and that cannot be computed without the secret.

        This is a keyed BLAKE2 hash (RFC 7693, section 2.9): some results reveal nothing of others.
        """
        return blake2b(text.encode(), digest_size=16, key=self._secret, person=purpose).digest()
