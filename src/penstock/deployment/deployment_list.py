"""The list of deployments: which code ran since which epoch, and what each deployment has changed."""

from pathlib import Path

from penstock.base.deployment_answers import ListedDeployment
from penstock.deployment.code_in_force import deployment_in_force
from penstock.errors import ConfigError
from penstock.files.roots import has_journal, journal_root
from penstock.journal.deployments import Deployment, Deployments, version_changes


def list_deployments(data: Path) -> list[ListedDeployment]:
    """Return the deployments of a data directory, in order."""
    if not has_journal(data):
        raise ConfigError(
            f"there is no journal in {data}; name the application's directory with --data"
        )
    every = Deployments(journal_root(data)).every()
    present = deployment_in_force(data)
    pairs = zip((None, *every), every, strict=False)
    return [_listed(former, each, in_force=each == present) for former, each in pairs]


def _listed(
    former: Deployment | None, deployment: Deployment, *, in_force: bool
) -> ListedDeployment:
    code, shapes = deployment.code, deployment.shapes
    classes: list[str] = []
    versions: list[str] = []
    if former is not None:
        names = sorted(former.shapes.keys() | shapes.keys())
        classes = [name for name in names if former.shapes.get(name) != shapes.get(name)]
        versions = version_changes(former.code, code)
    return ListedDeployment(
        number=deployment.number,
        since=deployment.since,
        time_us=deployment.time_us,
        archive=code.archive,
        app=f"{code.module}:{code.name}",
        python=code.python,
        libraries=code.libraries,
        applications=code.sources,
        changed_applications=_changed_applications(former, deployment),
        source_changed=former is None or former.code.archive != code.archive,
        changed_classes=classes,
        changed_versions=versions,
        in_force=in_force,
        live=deployment.live,
        by=deployment.by,
    )


def _changed_applications(former: Deployment | None, deployment: Deployment) -> list[str]:
    """Return the applications of a set that a deployment adds, changes or removes."""
    was = {} if former is None else former.code.sources
    now = deployment.code.sources
    return [name for name in sorted(was.keys() | now.keys()) if was.get(name) != now.get(name)]
