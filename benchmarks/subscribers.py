"""Subscribers of entities at one gateway: memory, processor time of each delivered change, and its delay.

    python -m benchmarks.subscribers [--subscribers N] [--rate N] [--seconds S] [--slow N] [--looks]

Starts `penstock run` for a board of notes, in a temporary directory, and changes notes at a steady rate. First nobody subscribes.
Then each subscriber has a note of its own, then all have the same note, which changes twice a second. Afterwards the gateway has subscribers
that never read, of a note of 64 KB that changes ten times a second, until the gateway has ended their connections. Prints one JSON object. The
delay of a change lasts from the sending of its request to its arrival at a subscriber, so it has the whole transaction; the delay
of the reply is next to it.

With `--looks`, it measures only the reading of a look, in turns with the reading of all rows, for several numbers of subscribed
entities and of epochs with three changes. No application runs then.
"""

import argparse
import asyncio
import json
import os
import random
import re
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import psutil
import pyarrow as pa
import uvloop

from benchmarks.harness.http import HOST, running
from penstock import App, AsyncClient, Entity, key
from penstock.base.ids import ONLY_PARTITION, EntityKey, Epoch, Lsn
from penstock.journal.api import CHANGES, Commit, Journal, PartKind
from penstock.journal.delta import DeltaJournal
from penstock.process import presence
from penstock.state.newest import read_changed
from penstock.state.stores import Stores

LARGE: Final = 64 << 10
FAN_OUT_RATE: Final = 2
SLOW_RATE: Final = 10
SLOW_S: Final = 90.0
_SENT: Final = re.compile(rb'"sent_us":(\d+)')


class Note(Entity):
    """A note on the board, with the time at which its change was sent."""

    name: str = key()
    sent_us: int = 0
    text: str = ""

    def write(self, sent_us: int, text: str) -> None:
        """Change the note."""
        self.sent_us, self.text = sent_us, text


app = App("board", Note)


class Subscriber(asyncio.Protocol):
    """One connection that subscribes to a note, and notes how long each change took to it."""

    def __init__(self, name: str, delays_us: list[float]) -> None:
        self._name = name
        self._delays_us = delays_us
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the states."""
        # uvloop's transports are no subclasses of asyncio's.
        cast("asyncio.Transport", transport).write(asked(self._name))

    def data_received(self, data: bytes) -> None:
        """Take events; each is far smaller than a packet."""
        now_us = time.monotonic_ns() // 1_000
        for match in _SENT.finditer(data):
            if self.first.done():
                self._delays_us.append(now_us - int(match[1]))
            else:
                self.first.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the start if there was none."""
        if not self.first.done():
            self.first.set_exception(exc or ConnectionError("the gateway refuses a subscriber"))


class Board:
    """The running application, and its gateway as the system sees it."""

    def __init__(self, port: int, data: Path, rate: int, seconds: float) -> None:
        self.port = port
        self._rate = rate
        self._seconds = seconds
        (found,) = presence.find(data, "gateway")
        self._gateway = psutil.Process(found.pid)
        self.client = AsyncClient(f"http://{HOST}:{port}", app, connections=64)
        self._draw = random.Random(7)

    @property
    def cpu_s(self) -> float:
        """The processor time of the gateway and its children."""
        every = [self._gateway, *self._gateway.children(recursive=True)]
        return sum(sum(each.cpu_times()[:2]) for each in every)

    @property
    def memory_mb(self) -> float:
        """The memory of the gateway's own process."""
        return float(self._gateway.memory_info().rss) / 1e6

    async def write(self, name: str, text: str = "") -> float:
        """Change a note; return the seconds until the reply."""
        began_us = time.monotonic_ns() // 1_000
        await self.client.call(Note.write, Note(name), began_us, text)
        return time.monotonic() - began_us / 1e6

    async def steady(
        self, rate: float, seconds: float, chosen: Callable[[], str], text: str = ""
    ) -> list[float]:
        """Change notes at a rate, whatever the replies take; return the seconds until each reply."""
        tasks, began_s = [], time.monotonic()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began_s + number / rate - time.monotonic()))
            tasks.append(asyncio.create_task(self.write(chosen(), text)))
        return list(await asyncio.gather(*tasks))

    async def phase(
        self, notes: int, delays_us: list[float], *further: asyncio.Task[Any]
    ) -> dict[str, float]:
        """Measure a time of steady changes."""
        delays_us.clear()
        before_s, began_s = self.cpu_s, time.monotonic()
        replies_s = await self.steady(
            self._rate, self._seconds, lambda: f"n{self._draw.randrange(notes)}"
        )
        await asyncio.gather(*further)
        await asyncio.sleep(0.5)
        cpu_s, took_s = self.cpu_s - before_s, time.monotonic() - began_s
        figures = {
            "cpu_s": round(cpu_s, 2),
            "cpu_share": round(cpu_s / took_s, 3),
            "delivered": len(delays_us),
            **percentiles("reply", np.array(replies_s) * 1e3),
        }
        if delays_us:
            figures |= percentiles("change", np.array(delays_us) / 1e3)
        return figures


