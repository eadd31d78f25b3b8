"""The deployment of an application: the driver records its code before the first epoch.

The archive of the source is durable before the deployment names it.
"""

import importlib.metadata
import logging
import platform
import time
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Final

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.deployment.archives import Archives, hash_of, pack
from penstock.deployment.deployed_code import deployment_in_force, unpacked
from penstock.deployment.loading import Location, import_began_ns, locate
from penstock.deployment.source import (
    DATA_FILE_BYTES_MAX,
    OWN_PACKAGE,
    Source,
    merged,
    read_sources,
)
from penstock.errors import OperationalError
from penstock.files.durable import storage
from penstock.files.layout import JOURNAL
from penstock.files.lock import locked_directory
from penstock.journal.api import Journal
from penstock.journal.deployments import (
    Deployment,
    Deployments,
    deployment_at,
    is_same_source,
    needed_archives,
    replaces_source,
)
from penstock.model.application import App
from penstock.model.control import DeployedCode
from penstock.model.versions.waiting_types import waiting_types
from penstock.native import choice
from penstock.process.data_directory import DataDirectory

_log = logging.getLogger(__name__)

GRACE_S: Final = 3_600.0
"""Maintenance keeps an archive for this long after it was stored: its deployment may be checked at this time."""


def loaded_code(spec: str) -> DeployedCode | None:
    """Return the code of an application that this process has just loaded; None for Penstock's own modules.

    Raises:
        ConfigError, OperationalError: As for `deploy`.
    """
    location = locate(spec)
    if location.module.partition(".")[0] == OWN_PACKAGE:
        return None
    return code_of(location)[0]


def imported_code(spec: str) -> DeployedCode | None:
    """Do the same as `loaded_code`; return None also if a file was written after the import began, so the process may lack it.

    Raises:
        ConfigError, OperationalError: As for `deploy`.
    """
    location = locate(spec)
    if location.module.partition(".")[0] == OWN_PACKAGE:
        return None
    sources = read_sources(location)
    parts = zip(location.applications, sources, strict=True)
    if any(source.changed_ns > import_began_ns(part) for part, source in parts):
        return None
    return _packed(location, sources)[0]


def spec_to_run(data: Path, spec: str) -> str:
    """Return the application that a driver runs which starts with `spec`: the code in force, or `spec` itself.

    `replaces_source` says which. A source that was never deployed is deployed by the start.

    Raises:
        ConfigError: There is no such application, or a source file cannot be read.
        IntegrityError: The journal or an archive is damaged.
        OperationalError: The disk fails.
    """
    code, in_force = _continued(data, spec)
    if in_force is None:
        return spec
    if not is_same_source(code, in_force.code):
        facts = {"number": in_force.number, "since": in_force.since}
        _log.warning("the source was replaced by a deployment, which stays in force", extra=facts)
    return unpacked(data, in_force.code).spec


def replacement_of(data: Path, spec: str) -> Deployment | None:
    """Return the deployment that a driver runs instead of the source that it starts with; None if it runs this source.

    Raises:
        ConfigError, IntegrityError, OperationalError: As for `spec_to_run`.
    """
    code, in_force = _continued(data, spec)
    return None if in_force is None or is_same_source(code, in_force.code) else in_force


def is_in_force(data: Path, spec: str) -> bool:
    """Say whether the code of a source is the code of the deployment in force.

    Raises:
        ConfigError, IntegrityError, OperationalError: As for `spec_to_run`.
    """
    in_force = _in_force(data)
    return in_force is not None and is_same_source(loaded_code(spec), in_force.code)


def _in_force(data: Path) -> Deployment | None:
    directory = DataDirectory(data)
    if (name := directory.app_name) is None:
        return None
    with closing(directory.open_journal_of(name)) as journal:
        last = journal.last()
    return deployment_in_force(data, None if last is None else last.epoch)


def _continued(data: Path, spec: str) -> tuple[DeployedCode | None, Deployment | None]:
    """Return the code of a source, and the deployment in force if a driver that starts with the source continues it."""
    in_force = _in_force(data)
    if in_force is None or not in_force.live:
        return None, None
    code = loaded_code(spec)
    continues = replaces_source(in_force, Deployments(data / JOURNAL).every(), code)
    return code, in_force if continues else None


