"""Runs of appends in the workers of the Spark runtime, where large atoms are divided."""

from pathlib import Path
from typing import Any

from penstock.base.ids import RequestId
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog
from tests.differential.committed import streams_of
from tests.differential.inline import Inline

SPEC = "tests.differential.large_app:app"


def run(data: Path, bodies: list[bytes], **settings: Any) -> tuple[Inline, dict[str, Any]]:
    """Process records in epochs; return the runtime and its streams."""
    data.mkdir()
    log = SqliteLog(data / "log.sqlite")
    log.append([Entry(RequestId(f"r{n}"), body, b"", n) for n, body in enumerate(bodies)])
    log.close()
    chosen = {"small_epoch": 100, "epoch_records_max": 7, **settings}
    runtime = Inline(
        data,
        chosen.pop("partitions", 2),
        chosen.pop("spec", SPEC),
        chosen.pop("name", "large"),
        **chosen,
    )
    reached = None
    while reached != (reached := int(runtime.log.end())):
        runtime.advance(reached)
    return runtime, streams_of(runtime.journal)
