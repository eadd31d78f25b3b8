"""Failover: how long from `kill -9` of the driver to the next reply, without and with a standby.

    python -m benchmarks.failover [--runs N]

Starts the shop with `penstock run`, once without and once with `--standby`, in turns. In each turn it sends
requests, kills the driver, and sends the next request. Prints one JSON object with the seconds of each run from
the kill to the reply of that request (`reply_s`), their medians, and the memory of the waiting standby in
bytes, without the pages that it shares with other processes (`standby_bytes`).
"""

import argparse
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import psutil

from benchmarks.harness.ports import free_port
from benchmarks.machine import TOP, machine
from benchmarks.start import HOST, TIMEOUT_S, running
from penstock.process import presence

LOOK_S: Final = 0.005
REQUESTS: Final = 50


def main() -> None:
    """Kill drivers in turns, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    turns: dict[str, list[dict[str, float]]] = {"alone": [], "standby": []}
    for _ in range(chosen.runs):
        for name, runs in turns.items():
            runs.append(measured(standby=name == "standby"))
    figures = {name: summary(runs) for name, runs in turns.items()}
    where = machine(Path(tempfile.gettempdir()))
    print(json.dumps({"machine": where, **figures}))


def measured(*, standby: bool) -> dict[str, float]:
    """Kill one driver under requests; return the figures."""
    with tempfile.TemporaryDirectory(prefix="penstock-failover-") as folder:
        data, port = Path(folder) / "data", free_port(HOST)
        with running(TOP, data, port, 1, *(["--standby"] if standby else [])) as process:

            def is_ready() -> bool:
                assert process.is_running(), "penstock run has ended"
                waits = presence.find(data, "standby")
                is_warm = bool(waits) and waits[0].details.get("state") == "ready"
                roles = ("driver", "view", "gateway")
                return all(presence.find(data, role) for role in roles) and is_warm is standby

            await_(is_ready)
            with httpx.Client(base_url=f"http://{HOST}:{port}", timeout=TIMEOUT_S) as client:
                for number in range(REQUESTS):
                    create(client, number)
                memory = [own_bytes(waits.pid) for waits in presence.find(data, "standby")]
                (driver,) = presence.find(data, "driver")
                began = time.perf_counter()
                os.kill(driver.pid, signal.SIGKILL)
                create(client, REQUESTS)
                figures = {"reply_s": time.perf_counter() - began}
        return figures | ({"standby_bytes": memory[0]} if memory else {})


def await_(is_reached: Callable[[], bool]) -> None:
    """Wait until a state is reached."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_reached():
        if time.monotonic() > deadline:
            raise SystemExit("the application has not started in time")
        time.sleep(LOOK_S)


def create(client: httpx.Client, number: int) -> None:
    """Send one request, and wait for its reply."""
    client.post(f"/call/Item/i{number}/create", json={"price": 3}).raise_for_status()


def own_bytes(pid: int) -> float:
    """Return the memory of a process and those below it; a shared page counts in part for each process."""
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    return float(sum(member.memory_full_info().pss for member in family))


def summary(runs: list[dict[str, float]]) -> dict[str, object]:
    """Return each figure of all runs, and its median."""
    names = {name: None for run in runs for name in run}
    return {name: [round(run[name], 3) for run in runs] for name in names} | {
        f"{name}_median": round(median(run[name] for run in runs), 3) for name in names
    }


if __name__ == "__main__":
    main()