def deploy(data: Path, spec: str, app: App, journal: Journal) -> Deployment | None:
    """Record the code of an application as a deployment, unless the last deployment has the same code.

    The caller has the lock of the driver, and has run no epoch.

    Args:
        data: The data directory.
        spec: The application, as for `load_app`.
        app: The application.
        journal: Its journal.

    Returns:
        The new deployment; None if nothing is recorded.

    Raises:
        ConfigError: A source file cannot be read, or the source is too large.
        ClassChanged: Waiting values would be read with another meaning.
        Corrupt: The file of deployments is damaged.
        OperationalError: The disk is full or fails, or a Python file of the source was written after this process began
            to import the application.
    """
    location = locate(spec)
    if location.applications[0].module.partition(".")[0] == OWN_PACKAGE:
        return None
    last = journal.last()
    since = Epoch((BEFORE_FIRST if last is None else last.epoch) + 1)
    sources = _sources_of(location, warns=True)
    parts = zip(location.applications, sources, strict=True)
    if any(source.code_changed_ns > import_began_ns(part) for part, source in parts):
        raise OperationalError(
            f"a source file of {location.module} was written while the application was loaded, so the archive would not "
            "be the code that runs; start again"
        )
    code, archive = _packed(location, sources)
    tags = {name: shape.tag for name, shape in app.shapes.items()}
    deployments = Deployments(data / JOURNAL)
    with storage(f"store the source of {location.module}"), locked_directory(deployments.folder):
        Archives(data).put(archive)
        former = deployment_at(deployments.every(), since)
        live = former is not None and former.live and is_same_source(former.code, code)
        now_us, waiting = time.time_ns() // 1_000, waiting_types(app)
        deployment = deployments.record(since, now_us, code, tags, live=live, waiting=waiting)
    if deployment is not None:
        facts = {"number": deployment.number, "since": since, "archive": code.archive}
        _log.info("a deployment is recorded", extra=facts)
    return deployment


def code_of(
    location: Location, *, warns: bool = False, first: Collection[str] = ()
) -> tuple[DeployedCode, bytes]:
    """Return the code of an application as it is now, and the archive of its source.

    Args:
        location: The application.
        warns: Whether the log output names data files that are too large for the archive.
        first: The labels of the applications of a set whose files the others take.

    Raises:
        ConfigError: A source file cannot be read, or the source is too large.
        OperationalError: The disk fails, or source files change all the time.
    """
    sources = _sources_of(location, warns=warns)
    named = [part.label in first for part in location.applications]
    if any(named):
        files = merged(
            [source for source, is_first in zip(sources, named, strict=True) if is_first]
        ).files
        sources = [source.with_files(files) for source in sources]
    return _packed(location, sources)


def _sources_of(location: Location, *, warns: bool) -> list[Source]:
    sources = read_sources(location)
    large = {path for source in sources for path in source.large}
    for path in sorted(large) if warns else ():
        _log.warning(
            "%s has more than %s MB, so it is not in the archive, and processes that run the archive do not find it; "
            "name it by an absolute path, or put it into smaller files",
            path,
            DATA_FILE_BYTES_MAX >> 20,
        )
    return sources


def _packed(location: Location, sources: list[Source]) -> tuple[DeployedCode, bytes]:
    source = merged(sources)
    archive = pack(source.files)
    each = zip(location.applications, sources, strict=True)
    hashes = {part.label: hash_of(pack(own.files)) for part, own in each if location.is_set}
    code = DeployedCode(
        hash_of(archive),
        location.module,
        location.name,
        platform.python_version(),
        _versions_of(source.libraries),
        hashes,
    )
    return code, archive


def remove_surplus_archives(
    data: Path, journal: Journal, waiting: Callable[[], Collection[str]] = tuple
) -> int:
    """Remove older archives that neither a held epoch nor a waiting deployment needs, and return their number.

    Args:
        data: The data directory.
        journal: Its journal.
        waiting: Returns the archives of deployments that no epoch has executed yet; no further one is appended
            while it runs.

    Raises:
        Corrupt: The file of deployments is damaged.
        JournalUnavailable: The disk fails.
    """
    deployments = Deployments(data / JOURNAL)
    with storage("remove source archives"), locked_directory(deployments.folder):
        needed = needed_archives(deployments.every(), journal.first())
        return Archives(data).remove_others(needed.union(waiting()), GRACE_S)


def _versions_of(libraries: frozenset[str]) -> dict[str, str]:
    """Return the versions of the distributions that have these modules; others are left out."""
    versions: dict[str, str] = {}
    unknown = []
    for library in sorted(libraries):
        try:
            versions[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            unknown.append(library)
    for distribution in importlib.metadata.distributions() if unknown else ():
        files = "\n" + (distribution.read_text("RECORD") or "")  # each line begins with a path
        if any(f"\n{name}/" in files or f"\n{name}.py," in files for name in unknown):
            versions[distribution.name] = distribution.version
    if OWN_PACKAGE in versions:  # each epoch tells which implementation ran it
        versions[OWN_PACKAGE] += f", {choice.implementation()}"
    return dict(sorted(versions.items()))
