"""Key services: one that works, and hostile ones."""

import time
from typing import Final, Never

SERVICE: Final = "tests.unit.process.key_services:Vault"


class Vault:
    """Encrypts by adding a number to each byte, and counts its calls."""

    shift = 7
    calls = 0
    is_down = False

    def wrap(self, data_key: bytes) -> bytes:
        """Return encrypted bytes."""
        return bytes((byte + self.shift) % 256 for byte in data_key)

    def unwrap(self, wrapped: bytes) -> bytes:
        """Return decrypted bytes."""
        Vault.calls += 1
        if self.is_down:
            raise ConnectionError("the vault is down")
        return bytes((byte - self.shift) % 256 for byte in wrapped)


class HostileError(BaseException):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        """Fail."""
        raise self


class Hostile(Vault):
    """Ends the process, as it thinks."""

    def wrap(self, data_key: bytes) -> Never:
        """Fail with an error that cannot be shown."""
        raise HostileError


class Exiting(Vault):
    """Ends the process, as it thinks."""

    def __init__(self) -> None:
        """End the process."""
        raise SystemExit(3)


class Forgetful(Vault):
    """Decrypts nothing that it has encrypted."""

    def unwrap(self, wrapped: bytes) -> bytes:
        """Return other bytes."""
        return bytes(len(wrapped))


class Wordy(Vault):
    """Returns text."""

    def wrap(self, data_key: bytes) -> bytes:
        """Return something that is no bytes."""
        text: object = data_key.hex()
        return text  # type: ignore[return-value]


class Endless(Vault):
    """Never answers."""

    def wrap(self, data_key: bytes) -> bytes:
        """Never return."""
        while True:
            time.sleep(60.0)
