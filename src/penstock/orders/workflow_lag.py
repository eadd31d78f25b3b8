"""The lag of each workflow: the atoms of its source that are published, and that it has not taken.

A running workflow takes an atom in the epoch that publishes it, so its lag is 0. A paused workflow holds what comes; a
workflow that begins with earlier atoms has to catch up.
"""

from penstock.engine.streams.late_flows import decode_progress, late_key
from penstock.engine.streams.paused_flows import decode_paused, paused_key
from penstock.model.application import App
from penstock.orders.paused_workflows import newest_rows
from penstock.process.config import Config


def workflow_lags(app: App, config: Config) -> dict[str, int]:
    """Return the lag of each workflow at the newest epoch, by its name.

    Raises:
        OperationalError: Journal or state cannot be read.
        IntegrityError: They are damaged.
    """
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
