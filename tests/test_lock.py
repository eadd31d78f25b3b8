"""The lock holds what the project asks for, since `scripts/setup` installs nothing else."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parent.parent
LOCK = (TOP / "requirements.lock").read_text()


def wanted() -> list[Requirement]:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    groups = project["dependency-groups"].values()
    named = [line for group in groups for line in group if isinstance(line, str)]
    build = project["build-system"]["requires"]
    return [Requirement(line) for line in (*project["project"]["dependencies"], *named, *build)]


def locked() -> dict[str, list[str]]:
    versions: dict[str, list[str]] = {}
    for name, version in re.findall(r"^(\S+)==(\S+)", LOCK, re.MULTILINE):
        versions.setdefault(canonicalize_name(name), []).append(version)
    return versions


def test_lock_satisfies_every_dependency() -> None:
    """Each dependency is locked, to versions that it allows; otherwise run `scripts/lock`."""
    versions = locked()
    unsatisfied = [
        str(one)
        for one in wanted()
        if not (found := versions.get(canonicalize_name(one.name)))
        or not all(one.specifier.contains(version) for version in found)
    ]
    assert unsatisfied == []


def test_every_locked_package_has_hashes() -> None:
    """Nothing is installed whose content is not known, wherever it is fetched from."""
    entries = re.split(r"^(?=\S)", LOCK, flags=re.MULTILINE)[1:]
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in LOCK
