"""`penstock dev`: how long from a save of the source to the first reply of the new code.

    python -m benchmarks.dev [--saves N]

Starts `penstock dev` with a small application of one file, changes the file again and again, and calls a function of it all
the time. Prints one JSON object: the median and the longest time from a save to the first reply of the new code in seconds,
and the processor time of all processes from one save to the next.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from benchmarks.machine import TOP, machine
from benchmarks.start import HOST, TIMEOUT_S, in_foreground, processor_s
from penstock.gateway.serving import free_port

SOURCE: Final = """
from penstock import App, Entity, key, transactional

class Item(Entity):
    item_id: str = key()
    stock: int = 0

@transactional
def version() -> int:
    return {version}

app = App("versions", Item, version)
"""
LOOK_S: Final = 0.005
REST_S: Final = 1.0
"""The pause before a save, in which the processes finish the deployment before."""


def main() -> None:
    """Save the source several times, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--saves", type=int, default=10)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="penstock-dev-") as folder:
        file, port = Path(folder) / "versions.py", free_port(HOST)
        file.write_text(SOURCE.format(version=0))
        words = ["dev", str(file), "--data", str(Path(folder) / "data"), "--port", str(port)]
        with (
            in_foreground(TOP, *words) as process,
            httpx.Client(base_url=f"http://{HOST}:{port}", timeout=TIMEOUT_S) as client,
        ):
            seconds_until(client, 0)
            time.sleep(REST_S)
            took, spent = [], []
            for version in range(1, chosen.saves + 1):
                before = processor_s(process)
                file.write_text(SOURCE.format(version=version))
                took.append(seconds_until(client, version))
                time.sleep(REST_S)
                spent.append(processor_s(process) - before)
    figures = {
        "saves": chosen.saves,
        "reply_s": {"median": round(median(took), 2), "max": round(max(took), 2)},
        "cpu_s": round(median(spent), 2),
    }
    print(json.dumps({"machine": machine(Path(tempfile.gettempdir())), **figures}))


def seconds_until(client: httpx.Client, version: int) -> float:
    """Call the function until it has a version; return the seconds."""
    began = time.perf_counter()
    while time.perf_counter() - began < TIMEOUT_S:
        try:
            answer = client.post("/call/version", json={})
        except httpx.ConnectError:  # the gateway does not listen yet
            answer = None
        if answer is not None and answer.is_success and answer.json() == version:
            return time.perf_counter() - began
        time.sleep(LOOK_S)
    raise SystemExit(f"version {version} has not replied")


if __name__ == "__main__":
    main()
