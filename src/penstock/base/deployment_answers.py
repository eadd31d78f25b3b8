"""The answers about deployments, which commands print and gateways send."""

from msgspec import Struct


class DeploymentResult(Struct, frozen=True):
    """The result of an order to deploy code.

    Attributes:
        changed: False if the code is deployed already.
        number: The number of the deployment; None if it is not in force yet.
        since: The first epoch that runs the code; None if it is not in force yet.
        position: The position of the record in the log; None if nothing was appended.
        changes: The changes of stored classes, a sentence for each.
        unfit: The waiting requests that the former code accepts and the code does not, a sentence for each.
        behind: The process ids of gateways that still serve older code.
    """

    changed: bool
    archive: str
    number: int | None = None
    since: int | None = None
    position: int | None = None
    changes: list[str] = []
    unfit: list[str] = []
    behind: list[int] = []


class ListedDeployment(Struct, frozen=True):
    """A deployment, with its differences from the deployment before it.

    Attributes:
        number: Its number, from 1 on.
        since: The first epoch that it executes.
        time_us: When it was recorded, in microseconds since 1970.
        app: Module and name of the application.
        libraries: The versions of the libraries that the source imports.
        applications: If a set is deployed, the hash of each application's source.
        changed_applications: If a set is deployed, the applications that are added, changed or removed.
        source_changed: Whether the source differs.
        changed_classes: The classes whose stored form differs.
        changed_versions: The differences of versions, a text for each.
        in_force: Whether it executes the next epoch.
        live: Whether it was ordered while the application ran; otherwise the start of a driver recorded it.
        by: The principal that has ordered it through a gateway; empty for a command on the machine.
    """

    number: int
    since: int
    time_us: int
    archive: str
    app: str
    python: str
    libraries: dict[str, str]
    applications: dict[str, str]
    changed_applications: list[str]
    source_changed: bool
    changed_classes: list[str]
    changed_versions: list[str]
    in_force: bool
    live: bool = False
    by: str = ""


class CheckedChange(Struct, frozen=True):
    """A finding of the check of a deployment.

    Attributes:
        level: `safe`, `needs-a-word` or `refused`.
    """

    level: str
    kind: str
    what: str


class DeploymentReport(Struct, frozen=True):
    """The result of the check of a deployment.

    Attributes:
        deployed: The number of the deployment that the code was compared with; None without one.
    """

    deployed: int | None
    verdict: str
    findings: list[CheckedChange]


class PartitionProposal(Struct, frozen=True):
    """A number of partitions, and why.

    Attributes:
        partitions: The present number.
        proposed: The proposed number; the present one if a change would not help.
        reason: The reason, as a sentence.
    """

    partitions: int
    proposed: int
    reason: str


class PartitionMove(Struct, frozen=True):
    """The result of an order to change the number of partitions.

    Attributes:
        epoch: The epoch of the change; None if nothing changes, or if no driver runs yet.
    """

    before: int
    partitions: int
    epoch: int | None