def asked(name: str) -> bytes:
    """Return the request of a subscriber."""
    return (
        f"GET /entities/Note/{name}/changes HTTP/1.1\r\nHost: {HOST}\r\nAccept: text/event-stream\r\n\r\n"
    ).encode()


def percentiles(what: str, times_ms: Any) -> dict[str, float]:
    """Return the median and the 99th percentile."""
    low, high = np.percentile(times_ms, [50, 99])
    return {f"{what}_p50_ms": round(float(low), 1), f"{what}_p99_ms": round(float(high), 1)}


async def subscribed(
    port: int, names: list[str], delays_us: list[float]
) -> list[asyncio.BaseTransport]:
    """Connect a subscriber for each name, 50 at a time, and wait for the first state of each."""
    loop, transports = asyncio.get_running_loop(), []
    for begin in range(0, len(names), 50):
        made = [
            await loop.create_connection(lambda name=name: Subscriber(name, delays_us), HOST, port)
            for name in names[begin : begin + 50]
        ]
        async with asyncio.timeout(60):
            await asyncio.gather(*(subscriber.first for _, subscriber in made))
        transports += [transport for transport, _ in made]
    return transports


async def slow(board: Board, count: int) -> dict[str, float]:
    """Measure subscribers that never read, until the gateway has ended them."""
    text = "x" * LARGE
    await board.write("large", text)
    before_mb, before_kernel_mb = board.memory_mb, kernel_mb()
    readers = []
    for _ in range(count):
        reader = socket.create_connection((HOST, board.port))
        reader.sendall(asked("large"))
        readers.append(reader)
    most_mb = most_kernel_mb = 0.0
    writing = asyncio.create_task(board.steady(SLOW_RATE, SLOW_S, lambda: "large", text))
    ended_s, began_s = 0.0, time.monotonic()
    while not writing.done():
        await asyncio.sleep(1.0)
        most_mb = max(most_mb, board.memory_mb - before_mb)
        most_kernel_mb = max(most_kernel_mb, kernel_mb() - before_kernel_mb)
        if not ended_s and not open_at(board.port, readers):
            ended_s = time.monotonic() - began_s
    for reader in readers:
        reader.close()
    return {
        "readers": count,
        "offered_mb_each": round(SLOW_RATE * SLOW_S * LARGE / 1e6, 1),
        "gateway_mb_each": round(most_mb / count, 3),
        "kernel_mb_each": round(most_kernel_mb / count, 3),
        "ended_after_s": round(ended_s, 1),
        **percentiles("reply", np.array(await writing) * 1e3),
    }


