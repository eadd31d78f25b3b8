"""From an append over HTTP to its acceptance, and to the event at a follower, for `benchmarks.streams`.

`penstock run` serves a workflow that forwards numbers. An event is the time at which it should have been sent, on the
clock of the machine. So a late generator counts against the figure, and the follower needs no second record: it
subtracts the event from its own time.
"""

import asyncio
import http.client
import itertools
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvloop

from benchmarks import stream_apps
from benchmarks.harness.http import HOST, running
from benchmarks.harness.load import Load, Request

CONNECTIONS: Final = 32
WARM_UP_S: Final = 3.0
WAIT_S: Final = 120.0
_DATA: Final = b"data: "
_OK: Final = (200, 202)


@dataclass(slots=True)
class Follower:
    """Takes the atoms of a stream as server-sent events, in a thread.

    Attributes:
        port: The port of the gateway.
        numbers: The numbers of the atoms, as they came.
        stamps: Their events: when each should have been sent, in nanoseconds.
        came: When each came, in nanoseconds.
    """

    port: int
    numbers: list[int] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    came: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Take atoms until the gateway ends the response."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=WAIT_S)
        connection.request(
            "GET", "/streams/echoes?from=earliest", headers={"Accept": "text/event-stream"}
        )
        response = connection.getresponse()
        try:
            while line := response.readline():
                if line.startswith(_DATA):
                    came = time.monotonic_ns()
                    atom = json.loads(line.removeprefix(_DATA))
                    self.numbers.append(atom["atom"])
                    self.stamps += atom["events"]
                    self.came.append(came)
        except (OSError, http.client.HTTPException):
            return  # the application has stopped

    def wait(self, count: int) -> None:
        """Wait for a number of atoms.

        Raises:
            TimeoutError: They did not come.
        """
        deadline = time.monotonic() + WAIT_S
        while len(self.came) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the follower has {len(self.came)} of {count} atoms")
            time.sleep(0.05)


def follow(directory: Path, rate: int, seconds: float) -> tuple[list[float], list[float], bool]:
    """Append at a rate and follow.

    Args:
        directory: The place of the data.
        rate: The appends in a second.
        seconds: The measured time, after a warm-up.

    Returns:
        The milliseconds of each measured event until its append was accepted and until it was at the follower, and
        whether each append came once and in order.
    """
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="penstock-follow-") as folder,
        running(Path(folder) / "data", app=f"{stream_apps.__file__}:echoing") as port,
    ):
        follower = Follower(port)
        thread = threading.Thread(target=follower.run, daemon=True)
        thread.start()
        warm_up = int(rate * WARM_UP_S)
        sent, accepted_ms = uvloop.run(_append(port, rate, warm_up + int(rate * seconds)))
        follower.wait(len(sent))
    is_right = follower.numbers == list(range(len(sent))) and sorted(follower.stamps) == sent
    pairs = zip(follower.came, follower.stamps, strict=True)
    measured_from = sent[warm_up]
    came_ms = [(came - due) / 1e6 for came, due in pairs if due >= measured_from]
    return accepted_ms[warm_up:], came_ms, is_right


async def _append(port: int, rate: int, count: int) -> tuple[list[int], list[float]]:
    """Append events at a rate.

    Args:
        port: The port of the gateway.
        rate: The appends in a second.
        count: The number of appends.

    Returns:
        When each should have been sent, in nanoseconds, and the milliseconds until it was accepted.

    Raises:
        RuntimeError: An append was refused.
    """
    load = Load(HOST, port, CONNECTIONS)
    begin = time.monotonic_ns() + 100_000_000
    due_ns = [begin + number * 1_000_000_000 // rate for number in range(count)]
    waiting = zip(itertools.count(), due_ns)
    accepted_ms = [0.0] * count
    await asyncio.gather(*(_work(load, waiting, accepted_ms) for _ in range(CONNECTIONS)))
    refused = [answer for answer in load.answers if answer.status not in _OK]
    if refused:
        raise RuntimeError(f"an append was refused: {refused[0].status} {refused[0].body[:200]!r}")
    return due_ns, accepted_ms


async def _work(load: Load, waiting: Iterator[tuple[int, int]], accepted_ms: list[float]) -> None:
    with load.connection() as connection:
        for number, due_ns in waiting:  # shared by all workers
            await asyncio.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))
            request = Request("POST", "/send/streams/stamps", b"[%d]" % due_ns, f"stamp-{number}")
            load.answers.append(await load.ask(connection, request))
            accepted_ms[number] = (time.monotonic_ns() - due_ns) / 1e6
