"""The workflows of a data directory that are paused by a failure, and the record that resumes one of them.

A resume is a record of the log, like a request. So a replay resumes at the same position, and one pause ends once.
"""

from collections.abc import Container
from contextlib import closing
from difflib import get_close_matches
from typing import Final

import msgspec

from penstock.base.ids import EntityKey
from penstock.engine.streams.late_flows import decode_progress, late_key
from penstock.engine.streams.paused_flows import (
    PausedFlow,
    decode_paused,
    paused_key,
    resuming_id,
)
from penstock.errors import RequestError
from penstock.log.api import Entry, Log
from penstock.log.clock import wall_clock_us
from penstock.model.application import App, unknown
from penstock.model.request import encode_continuation
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.state.newest import read_newest


def workflow_lags(app: App, config: Config) -> dict[str, int]:
    """Return the lag of each workflow at the newest epoch, by its name."""
    lags = dict.fromkeys(app.topology.workflows, 0)
    pausing = [name for name, plan in app.topology.workflows.items() if plan.workflow.pauses]
    late = list(app.topology.late_workflows)
    keys = [*map(paused_key, pausing), *map(late_key, late)]
    rows = newest_rows(config, keys) if keys else []
    for name, row in zip(pausing, rows, strict=False):
        lags[name] += decode_paused(row).held
    for name, row in zip(late, rows[len(pausing) :], strict=True):
        if row is not None:
            progress = decode_progress(row)
            lags[name] += progress.upto - progress.first + progress.held - progress.taken
    return lags


WORKFLOWS: Final = "workflows/"
"""Before the name of a workflow, in the target of a resume."""


class PausedWorkflow(msgspec.Struct, frozen=True):
    """A workflow that is paused at the newest epoch.

    Attributes:
        since_us: The time of the record at which the pause began, in microseconds since the Unix epoch.
        failure: The failure of the first held step, as text.
        held: The number of steps that it holds.
        is_resuming: Whether the log has a record that resumes it, and its epoch is not committed yet.
    """

    name: str
    since_us: int
    failure: str
    held: int
    is_resuming: bool


def paused_workflows(app: App, config: Config) -> list[PausedWorkflow]:
    """Return the workflows that are paused at the newest epoch, in the order of the application."""
    paused = _paused_in(app, config)
    if not paused:
        return []
    with closing(DataDirectory(config.data).open_log()) as log:
        return [_shown(name, state, log) for name, state in paused.items()]


def workflow_named(app: App, target: str, others: Container[str]) -> str | None:
    """Return the workflow that a target names, as `ledger` or `workflows/ledger`.

    Args:
        others: The targets that are not workflows; they come first.

    Returns:
        The name of the workflow; None if the target names something else.
    """
    if target in others:
        return None
    name, workflows = target.removeprefix(WORKFLOWS), app.topology.workflows
    if name in workflows:
        return name
    if target != name or get_close_matches(name, workflows):
        raise RequestError(unknown("workflow", name, workflows))
    return None


def resume_workflow(app: App, config: Config, name: str, *, skip: bool) -> PausedWorkflow:
    """Append the record that resumes a paused workflow, durably; a repetition appends nothing.

    Args:
        skip: Whether the failed atom is set aside; else the workflow takes it again.

    Returns:
        The workflow as it was paused.
    """
    directory = DataDirectory(config.data)
    directory.check_app(app)
    paused = _paused_in(app, config)
    if name not in paused:
        known = ", ".join(paused) or "none"
        raise RequestError(f"workflow {name} is not paused; paused workflows: {known}")
    number = paused[name].number
    with closing(directory.open_log(config)) as log:
        if log.find(resuming_id(name, number, skip=not skip)) is not None:
            how = "without skip" if skip else "with skip"
            raise RequestError(
                f"workflow {name} resumes already, {how}, when its record is processed; "
                "see penstock flow show"
            )
        request_id = resuming_id(name, number, skip=skip)
        log.append([Entry(request_id, encode_continuation(), b"", wall_clock_us())])
        return _shown(name, paused[name], log)


def _paused_in(app: App, config: Config) -> dict[str, PausedFlow]:
    """Return the state of each paused workflow at the newest epoch."""
    names = [name for name, plan in app.topology.workflows.items() if plan.workflow.pauses]
    if not names:
        return {}
    states = map(decode_paused, newest_rows(config, [paused_key(name) for name in names]))
    return {
        name: state for name, state in zip(names, states, strict=True) if state.failure is not None
    }


def newest_rows(config: Config, keys: list[EntityKey]) -> list[bytes | None]:
    """Return some rows at the newest epoch; None for each before the first start."""
    directory = DataDirectory(config.data)
    if directory.app_name is None:
        return [None] * len(keys)
    with (
        closing(directory.open_journal_of(directory.app_name)) as journal,
        closing(directory.open_stores(journal)) as stores,
    ):
        return read_newest(journal, stores, keys)[1]


def _shown(name: str, state: PausedFlow, log: Log) -> PausedWorkflow:
    assert state.failure is not None, "the workflow is paused"
    records = (resuming_id(name, state.number, skip=skip) for skip in (False, True))
    return PausedWorkflow(
        name,
        state.since_us,
        f"{state.failure.kind}: {state.failure.message}",
        state.held,
        is_resuming=any(log.find(record) is not None for record in records),
    )
