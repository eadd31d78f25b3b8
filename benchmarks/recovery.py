"""Recovery: how long until state is ready, from a snapshot and the epochs since.

    python -m benchmarks.recovery [--entities N] [--epochs N] [--changes N] [--partitions N]

Writes a journal of so many entities, takes a snapshot, and adds epochs that change some of them,
merged as a running application merges them. Then builds the stores of all partitions from nothing,
each in a process of its own, as the driver does when it starts. Prints one JSON object, in seconds:
the snapshot (`snapshot_s`), merging (`merge_s`), and recovery until the last store is at the newest
epoch (`recovery_s`). The journal is written without fsync; what is measured is not.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from penstock.base.ids import Epoch, LogPartition, Lsn
from penstock.deployment.loading import load_app
from penstock.journal.api import CHANGES, Commit, PartKind
from penstock.journal.delta import DeltaJournal
from penstock.process.config import Config, HistoryConfig
from penstock.process.data_directory import DataDirectory
from penstock.retention.maintenance import maintain

SHOP = str(Path(__file__).parent.parent / "examples" / "shop")
LOADED_AT_ONCE = 20_000
START_US = 1_700_000_000_000_000


def main() -> None:
    """Write, recover, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=os.cpu_count() or 1)
    print(json.dumps(measured(parser.parse_args())))


def measured(chosen: argparse.Namespace) -> dict[str, float]:
    """Return the figures."""
    app = load_app(SHOP)
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="penstock-recovery-") as folder:
        data = Path(folder)
        config = Config(data, history=HistoryConfig(grace_s=0))
        with closing(DataDirectory(data).open_journal_of(app.name)) as journal:
            keys = [f"i{number}" for number in range(chosen.entities)]
            write(
                journal,
                [keys[at : at + LOADED_AT_ONCE] for at in range(0, len(keys), LOADED_AT_ONCE)],
            )
            began = time.perf_counter()
            maintain(app, config, snapshot=True)
            snapshot_s = time.perf_counter() - began
            dice = np.random.default_rng(1)
            drawn = (
                [keys[one] for one in np.unique(dice.integers(0, len(keys), chosen.changes))]
                for _ in range(chosen.epochs)
            )
            write(journal, drawn)
            began = time.perf_counter()
            maintain(app, config, snapshot=False)
            merge_s = time.perf_counter() - began
        began = time.perf_counter()
        with ProcessPoolExecutor(chosen.partitions) as processes:
            build = partial(recover, data, app.name, chosen.partitions)
            list(processes.map(build, range(chosen.partitions)))
        recovery_s = time.perf_counter() - began
    return {
        "entities": chosen.entities,
        "epochs": chosen.epochs,
        "changes": chosen.epochs * chosen.changes,
        "snapshot_s": round(snapshot_s, 2),
        "merge_s": round(merge_s, 2),
        "recovery_s": round(recovery_s, 2),
    }


def write(journal: DeltaJournal, epochs: Iterable[list[str]]) -> None:
    """Commit epochs that change these items."""
    item = load_app(SHOP).entities["Item"]
    last = journal.last()
    epoch = 0 if last is None else last.epoch + 1
    with patch("os.fsync"):
        for keys in epochs:
            states = [
                item.encode({"item_id": "", "price": 3, "stock": epoch + number})
                for number in range(len(keys))
            ]
            columns = [[epoch] * len(keys), ["Item"] * len(keys), keys, states]
            part = journal.write(PartKind.CHANGES, pa.table(columns, schema=CHANGES), "recovery")
            positions = {LogPartition(0): Lsn(epoch)}
            journal.commit(Commit(Epoch(epoch), positions, (part,), START_US + epoch))
            epoch += 1


def recover(data: Path, app: str, partitions: int, partition: int) -> None:
    """Build one store from nothing."""
    with closing(DataDirectory(data).open_journal_of(app)) as journal:
        last = journal.last()
        assert last is not None
        with closing(DataDirectory(data).open_stores(journal, partitions)) as stores:
            stores.catch_up_one(partition, last.epoch)


if __name__ == "__main__":
    main()
