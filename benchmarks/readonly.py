"""Reads: milliseconds of a `@readonly` call from the state, and of the same call through an epoch.

    python -m benchmarks.readonly [--calls N] [--together N]

Starts `penstock run` for a shelf of items, in a temporary directory. Makes the same call in turn in
three ways: read from the state, recorded in the log (with a request id), and in batches of `POST
/read`. Then it reads over several connections at once, with and without a writer beside them. Prints
one JSON object: the median and the 99th percentile of each.
"""

import argparse
import itertools
import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.harness.http import HOST, running
from benchmarks.harness.load import Answer, Load, Request
from penstock import App, Entity, key, readonly

ITEMS = 100
BATCH = 100


class Item(Entity):
    """An item on the shelf."""

    item_id: str = key()
    price: int = 3
    stock: int = 0

    def add(self, amount: int) -> int:
        """Put some onto the shelf."""
        self.stock += amount
        return self.stock

    @readonly
    def cost(self, amount: int) -> int:
        """Return the price of some of them."""
        return self.price * amount


app = App("shelf", Item)


def main() -> None:
    """Run the shelf, call it, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--together", type=int, default=8)
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder) / "data", app=f"{__file__}:app") as port,
    ):
        print(json.dumps(measured(port, chosen.calls, chosen.together), indent=2))


def measured(port: int, calls: int, together: int) -> dict[str, dict[str, float]]:
    """Return milliseconds by kind of call: `p50` and `p99`.

    Args:
        port: The port of the gateway.
        calls: The calls of each kind; a tenth of them go through the log.
        together: The connections at once.
    """
    one, several = Load(HOST, port, 1), Load(HOST, port, together)
    checked(one.run(Request("POST", f"/call/Item/i{n}/create") for n in range(ITEMS)))
    checked(one.run(itertools.islice(reads(), 50)))
    figures = {
        "read": percentiles(one.run(itertools.islice(reads(), calls))),
        "recorded": percentiles(one.run(itertools.islice(reads(recorded=True), calls // 10))),
        f"batch of {BATCH}": percentiles(
            one.run(itertools.repeat(batch(), max(1, calls // BATCH)))
        ),
        f"read, {together} at once": percentiles(several.run(itertools.islice(reads(), calls))),
    }
    stopping = threading.Event()
    writer = threading.Thread(target=write, args=(port, stopping))
    writer.start()
    try:
        figures["read beside a writer"] = percentiles(one.run(itertools.islice(reads(), calls)))
    finally:
        stopping.set()
        writer.join()
    return figures


def reads(*, recorded: bool = False) -> Iterator[Request]:
    """Yield calls of all items in turn; recorded calls have a request id."""
    for number in itertools.count():
        name = f"read-{number}" if recorded else ""
        yield Request("POST", f"/call/Item/i{number % ITEMS}/cost", b"[2]", name)


def batch() -> Request:
    """Return one request with many calls."""
    calls = [
        {"entity": "Item", "key": f"i{n % ITEMS}", "method": "cost", "arguments": [2]}
        for n in range(BATCH)
    ]
    return Request("POST", "/read", msgspec.json.encode({"calls": calls}))


def write(port: int, stopping: threading.Event) -> None:
    """Write one request after another until the event is set."""

    def adds() -> Iterator[Request]:
        number = 0
        while not stopping.is_set():
            yield Request("POST", f"/call/Item/i{number % ITEMS}/add", b"[1]")
            number += 1

    checked(Load(HOST, port, 1).run(adds()))


def checked(answers: list[Answer]) -> list[Answer]:
    """Return the answers.

    Raises:
        RuntimeError: The status of an answer is not 200.
    """
    for answer in answers:
        if answer.status != 200:
            raise RuntimeError(f"{answer.request.path}: {answer.status} {answer.body[:200]!r}")
    return answers


def percentiles(answers: list[Answer]) -> dict[str, float]:
    """Return the median and the 99th percentile of the times of answers, in milliseconds."""
    times_ms = np.array([answer.took_s * 1e3 for answer in checked(answers)])
    low, high = np.percentile(times_ms, [50, 99])
    return {"p50_ms": round(float(low), 2), "p99_ms": round(float(high), 2)}


if __name__ == "__main__":
    main()
