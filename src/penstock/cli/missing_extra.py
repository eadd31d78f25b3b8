"""The message of a command that needs packages of the extra `server`."""

from typing import Final

MISSING: Final = (
    "this installation of Penstock has no {module}: it can define, test and call "
    "applications, and not run them"
)
INSTALL: Final = "Install the rest: pip install 'penstock[server]'"
"""The next step."""
