"""The locks hold the requirements of the project, since nothing else is ever installed.

`scripts/setup` installs requirements.lock; benchmarks/requirements.lock is for benchmarks/
besides, and tests/readers/requirements.lock for the separate folder of `scripts/readers`.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parent.parent
LOCKS = ("requirements.lock", "benchmarks/requirements.lock", "tests/readers/requirements.lock")
OWN_LOCK = {"benchmarks": LOCKS[1], "readers": LOCKS[2]}

Versions = dict[str, list[str]]


def wanted(lock: str) -> list[Requirement]:
    project: dict[str, Any] = tomllib.loads((TOP / "pyproject.toml").read_text())
    groups = project["dependency-groups"].items()
    lines = [
        line
        for name, group in groups
        if OWN_LOCK.get(name, LOCKS[0]) == lock
        for line in group
        if isinstance(line, str)
    ]
    if lock == LOCKS[0]:
        lines += [*project["project"]["dependencies"], *project["build-system"]["requires"]]
        for extra in project["project"]["optional-dependencies"].values():
            lines += extra
    return [Requirement(line) for line in lines]


def locked(lock: str) -> Versions:
    versions: Versions = {}
    text = (TOP / lock).read_text()
    for name, version in re.findall(r"^(\S+)==(\S+)", text, re.MULTILINE):
        versions.setdefault(canonicalize_name(name), []).append(version)
    return versions


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_satisfies_every_dependency(lock: str) -> None:
    """Each dependency is locked, to versions that it allows; otherwise run `scripts/lock`."""
    versions = locked(lock)
    unsatisfied = [
        str(one)
        for one in wanted(lock)
        if not (found := versions.get(canonicalize_name(one.name)))
        or not all(one.specifier.contains(version) for version in found)
    ]
    assert unsatisfied == []


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_hashes(lock: str) -> None:
    """Nothing is installed whose content is not known, wherever it is fetched from."""
    text = (TOP / lock).read_text()
    entries = re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in text


def test_locks_agree() -> None:
    """Packages of two locks that are installed together have the same versions."""
    whole, more = (locked(lock) for lock in LOCKS[:2])
    assert {name: more[name] for name in whole.keys() & more.keys()} == {
        name: whole[name] for name in whole.keys() & more.keys()
    }
