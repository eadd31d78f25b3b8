"""Changes of a deployed set: an application is deployed, or removed, by itself, and the others stay as they are.

The archive of a deployment has the whole set. A changed set takes the named applications from their sources, and all
others from the archive. A process has one module of each name, so a file that a named application and another one
import comes from the named one. Nothing is deployed here: the caller loads the changed set, which checks it, and deploys it.
"""

from collections.abc import Collection, Iterable
from pathlib import Path

from penstock.deployment.archives import Archives
from penstock.deployment.code_in_force import unpacked
from penstock.deployment.guarded_import import application_name
from penstock.deployment.loading import Location, locate, set_of
from penstock.deployment.source import code_of
from penstock.errors import ConfigError
from penstock.files.durable import storage
from penstock.model.application import unknown
from penstock.model.control import DeployedCode
from penstock.process.data_directory import DataDirectory


def deployed_set(data: Path, code: DeployedCode | None) -> Location | None:
    """Return the place of a deployed set of applications; None for a single application, and without a deployment."""
    is_set = code is not None and Location(code.module, code.name, "", None).is_set
    return unpacked(data, code) if is_set and code is not None else None


def with_applications(data: Path, code: DeployedCode | None, spec: str) -> str:
    """Return the deployed applications with some in the versions that `spec` names; others are added.

    An application with another name than the deployed one makes a set of both. One with the same name replaces it.

    The source of the whole is stored as an archive, and the result names the folder of its files. So the set that is
    checked is the set that is deployed.

    Args:
        code: The deployed code; None without a deployment.
        spec: The applications, as for `load_app`.

    Returns:
        The set, as for `load_app`; `spec` itself if it replaces all that is deployed.
    """
    if code is None:
        return spec
    deployed, place = unpacked(data, code), locate(spec)
    given = {part.label: part for part in place.applications}
    kept = {part.label: part for part in deployed.applications}
    if not deployed.is_set and (place.is_set or not _joins(data, kept, place)):
        return spec
    return _stored(data, deployed, {**kept, **given}.values(), first=given)


def _joins(data: Path, kept: Collection[str], place: Location) -> bool:
    """Say whether an application is another one than the only deployed one, which may have moved to another module."""
    return place.label not in kept and application_name(place.spec) != DataDirectory(data).app_name


def member_changes(was: DeployedCode | None, now: DeployedCode) -> list[str]:
    """Return a sentence for each application of a set that a deployment adds or changes.

    Args:
        was: The deployed code; None without a deployment.
    """
    if was is None or not now.sources:
        return []
    single: dict[str, str | None] = {Location(was.module, was.name, "", None).label: None}
    members = was.sources or single
    lines = []
    for label, source in now.sources.items():
        if label not in members:
            lines.append(f"application {label} joins {', '.join(members)}")
        elif members[label] not in (None, source):
            lines.append(f"application {label} has other files")
    return lines


def without_application(data: Path, code: DeployedCode | None, name: str) -> str:
    """Return the deployed set without one of its applications; its source is stored, as by `with_applications`.

    Args:
        code: The deployed code; None without a deployment.
        name: The module of the application, or module and name: `stock` or `stock:app`.

    Returns:
        The set, as for `load_app`, which refuses it if another application uses the removed one.
    """
    deployed = deployed_set(data, code)
    single = () if code is None else (Location(code.module, code.name, "", None),)
    parts = single if deployed is None else deployed.applications
    kept = [part for part in parts if name not in (part.module, part.label)]
    if len(kept) == len(parts):
        raise ConfigError(unknown("deployed application", name, [part.module for part in parts]))
    if deployed is None or not kept:
        raise ConfigError(f"{name} is the only application, so it cannot be removed; stop Penstock")
    return _stored(data, deployed, kept)


def _stored(
    data: Path, deployed: Location, parts: Iterable[Location], first: Collection[str] = ()
) -> str:
    """Store the source of a changed set, and return the set in the folder of its archive.

    Args:
        first: The labels of those whose files the others take.
    """
    name = (deployed.is_set and deployed.name) or DataDirectory(data).app_name or ""
    changed, archive = code_of(set_of(name, tuple(parts)), first=first)
    with storage(f"store the source of {changed.module}"):
        Archives(data).put(archive)
    return unpacked(data, changed).spec
