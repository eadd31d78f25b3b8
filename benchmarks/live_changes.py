"""Live changes under kills: deployments, rollbacks and moves of buckets, while processes are killed under load.

    python -m benchmarks.live_changes [--changes N] [--seconds S] [--people N] [--gateways N] [--seed S] [--kills 0]
                                      [--moves-only]

Starts a kiosk with `penstock run`. People buy, and send a request again until it has its reply. Meanwhile random changes
follow each other, by the commands that users have: new versions, versions that cannot be imported, rollbacks, moves to 2,
8 and 3 partitions. At a random moment of each change, `kill -9` ends a process: the driver, its Java process, a worker, a
gateway, or the SQL view, each once before any of them again. With `--moves-only`, each change is the next move. In the end, the journal shows whether each purchase took effect once, whether it
ran with the code of its epoch, and whether money and stock agree; `penstock replay` and `penstock verify` must find no
difference. Prints one JSON object, and ends with 1 if something is wrong.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import uvloop

from benchmarks.harness.http import HOST, running
from benchmarks.harness.kiosk import ITEMS, USERS, complaints_of, write_version
from benchmarks.harness.load import Load, Request
from penstock.process import presence

VICTIMS: Final = ("driver", "java", "worker", "gateway", "view")
CHANGES: Final = ("deploy", "deploy", "broken", "rollback", "rebalance", "rebalance")
MOVES: Final = (2, 8, 3)
KILL_WITHIN_S: Final = 3.0
PAUSE_S: Final = 0.2
_OK: Final = 200
_TIRED_S: Final = 180.0
"""A reply must come within this time, whatever was killed meanwhile."""
_REFUSED: Final = 2


@dataclass(slots=True)
class Run:
    """One run under changes.

    Attributes:
        source: The folder of the application.
        data: Its data directory.
        port: The port of the gateway.
        draw: The source of all random choices.
        kills: Whether processes are killed.
        choices: The changes, of which one is drawn each time.
        victims: The sorts of process that are still to be killed in this turn.
        replies: The replies of purchases, by request id.
        changes: How often each change had each exit code.
        killed: How many processes of each sort were killed.
        wrong: What contradicts the contract.
        latest_s: The longest time to a reply.
    """

    source: Path
    data: Path
    port: int
    draw: random.Random
    kills: bool = True
    choices: tuple[str, ...] = CHANGES
    victims: list[str] = field(default_factory=list)
    replies: dict[str, Any] = field(default_factory=dict)
    changes: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    latest_s: float = 0.0
    version: int = 1
    ended: bool = False

    async def perform(self, count: int, seconds: float, people: int) -> None:
        """Let people buy while changes follow each other, until both the count and the seconds are reached."""
        await self._ask(Request("POST", "/call/fill", b"[]", "fill"))
        buying = [asyncio.create_task(self._buy(number)) for number in range(people)]
        deadline, done = time.monotonic() + seconds, 0
        while done < count or time.monotonic() < deadline:
            await asyncio.gather(self._change(done), self._kill_one())
            done += 1
        self.ended = True
        await asyncio.gather(*buying)

    async def _buy(self, person: int) -> None:
        draw, number = random.Random(person), 0
        while not self.ended:
            user, item = draw.randrange(USERS), draw.randrange(ITEMS)
            body = json.dumps([f"i{item}", draw.randrange(1, 4)]).encode()
            name = f"buy-{person}-{number}"
            reply = await self._ask(Request("POST", f"/call/User/u{user}/buy", body, name))
            self.replies[name] = reply
            number += 1
            await asyncio.sleep(PAUSE_S)

    async def _ask(self, request: Request) -> Any:
        """Return the reply to a request, which is sent again while no process can answer."""
        began = time.monotonic()
        load = Load(HOST, self.port, 1)
        answer = None
        with load.connection() as connection:
            while time.monotonic() < began + _TIRED_S:
                answer = await load.ask(connection, request)
                if answer.status == _OK:
                    self.latest_s = max(self.latest_s, time.monotonic() - began)
                    return json.loads(answer.body) if answer.body else None
                if answer.status < 500 and answer.status != 429:
                    break
                await asyncio.sleep(PAUSE_S)
        self.wrong.append(f"{request.request_id}: {answer and (answer.status, answer.body[:300])}")
        return None

    async def _change(self, number: int) -> None:
        """Make a random change by its command."""
        choice = self.draw.choice(self.choices)
        words = [choice, "--data", str(self.data)]
        match choice:
            case "deploy":
                self.version += 1
                write_version(self.source, self.version)
                words.insert(1, str(self.source))
            case "broken":
                self.version += 1
                write_version(self.source, self.version, broken=True)
                words = ["deploy", str(self.source), "--data", str(self.data)]
            case "rebalance":
                words += ["--partitions", str(MOVES[number % len(MOVES)])]
            case _:
                pass
        code, text = await _command(*words)
        self.changes[f"{choice} {code}"] += 1
        expected = {_REFUSED} if choice == "broken" else {0}
        if choice == "broken":
            write_version(self.source, self.version)
        elif choice == "rollback" and not self.changes["deploy 0"]:
            expected = {_REFUSED}  # there is no former deployment
        if code not in expected:
            self.wrong.append(f"{' '.join(words)}: exit code {code}: {text[-600:]}")

    async def _kill_one(self) -> None:
        """Kill a process at a random moment."""
        await asyncio.sleep(self.draw.random() * KILL_WITHIN_S)
        self.victims = self.victims or self.draw.sample(VICTIMS, len(VICTIMS))
        victim = self.victims.pop()
        if self.kills and (pids := _processes(self.data, victim)):
            try:
                os.kill(self.draw.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                return
            self.killed[victim] += 1


def _processes(data: Path, victim: str) -> list[int]:
    """Return the processes of a sort that run on a data directory."""
    if victim in presence.ROLES:
        return [each.pid for each in presence.find(data, victim)]
    pids = []
    for driver in presence.find(data, "driver"):
        try:
            for each in psutil.Process(driver.pid).children(recursive=True):
                is_java = each.name() == "java"
                if is_java if victim == "java" else _is_worker(each):
                    pids.append(each.pid)
        except psutil.NoSuchProcess:
            continue
    return pids


def _is_worker(process: psutil.Process) -> bool:
    """Say whether a process executes tasks: its parent, a process of Python, is a child of Java."""
    parent = process.parent()
    above = None if parent is None else parent.parent()
    return above is not None and above.name() == "java"


async def _command(*words: str) -> tuple[int, str]:
    """Run a command of Penstock, and return its exit code and its output."""
    command = [sys.executable, "-P", "-m", "penstock", *words]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    out, errors = await process.communicate()
    return process.returncode or 0, (out + errors).decode(errors="replace")


def changed_under_kills(folder: Path, choices: argparse.Namespace) -> dict[str, Any]:
    """Run the kiosk in a folder, and return the figures.

    Args:
        folder: An empty folder for source and data.
        choices: The choices of the command line.
    """
    source, data = folder / "changing_kiosk", folder / "data"
    write_version(source, 1)
    began = time.monotonic()
    with running(data, choices.gateways, "partitions=2", app=str(source)) as port:
        run = Run(source, data, port, random.Random(choices.seed), kills=bool(choices.kills))
        if choices.moves_only:
            run.choices = ("rebalance",)
        uvloop.run(run.perform(choices.changes, choices.seconds, choices.people))
        took_s = time.monotonic() - began
    versions, complaints = complaints_of(source, data, run.replies)
    for words in (["replay"], ["verify"]):
        code, text = uvloop.run(_command(*words, str(source), "--data", str(data)))
        if code:
            complaints.append(f"{words[0]}: {text[-2_000:]}")
    return {
        "seed": choices.seed,
        "seconds": round(took_s, 1),
        "purchases": len(run.replies),
        "changes": dict(sorted(run.changes.items())),
        "killed": dict(sorted(run.killed.items())),
        "versions": len(versions),
        "latest_reply_s": round(run.latest_s, 2),
        "wrong": [*run.wrong, *complaints],
    }


def main() -> None:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=20, help="at least so many changes")
    parser.add_argument("--seconds", type=float, default=0.0, help="at least so long")
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--gateways", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--kills", type=int, default=1, help="0: kill nothing")
    parser.add_argument("--moves-only", action="store_true", help="no deployments, only moves")
    parser.add_argument("--directory", default="/var/tmp")
    choices = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=choices.directory, prefix="penstock-changes-") as folder:
        figures = changed_under_kills(Path(folder), choices)
        if figures["wrong"]:
            log = (Path(folder) / "data" / "run.log").read_text(errors="replace")
            sys.stderr.write(log[-20_000:])
    print(json.dumps(figures))
    sys.exit(1 if figures["wrong"] else 0)


if __name__ == "__main__":
    main()