def kernel_mb() -> float:
    """Return the memory of all TCP buffers of this network namespace."""
    text = Path("/proc/net/sockstat").read_text(encoding="ascii")
    match = re.search(r"TCP:.* mem (\d+)", text)
    return int(match[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6 if match else 0.0


def open_at(port: int, readers: list[socket.socket]) -> int:
    """Return how many connections the gateway holds open."""
    ours = {reader.getsockname()[1] for reader in readers}
    with suppress(psutil.Error):
        return sum(
            each.status == psutil.CONN_ESTABLISHED
            and each.laddr.port == port
            and bool(each.raddr)
            and each.raddr.port in ours
            for each in psutil.net_connections("tcp4")
        )
    return len(readers)


async def measured(port: int, data: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return all figures."""
    board = Board(port, data, chosen.rate, chosen.seconds)
    count, delays_us = chosen.subscribers, []
    for begin in range(0, count, 200):
        names = [f"n{number}" for number in range(begin, min(begin + 200, count))]
        await board.client.bulk([board.client.prepare(Note.create, name) for name in names])
    await board.client.bulk([board.client.prepare(Note.create, each) for each in ("one", "large")])
    await board.steady(chosen.rate, 5.0, lambda: "n0")  # warm
    figures: dict[str, Any] = {"load": os.getloadavg()[0]}
    figures["nobody"] = alone = await board.phase(count, delays_us)
    before_mb = board.memory_mb
    open_ones = await subscribed(port, [f"n{number}" for number in range(count)], delays_us)
    figures["kb_each"] = round((board.memory_mb - before_mb) * 1e3 / count, 1)
    before_s = board.cpu_s
    await asyncio.sleep(chosen.seconds)
    figures["idle_cpu_share"] = round((board.cpu_s - before_s) / chosen.seconds, 4)
    figures["own notes"] = await board.phase(count, delays_us)
    figures["kb_each_after"] = round((board.memory_mb - before_mb) * 1e3 / count, 1)
    for each in open_ones:
        each.close()
    await asyncio.sleep(1.0)
    open_ones = await subscribed(port, ["one"] * count, delays_us)
    shared = asyncio.create_task(board.steady(FAN_OUT_RATE, chosen.seconds, lambda: "one"))
    figures["the same note"] = await board.phase(count, delays_us, shared)
    for each in open_ones:
        each.close()
    await asyncio.sleep(1.0)
    for name in ("own notes", "the same note"):
        spent_s = figures[name]["cpu_s"] - alone["cpu_s"]
        figures[name]["us_each"] = round(spent_s * 1e6 / max(1, figures[name]["delivered"]), 1)
    figures["never read"] = await slow(board, chosen.slow) if chosen.slow else {}
    await board.client.close()
    return figures


def commit(journal: Journal, epoch: int, names: list[str]) -> None:
    """Commit an epoch that changes some notes."""
    columns = [[epoch] * len(names), ["Note"] * len(names), names, [os.urandom(40) for _ in names]]
    part = journal.write(PartKind.CHANGES, pa.table(columns, schema=CHANGES), "note")
    journal.commit(Commit(Epoch(epoch), {ONLY_PARTITION: Lsn(epoch)}, (part,), 0))


def looks(folder: Path) -> dict[str, Any]:
    """Return the processor time of readings, in microseconds: the least of five times."""
    journal = DeltaJournal(folder / "journal", "board")
    stores = Stores(folder / "state", journal, 2, boot_id=presence.boot_id())
    commit(journal, 0, [f"n{number}" for number in range(10_000)])
    for epoch in range(1, 11):
        commit(journal, epoch, [f"n{997 * epoch + place}" for place in range(3)])
    figures: list[dict[str, int]] = []
    for count in (1, 100, 1_000, 10_000):
        keys = {EntityKey(f"Note/n{number}"): None for number in range(count)}.keys()
        for epochs in (1, 5):
            times_us: dict[Epoch | None, list[float]] = {None: [], Epoch(10 - epochs): []}
            for after in [*times_us] * 5:
                began_s = time.process_time()
                for _ in range(50):
                    read_changed(journal, stores, keys, after)
                times_us[after].append((time.process_time() - began_s) / 50 * 1e6)
            all_us, look_us = (round(min(each)) for each in times_us.values())
            row = {"entities": count, "epochs": epochs, "all_us": all_us, "look_us": look_us}
            figures.append(row)
    stores.close()
    journal.close()
    return {"load": os.getloadavg()[0], "readings": figures}


def main() -> None:
    """Run the board, subscribe, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscribers", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=200, help="changes in a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="the time of each phase")
    parser.add_argument("--slow", type=int, default=50, help="subscribers that never read")
    parser.add_argument("--looks", action="store_true", help="measure the reading of looks alone")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if chosen.looks:
            print(json.dumps(looks(Path(folder)), indent=2))
            return
        data = Path(folder) / "data"
        with running(data, app=f"{__file__}:app") as port:
            print(json.dumps(uvloop.run(measured(port, data, chosen)), indent=2))


if __name__ == "__main__":
    main()
