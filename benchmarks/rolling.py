"""Rolling deployments: failed requests and latencies while versions of the shop replace each other under load.

    python -m benchmarks.rolling [--people N] [--seconds S]

Starts a copy of the shop with `penstock run`. People check out random orders, each about once a second; the first seconds
warm up, and do not count. Meanwhile three changed versions of the source are deployed with `penstock deploy`, one after
the other. Prints one JSON object: the failed requests; the median, the 99th percentile and the longest latency in
milliseconds before the first deployment, around each one (from 1 s before it is in force to 3 s after), and in the rest;
the longest latency around a deployment as a multiple of the 99th percentile of the rest; the seconds of each
`penstock deploy`; and the requests that the journal has for each version. `wrong` says what contradicts the contract:
failed requests, complaints of the processes, a reply later than twice the usual 99th percentile, or a version without
requests. The exit code is then 1.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
import uvloop

from benchmarks.harness.answers import succeeded
from benchmarks.harness.http import complaints_of, fill, running
from benchmarks.harness.load import Answer
from benchmarks.harness.shop import EXAMPLE
from benchmarks.machine import machine
from benchmarks.shop_load import ORDERS, come
from penstock.base.ids import BEFORE_FIRST
from penstock.deployment.deployment_list import list_deployments
from penstock.journal.api import PartKind
from penstock.process.data_directory import DataDirectory

VERSIONS: Final = 3
BEFORE_S: Final = 1.0
AFTER_S: Final = 3.0
MOST_BY_USUAL_P99: Final = 2.0
"""No reply around a deployment may take longer than so many times the 99th percentile of the rest."""
WARM_UP_S: Final = 10.0


def main() -> None:
    """Deploy under load, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="penstock-rolling-") as folder:
        app, data = Path(folder) / "shop", Path(folder) / "data"
        shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("__pycache__"))
        with running(
            data, 1, "limits.time_ms=60000", "limits.wall_ms=60000", app=str(app)
        ) as port:  # filling takes long
            fill(port, ORDERS)
            warm = uvloop.run(come(port, chosen.people, WARM_UP_S, seed=2))
            answers, switches = uvloop.run(load(port, app, data, chosen.people, chosen.seconds))
        figures = summary(answers, switches)
        figures["warm_up_failures"] = sum(not succeeded(answer) for answer in warm)
        figures["requests_by_version"] = requests_by_version(data)
        figures["complaints"] = complaints_of(
            data, list({a.request.path: a for a in (*warm, *answers)}.values())
        )
    figures["wrong"] = wrong_in(figures)
    print(json.dumps({"machine": machine(Path(tempfile.gettempdir())), **figures}))
    sys.exit(1 if figures["wrong"] else 0)


def wrong_in(figures: dict[str, Any]) -> list[str]:
    """Say what in the figures contradicts the contract of rolling deployments."""
    names = ("failures", "warm_up_failures", "complaints")
    wrong = [f"{name}: {figures[name]}" for name in names if figures[name]]
    for number, latest in enumerate(figures["latest_by_usual_p99"], 1):
        if latest is None:
            wrong.append(f"deployment {number}: no latency is known around it")
        elif latest > MOST_BY_USUAL_P99:
            wrong.append(f"deployment {number}: a reply took {latest} times the usual p99")
    unused = [n for n, count in figures["requests_by_version"].items() if not count]
    if unused or len(figures["requests_by_version"]) <= VERSIONS:
        wrong.append(f"versions without requests: {figures['requests_by_version']}")
    return wrong


async def load(
    port: int, app: Path, data: Path, people: int, seconds: float
) -> tuple[list[Answer], list[tuple[float, float]]]:
    """Let people check out orders while versions are deployed.

    Args:
        port: The port of the gateway.
        app: The source of the application.
        data: The data directory.
        people: The number of people.
        seconds: How long they come.

    Returns:
        All answers, and for each deployment its beginning and its end, on the clock of the answers.
    """
    coming = asyncio.create_task(come(port, people, seconds, seed=1))
    switches, start = [], time.perf_counter()
    for version in range(1, VERSIONS + 1):
        due = start + seconds * version / (VERSIONS + 1)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        with (app / "order.py").open("a") as source:
            source.write(f"\nVERSION = {version}\n")
        began = time.perf_counter()
        words = ["-P", "-m", "penstock", "deploy", str(app), "--data", str(data), "--json"]
        process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=DEVNULL)
        if await process.wait():
            raise SystemExit(f"version {version} is not in force")
        switches.append((began, time.perf_counter()))
    return await coming, switches


def summary(answers: list[Answer], switches: list[tuple[float, float]]) -> dict[str, Any]:
    """Return failures and latencies, before, around and between the switches."""
    around = [
        [a for a in answers if end - BEFORE_S <= a.sent_s < end + AFTER_S] for _, end in switches
    ]
    near = {id(answer) for several in around for answer in several}
    first = switches[0][0]
    rest = percentiles([a for a in answers if a.sent_s >= first and id(a) not in near])
    nearby = [percentiles(several) for several in around]
    return {
        "requests": len(answers),
        "failures": sum(not succeeded(answer) for answer in answers),
        "before_ms": percentiles([a for a in answers if a.sent_s < first]),
        "around_ms": nearby,
        "rest_ms": rest,
        "latest_by_usual_p99": [
            round(each["max"] / rest["p99"], 2) if each and rest else None for each in nearby
        ],
        "deploy_s": [round(end - began, 2) for began, end in switches],
    }


def percentiles(answers: list[Answer]) -> dict[str, float]:
    """Return the median, the 99th percentile and the longest latency in milliseconds; nothing without answers."""
    if not answers:
        return {}
    took_ms = np.array([answer.took_s for answer in answers]) * 1_000
    figures = {f"p{q}": round(float(np.percentile(took_ms, q)), 1) for q in (50, 99)}
    return {**figures, "max": round(float(took_ms.max()), 1)}


def requests_by_version(data: Path) -> dict[int, int]:
    """Return how many requests the journal has for each deployment."""
    every = list_deployments(data)
    counts = {deployment.number: 0 for deployment in every}
    directory = DataDirectory(data)
    with closing(directory.open_journal_of(directory.app_name or "")) as journal:
        for commit in journal.commits(BEFORE_FIRST):
            number = max(each.number for each in every if each.since <= commit.epoch)
            parts = commit.parts_of(PartKind.TRANSACTIONS)
            counts[number] += sum(len(journal.read(part)) for part in parts)
    return counts


if __name__ == "__main__":
    main()
