"""The lock of a view's directory: one process at a time has its file open."""

from pathlib import Path

from penstock.errors import ConfigError, StateUnavailable
from penstock.files.lock import Claimed, claim


def locked(folder: Path) -> int:
    """Keep other processes from a directory; return the descriptor that holds the lock.

    Raises:
        ConfigError: Another process has it.
        StateUnavailable: The directory cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return claim(folder / "view.lock")
    except Claimed as error:
        raise ConfigError(
            f"process {error.holder} has the SQL view in {folder} open already; stop it, or ask it"
        ) from None
    except OSError as error:
        raise StateUnavailable(f"{folder} cannot be written: {error.strerror}") from error
