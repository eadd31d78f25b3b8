"""The versions of an application's code: each recorded epoch with the code that executed it.

The code of an earlier deployment is unpacked from its archive into a temporary folder, and loaded side by side
with the present code. An epoch without a deployment is executed with the present code, and so is an epoch whose
deployment has the present source.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from penstock.base.ids import Epoch
from penstock.deployment.archives import Archives
from penstock.deployment.loading import Location, locate
from penstock.deployment.side_modules import LoadedCode, load_aside
from penstock.deployment.source import code_of
from penstock.engine.built_indexes import settle_places
from penstock.errors import ConfigError, Corrupt, DefinitionError
from penstock.files.roots import journal_root
from penstock.files.temporary_folder import temporary_folder
from penstock.history.reader import HistoryReader
from penstock.journal.deployments import (
    Deployment,
    Deployments,
    deployment_at,
    is_same_source,
    version_changes,
)
from penstock.model.application import App
from penstock.model.versions.removed_class import learn_removed
from penstock.model.versions.stored_class import learn

PRESENT: Final = "--present-code"
"""The option with which most commands run the present code."""


@dataclass(frozen=True, slots=True)
class CodeVersion(LoadedCode):
    """The code of some epochs.

    Attributes:
        since: The first epoch that may have been executed with it.
        deployment: The deployment whose archived code this is; None for the present code.
        environment: How Python and libraries differ from those of the deployment; a text for each.
    """

    since: Epoch = Epoch(0)
    deployment: int | None = None
    environment: tuple[str, ...] = ()


class CodeVersions:
    """The code of each epoch; the temporary folder exists while the block runs."""

    def __init__(
        self,
        history: HistoryReader,
        app: App,
        spec: str,
        *,
        present_only: bool = False,
        remedy: str = PRESENT,
    ) -> None:
        """Read the deployments; no code is loaded.

        Args:
            spec: The present application, as on the command line.
            present_only: Whether the present code executes all epochs.
            remedy: The option with which the command runs the present code.

        Raises:
            Corrupt: The file of deployments is damaged.
        """
        self._history = history
        self._remedy = f"{remedy} runs the requests with the present code instead"
        self._data = history.data
        location = locate(spec)
        self._present = CodeVersion(app, location)
        every = () if present_only else Deployments(journal_root(self._data)).every()
        self._deployments = every
        self._code = code_of(location)[0] if every else None
        self._loaded: dict[int, CodeVersion] = {}
        self._scratch: Path | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()
        self._scratch = None

    def at(self, epoch: Epoch) -> CodeVersion:
        """Return the code that executed an epoch; it is loaded at its first use.

        Raises:
            ConfigError: The code cannot be imported any more.
            Corrupt: The archive is missing or changed.
        """
        deployment = deployment_at(self._deployments, epoch)
        if deployment is None or self._is_present(deployment):
            # The same source is loaded already, and its classes know all versions of their rows.
            return self._present
        version = self._loaded.get(deployment.number)
        if version is None:
            version = self._loaded[deployment.number] = self._load(deployment)
        return version

    def has_deployment(self, epoch: Epoch) -> bool:
        """Say whether the code that executes an epoch is recorded; it may be the next epoch."""
        return deployment_at(self._deployments, epoch) is not None

    def spans(self, first: Epoch, last: Epoch) -> Iterator[tuple[CodeVersion, Epoch, Epoch]]:
        """Yield the code of a range of epochs, with the first and the last epoch that it executed."""
        begin = first
        for deployment in self._deployments:
            if begin < deployment.since <= last:
                yield self.at(begin), begin, Epoch(deployment.since - 1)
                begin = deployment.since
        yield self.at(begin), begin, last

    def _is_present(self, deployment: Deployment) -> bool:
        """Say whether the present code is that of a deployment; the same source may have had other places for its indexes."""
        places = self._present.app.indexes.keys()
        is_same = is_same_source(self._code, deployment.code)
        return is_same and deployment.indexes.keys() == places

    def _load(self, deployment: Deployment) -> CodeVersion:
        """Unpack and import the code of a deployment."""
        number, code = deployment.number, deployment.code
        folder = self._folder() / f"deployment-{number}"
        try:
            Archives(self._data).unpack(code.archive, folder)
        except Corrupt as error:
            raise Corrupt(f"{error}; {self._remedy}") from error
        location = Location(code.module, code.name, str(folder), None)
        present = self._code
        assert present is not None, "there are deployments"
        changed = tuple(version_changes(code, present))
        try:
            loaded = load_aside(location)
            with loaded.active():
                self._learn(loaded.app, deployment)
        except (ConfigError, DefinitionError) as error:
            changes = f" ({', '.join(changed)})" if changed else ""
            raise ConfigError(
                f"the code of deployment {number} cannot be loaded{changes}: {error}; {self._remedy}"
            ) from error
        return CodeVersion(loaded.app, location, loaded.modules, deployment.since, number, changed)

    def _folder(self) -> Path:
        if self._scratch is None:
            self._scratch = self._stack.enter_context(temporary_folder("code"))
        return self._scratch

    def _learn(self, app: App, deployment: Deployment) -> None:
        """Let the classes of an earlier version read the rows that were stored by then."""
        later = (each.since for each in self._deployments if each.since > deployment.since)
        end = next(later, None)
        schemas = {
            name: tuple(version for version in versions if end is None or version.since < end)
            for name, versions in self._history.schemas().items()
        }
        learn_removed(app, {name: begun for name, begun in schemas.items() if begun})
        if app.is_personal and self._present.app.keys is not None:
            # One file of keys: an erasure since then holds for old code, too.
            app.use_keys(self._present.app.keys)
        for name, versions in schemas.items():
            declared, begun = app.stored.get(name), list(versions)
            while declared is not None and begun and begun[-1].shape.tag != declared.shape.tag:
                # The class ends with the version that this code declares; later ones are of other code.
                begun.pop()
            if declared is not None and begun:
                learn(declared, begun)
        settle_places(app, deployment.indexes)
