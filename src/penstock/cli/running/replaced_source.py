"""A source that a deployment has replaced: a process that starts with it runs the code in force, and says so.

`penstock run` and the processes that start alone ask here, so that all of them run the same code.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.cli.options import AppOptions, schema_changes, with_deployed_code
from penstock.files.roots import journal_root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.journal.deployments import Deployment
    from penstock.model.application import App
    from penstock.process.config import Config


def replacement_in(settings: "Config") -> "Deployment | None":
    """Return the deployment that runs instead of the source; None if the source runs."""
    from penstock.journal.deployments import Deployments

    if not any(each.live for each in Deployments(journal_root(settings.data)).every()):
        return None  # known without the journal, whose readers take time to load
    from penstock.deployment.code_in_force import replacement_of

    return replacement_of(settings.data, settings.app)


def replacement_text(deployment: "Deployment", source: str) -> str:
    """Return a sentence without its subject, the source."""
    return (
        f"does not run: deployment {deployment.number}, in force since epoch {deployment.since}, has "
        f"replaced it; penstock deploy {source} puts it in force"
    )


def load_to_run(
    options: AppOptions, flags: "dict[str, str | int | None]", *, deployed: bool = False
) -> "tuple[App, Config]":
    """Load the application that a process of its own runs: the source, or the deployment that has replaced it.

    Args:
        flags: Other options by the name of their setting; None if not given.
        deployed: Whether the code in force runs in any case, because a supervisor has decided so.

    Returns:
        The application, whose classes read the stored entities, and the settings, which name it.
    """
    if deployed:
        return with_deployed_code(options).load(**flags)
    application, settings = options.load_unchecked(**flags)
    deployment = replacement_in(settings)
    if deployment is None:
        schema_changes(application, settings)
        return application, settings
    from rich.console import Console

    from penstock.deployment.code_in_force import load_deployed, unpacked

    text = f"source {replacement_text(deployment, settings.app)}"
    Console(stderr=True).print(text, style="bold yellow", highlight=False, soft_wrap=True)
    spec = unpacked(settings.data, deployment.code).spec
    return load_deployed(settings.data, spec), replace(settings, app=spec)


def new_migrations_tried(application: "App", settings: "Config") -> "Sequence[str]":
    """Try the functions with `@migrate` of code that this start deploys; return a sentence for each class."""
    if not any(each.migrations for each in application.stored.values()):
        return ()  # known without the journal, whose readers take time to load
    from penstock.deployment.migration_trial import try_new_migrations

    return try_new_migrations(application, settings)
