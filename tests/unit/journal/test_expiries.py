"""Waits end when their time is up, all of them by one timer."""

import asyncio
import time

from penstock.journal.expiries import LOOK_S, Expiries

SLACK_S = 5.0


class Wait:
    """A wait that notes its end."""

    def __init__(self) -> None:
        self.expired = asyncio.Event()

    def expire(self) -> None:
        self.expired.set()


def test_waits_end_in_time_and_not_early() -> None:
    """Each wait expires after its own time; a removed wait never does."""

    async def run() -> list[float]:
        expiries = Expiries(asyncio.get_running_loop())
        waits = [Wait() for _ in range(4)]
        limits_s = [0.2, 0.0, 0.1, 0.01]
        began_s = time.monotonic()
        for wait, limit_s in zip(waits, limits_s, strict=True):
            expiries.add(wait, limit_s)
        expiries.remove(waits[2])
        took_s = []
        for index in (1, 3, 0):
            await asyncio.wait_for(waits[index].expired.wait(), SLACK_S)
            took_s.append(time.monotonic() - began_s - limits_s[index])
            expiries.remove(waits[index])
        await asyncio.sleep(3 * LOOK_S)
        assert not waits[2].expired.is_set()
        return took_s

    assert all(late_s > -0.001 for late_s in asyncio.run(run()))


def test_timer_runs_only_while_there_are_waits() -> None:
    """After the last wait the event loop sleeps, and the next wait starts the timer again."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        expiries = Expiries(loop)
        for _ in range(2):
            wait = Wait()
            expiries.add(wait, LOOK_S / 2)
            await asyncio.wait_for(wait.expired.wait(), SLACK_S)
            await asyncio.sleep(0)
            assert expiries._timer is None

    asyncio.run(run())
