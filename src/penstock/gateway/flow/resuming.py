"""Resumes of flow control: the end of a pause, or of the pause of a workflow that has failed."""

from typing import Literal

from msgspec.structs import replace

from penstock.errors import RequestError
from penstock.model.application import App
from penstock.orders.paused_workflows import (
    WORKFLOWS,
    PausedWorkflow,
    resume_workflow,
    workflow_named,
)
from penstock.orders.pauses import PauseAction, PauseFile, target_text
from penstock.process.config import Config


def resume_target(
    app: App, config: Config, action: PauseAction, *, skip: bool = False
) -> PausedWorkflow | None:
    """End the pause of a target durably, and record the action.

    Args:
        app: The application.
        config: Its settings.
        action: The resume; its target is that of a pause, or a workflow.
        skip: Whether the workflow sets the failed atom aside.

    Returns:
        The workflow as it was paused; None if the target is not a workflow.

    Raises:
        RequestError: The target is not paused, or does not exist; or `skip` does not fit the target.
        OperationalError: A file of the data directory cannot be read or written.
        IntegrityError: A file of the data directory is damaged.
    """
    file = PauseFile(config.data)
    name = workflow_named(app, action.target, file.pauses().in_force)
    if name is not None:
        resumed = resume_workflow(app, config, name, skip=skip)
        action_kind: Literal["resume", "skip"] = "skip" if skip else "resume"
        file.note(replace(action, kind=action_kind, target=f"{WORKFLOWS}{name}"))
        return resumed
    if skip:
        raise RequestError(
            f"{target_text(action.target)} is not a workflow; only the resume of a workflow can skip an atom"
        )
    file.resume(action.target, action.by, action.reason, action.time_us)
    return None
