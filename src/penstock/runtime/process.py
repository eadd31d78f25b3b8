"""Settings of the process that a handler can change, and that cost too much to look at each time.

They are put back behind the last transaction, before Penstock itself goes on. The functions for that
are taken when this module is imported, so that a handler which replaces them replaces nothing here.
"""

from contextlib import suppress
from os import chdir, getcwd, umask
from typing import Final

_PRIVATE: Final = 0o077


class ProcessSettings:
    """The working directory and the mask of file modes, as they are now."""

    def __init__(self) -> None:
        self._mask = umask(_PRIVATE)
        umask(self._mask)
        self._folder: str | None = None
        with suppress(OSError):  # it was removed
            self._folder = getcwd()  # noqa: PTH109 -- `Path` would look it up by name

    def restore(self) -> None:
        """Put them back where they differ."""
        umask(self._mask)
        with suppress(OSError):
            if self._folder is not None and getcwd() != self._folder:  # noqa: PTH109
                chdir(self._folder)
