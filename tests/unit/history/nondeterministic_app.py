"""An application whose handlers depend on facts that a replay cannot know, each on one."""

import os
import random
import time
from datetime import datetime

from penstock import App, entity, key

SEEN: list[str] = []


@entity
class Clerk:
    name: str = key()
    note: str = ""
    count: int = 0

    def honest(self, amount: int) -> int:
        self.count += amount
        return self.count

    def by_clock(self) -> None:
        self.note = str(time.time_ns())

    def by_date(self) -> str:
        return datetime.now().isoformat()  # noqa: DTZ005 -- wayward

    def by_chance(self) -> float:
        return random.random()

    def by_set(self, fruits: set[str]) -> str:
        told = ""
        for fruit in fruits:
            told += fruit
        return told

    def by_environment(self) -> str:
        return os.environ.get("WAYWARD_REGION", "nowhere")

    def by_globals(self) -> int:
        SEEN.append(self.name)
        return len(SEEN)


app = App("wayward", Clerk)
