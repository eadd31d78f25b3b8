"""State: changes applied and entities read per second, over a store of 300,000 entities.

    python -m benchmarks.state_apply [--entities N] [--directory PATH]

Prints one JSON object. `applied_per_s` are medians by batch size; a get is of a random entity,
checksum verified, with its router where there are partitions; `catch_up_rows_per_s` counts
the journal's rows, from Parquet in memory to the store of one partition, which keeps its share.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, split_entity_key
from penstock.journal.api import CHANGES, Commit, PartKind
from penstock.state.digest import digest_of_items
from penstock.state.lmdb import LmdbState
from penstock.state.stores import Stores
from tests.memory_journal import MemoryJournal

BATCHES = (200, 20_000, 40_000)
READS = 200_000
HOT = 1_000
REPEATS = 7
EPOCHS = 30
STATE = b"\x93\xaausername-1\xcd\x03\xe8\xcd\x01\x00 some further text"


def rate(count: int, work: Callable[[], object]) -> float:
    """Return how many per second."""
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def reads(get: Callable[[EntityKey], bytes | None], keys: Sequence[EntityKey]) -> float:
    """Return microseconds for one get, the loop included."""

    def work() -> None:
        for key in keys:
            get(key)

    return round(1e6 / statistics.median(rate(len(keys), work) for _ in range(3)), 3)


def applying(state: LmdbState, keys: list[EntityKey], rng: random.Random) -> dict[str, int]:
    """Measure applies of each batch size, after loading all entities."""
    epoch = BEFORE_FIRST
    result = {}

    def apply(chosen: list[EntityKey]) -> float:
        nonlocal epoch
        following = Epoch(epoch + 1)
        changes = [(key, b"%d" % following + STATE) for key in chosen]
        speed = rate(len(chosen), lambda: state.apply(following, changes, epoch))
        epoch = following
        return speed

    result["load"] = round(apply(keys))
    for size in BATCHES:
        repeats = REPEATS if size > min(BATCHES) else 20 * REPEATS
        speeds = [apply(rng.sample(keys, size)) for _ in range(repeats)]
        result[str(size)] = round(statistics.median(speeds))
    return result


def journal_of(keys: Sequence[EntityKey], epochs: int) -> MemoryJournal:
    """Return a journal in which every epoch changes an equal part of the entities."""
    journal = MemoryJournal()
    for epoch in range(epochs):
        names = [split_entity_key(key) for key in keys[epoch::epochs]]
        columns = {
            "epoch": [epoch] * len(names),
            "entity": [name for name, _ in names],
            "key": [text for _, text in names],
            "state": [STATE] * len(names),
        }
        part = journal.write(PartKind.CHANGES, pa.table(columns, schema=CHANGES), f"{epoch}")
        journal.commit(Commit(Epoch(epoch), {}, (part,), 0))
    return journal


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--entities", type=int, default=300_000)
    arguments.add_argument("--directory", type=Path, default=None)
    chosen = arguments.parse_args()
    rng = random.Random(1)
    keys = [EntityKey(f"Item/item-{number}") for number in range(chosen.entities)]
    uniform = rng.choices(keys, k=READS)
    hot = rng.choices(keys[:HOT], k=READS)
    missing = [EntityKey(f"{key}-missing") for key in uniform[: READS // 10]]
    result: dict[str, object] = {"entities": chosen.entities}
    with tempfile.TemporaryDirectory(dir=chosen.directory) as directory:
        state = LmdbState(Path(directory) / "one", "benchmark", boot_id="benchmark")
        result["applied_per_s"] = applying(state, keys, rng)
        with state.reader() as reader:
            uniform_us = reads(reader.get, uniform)
            result["gets_per_s"] = round(1e6 / uniform_us)
            result["get_us"] = {
                "uniform": uniform_us,
                "hot": reads(reader.get, hot),
                "missing": reads(reader.get, missing),
            }
            verified = rate(len(keys), lambda: digest_of_items(reader.items()))
        result["digest_per_s"] = round(verified)
        state.close()
        journal = journal_of(keys, EPOCHS)
        for partitions in (1, 2):
            result[f"partitions_{partitions}"] = partitioned(
                Path(directory) / f"of-{partitions}", journal, partitions, (uniform, hot)
            )
    print(json.dumps(result))


def partitioned(
    directory: Path,
    journal: MemoryJournal,
    partitions: int,
    keys: tuple[list[EntityKey], list[EntityKey]],
) -> dict[str, float]:
    """Measure the stores of a host: rebuilding one of them, opening all, reading through all."""
    last = Epoch(EPOCHS - 1)
    rows = sum(part.rows for commit in journal.commits(BEFORE_FIRST) for part in commit.parts)
    stores = Stores(directory, journal, partitions, boot_id="benchmark")
    speed = rate(rows, lambda: stores.catch_up_one(0, last))
    with stores.at(last) as reader:
        uniform_us, hot_us = (reads(reader.get, some) for some in keys)
    opened = statistics.median(rate(1, lambda: open_once(stores, last)) for _ in range(99))
    stores.close()
    return {
        "catch_up_rows_per_s": round(speed),
        "get_uniform_us": uniform_us,
        "get_hot_us": hot_us,
        "at_us": round(1e6 / opened, 1),
    }


def open_once(stores: Stores, epoch: Epoch) -> None:
    """Open and close a reader of all partitions that are at the epoch already."""
    with stores.at(epoch):
        pass


if __name__ == "__main__":
    main()
