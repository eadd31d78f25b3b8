"""A worker drops the code that a deployment replaces."""

from pathlib import Path

from tests import forked

PROGRAM = """
import gc
import sys
import weakref
from pathlib import Path

import msgspec

from penstock.deployment.code_in_force import unpacked
from penstock.runtime.spark import worker_process
from penstock.runtime.spark.messages import LoadCode, TaskMessage, encode
from tests.differential.test_live_deployments import Shop

shop = Shop(Path(sys.argv[1]))
settings = shop.runtime._jobs.settings


def perform(spec, command):
    chosen = msgspec.structs.replace(settings, spec=spec)
    list(worker_process.perform(0, iter([encode(TaskMessage(encode(chosen), command))])))
    (worker,) = worker_process._WORKERS.values()
    seen.add(worker._codes.present.app)


seen = weakref.WeakSet()
first = present = shop.runtime.spec
for number in range(6):
    spec = unpacked(shop.data, shop.version(attributes=f"stock: int = {number}", step="1")).spec
    refused = unpacked(shop.data, shop.version("raise ValueError")).spec
    for code in (refused, spec):
        perform(present, LoadCode(code, 1))
    perform(spec, LoadCode(spec, 1))
    present = spec
gc.collect()
assert len(seen) == 2, f"{len(seen)} versions are in memory: the first, whose journal feeds the stores, and the present"
shop.runtime.close()
"""


def test_a_worker_keeps_no_replaced_code(tmp_path: Path) -> None:
    """After six deployments a worker has two versions in memory: the first, whose journal feeds the stores, and the present."""
    ended = forked.run(PROGRAM, tmp_path)
    assert ended.returncode == 0, ended.stderr
