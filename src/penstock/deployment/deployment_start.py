"""The deployment of an application: the driver records its code before the first epoch.

The archive of the source is durable before the deployment names it.
"""

import logging
from collections.abc import Callable, Collection, Container, Mapping
from pathlib import Path
from typing import Final

from penstock.base.ids import Epoch
from penstock.deployment.archives import Archives
from penstock.deployment.loading import import_began_ns, locate
from penstock.deployment.source import (
    OWN_PACKAGE,
    packed,
    sources_of,
)
from penstock.engine.built_indexes import kept_indexes
from penstock.errors import ConfigError, OperationalError
from penstock.files.durable import storage
from penstock.files.roots import journal_root
from penstock.journal.api import Journal, newest_epoch
from penstock.journal.deployments import (
    Deployment,
    Deployments,
    deployment_at,
    is_same_source,
    needed_archives,
)
from penstock.journal.shapes import Shapes
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.index import name_in
from penstock.model.versions.waiting_types import waiting_types

_log = logging.getLogger(__name__)

GRACE_S: Final = 3_600.0
"""Maintenance keeps an archive for this long after it was stored: its deployment may be checked at this time."""


def deploy(data: Path, spec: str, app: App, journal: Journal) -> Deployment | None:
    """Record the code of an application as a deployment, unless the last deployment has the same code.

    The caller has the lock of the driver, and has run no epoch.

    Args:
        spec: The application, as for `load_app`.

    Returns:
        The new deployment; None if nothing is recorded.

    Raises:
        ConfigError: The code has another index over entities that are stored.
        Corrupt: The file of deployments is damaged.
    """
    location = locate(spec)
    if location.applications[0].module.partition(".")[0] == OWN_PACKAGE:
        return None
    since = Epoch(newest_epoch(journal) + 1)
    sources = sources_of(location, warns=True)
    parts = zip(location.applications, sources, strict=True)
    if any(source.code_changed_ns > import_began_ns(part) for part, source in parts):
        raise OperationalError(
            f"a source file of {location.module} was written while the application was loaded, so the archive would not "
            "be the code that runs; start again"
        )
    code, archive = packed(location, sources)
    tags = {name: shape.tag for name, shape in app.shapes.items()}
    deployments = Deployments(journal_root(data))
    with storage(f"store the source of {location.module}"), deployments.root.alone():
        Archives(data).put(archive)
        former = deployment_at(deployments.every(), since)
        if former is not None and former.indexes != app.indexes:
            stored = Shapes(deployments.root, {}).versions()
            command = f"penstock deploy {spec} --data {data}"
            _check_indexes(former.indexes, app, stored, command)
        live = former is not None and former.live and is_same_source(former.code, code)
        now_us, waiting = wall_clock_us(), waiting_types(app)
        deployment = deployments.record(
            since,
            now_us,
            code,
            tags,
            live=live,
            waiting=waiting,
            views=app.views,
            effects=app.effects,
            captures=app.topology.captures,
            indexes=app.indexes,
        )
    if deployment is not None:
        facts = {"number": deployment.number, "since": since, "archive": code.archive}
        _log.info("a deployment is recorded", extra=facts)
    return deployment


def _check_indexes(
    former: Mapping[str, str], app: App, stored: Container[str], command: str
) -> None:
    """Check that the state has the indexes of code that a start brings: only the record of a deployment builds them.

    Args:
        former: The definitions of the indexes that the state has.
        app: The code.
        stored: The classes with stored entities.
        command: The order that deploys the code.
    """
    differing = (former.keys() | app.indexes.keys()) - kept_indexes(app, former)
    for place in sorted(differing):
        if place.partition(".")[0] in stored:
            raise ConfigError(
                f"the index {name_in(place)} differs from that of the deployed code, and its class has stored entities; first give the "
                f"order {command}, and then start again: the start carries it out"
            )


def remove_surplus_archives(
    data: Path, journal: Journal, waiting: Callable[[], Collection[str]] = tuple
) -> int:
    """Remove older archives that neither a held epoch nor a waiting deployment needs, and return their number.

    Args:
        waiting: Returns the archives of deployments that no epoch has executed yet; no further one is appended
            while it runs.

    Raises:
        Corrupt: The file of deployments is damaged.
    """
    deployments = Deployments(journal_root(data))
    with storage("remove source archives"), deployments.root.alone():
        needed = needed_archives(deployments.every(), journal.first())
        return Archives(data).remove_others(needed.union(waiting()), GRACE_S)
