"""A long run: files and bytes of a data directory over 100,000 epochs that are looked after.

    python -m benchmarks.long_run [--epochs N] [--every N] [--keep N]

Small epochs are committed as fast as possible, without fsync, and history is looked after every so
many of them: a snapshot, merging, forgetting all but the newest. Prints one JSON object: the most
files and megabytes that there were right after maintenance, in the second quarter of the run and in the
last one, which should be alike; how long one maintenance run took, and how long opening the journal takes.
"""

import argparse
import json
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.recovery import SHOP, write
from penstock.deployment.loading import load_app
from penstock.process.config import Config, HistoryConfig
from penstock.process.data_directory import DataDirectory
from penstock.retention.maintenance import maintain

KEYS = 50


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=5_000)
    parser.add_argument("--keep", type=int, default=10_000)
    print(json.dumps(measured(parser.parse_args())))


def measured(chosen: argparse.Namespace) -> dict[str, float]:
    """Return the figures."""
    app = load_app(SHOP)
    sizes: list[tuple[int, float]] = []
    spent_s: list[float] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="penstock-long-") as folder:
        data = Path(folder)
        history = HistoryConfig(grace_s=0, keep_epochs=chosen.keep)
        config = Config(data, retention_s=0, history=history)
        with closing(DataDirectory(data).open_journal_of(app.name)) as journal:
            for start in range(0, chosen.epochs, chosen.every):
                write(journal, ([f"i{one % KEYS}"] for one in range(start, start + chosen.every)))
                began = time.perf_counter()
                maintain(app, config, snapshot=True)
                spent_s.append(time.perf_counter() - began)
                files = [path.stat().st_size for path in data.rglob("*") if path.is_file()]
                sizes.append((len(files), sum(files) / 1e6))
        began = time.perf_counter()
        with closing(DataDirectory(data).open_journal_of(app.name)) as journal:
            journal.last()
        open_s = time.perf_counter() - began
    quarter = len(sizes) // 4
    early, late = sizes[quarter : 2 * quarter], sizes[-quarter:]
    return {
        "epochs": chosen.epochs,
        "files_early": max(count for count, _ in early),
        "files_late": max(count for count, _ in late),
        "megabytes_early": round(max(size for _, size in early), 2),
        "megabytes_late": round(max(size for _, size in late), 2),
        "maintenance_s": round(max(spent_s), 2),
        "open_ms": round(open_s * 1_000, 2),
    }


if __name__ == "__main__":
    main()
