"""The secrets of effects: a file that the effect process alone reads, and its environment.

They are removed from each error that leaves a caller, and no result may contain one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError

HIDDEN: Final = "<secret>"
_LEAST: Final = 4
"""The shortest secret that is looked for in texts; a shorter one is in each text by chance."""

_OPEN_TO_OTHERS: Final = 0o077


class Secrets:
    """The secrets of a process; in a caller, those of the environment that its calls have asked for are hidden, too.

    Args:
        in_file: Those of the file, which come first.
        environment: The variables of the process.
    """

    def __init__(self, in_file: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._in_file = dict(in_file)
        self._environment = environment
        self._given: dict[str, str] = dict(in_file)

    def get(self, name: str) -> str | None:
        """Return a secret; None if neither has the name."""
        value = self._in_file.get(name)
        if value is None:
            value = self._environment.get(name)
        if value:
            self._given[name] = value
        return value

    def without(self, text: str) -> str:
        """Return a text in which `<secret>` stands for each secret."""
        # The longest first: one secret may be a part of another one.
        for value in sorted(self._given.values(), key=len, reverse=True):
            if len(value) >= _LEAST:
                text = text.replace(value, HIDDEN)
        return text

    def found_in(self, data: bytes) -> str:
        """Return the name of a secret that is in an encoded result; empty if none is."""
        for name, value in self._given.items():
            if len(value) >= _LEAST and value.encode() in data:
                return name
        return ""


def read_secrets(path: Path, environment: Mapping[str, str]) -> Secrets:
    """Read the secrets of effects; raises as `secrets_in`.

    Args:
        path: The file; the empty path for none.
        environment: The variables of the process.
    """
    if path == Path():
        return Secrets({}, environment)
    setting = "effects.secrets"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting} = {path}: {error.strerror}") from error
    return Secrets(secrets_in(setting, path, content), environment)


def secrets_in(setting: str, path: Path, content: bytes | None) -> dict[str, str]:
    """Read a file with a line `NAME=value` for each secret; blank lines, and lines that begin with `#`, are no secrets.

    Args:
        setting: The setting that names the file.
        content: Its bytes; None if it does not exist.

    Raises:
        ConfigError: It does not exist, others may read it, or a line has another form. The message shows no value.
    """
    if content is None:
        raise ConfigError(f"{setting} = {path}: the file does not exist")
    if path.stat().st_mode & _OPEN_TO_OTHERS:
        raise ConfigError(f"{setting} = {path}: other users may read the file; chmod 600 {path}")
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{setting} = {path}: it is not text") from error
    secrets: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ConfigError(f"{setting} = {path}, line {number}: write NAME=value")
        secrets[name.strip()] = value.strip()
    return secrets
