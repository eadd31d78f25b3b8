"""Every log adapter, for the suites that each of them must pass."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.log.api import Log
from penstock.log.sqlite import SqliteLog
from tests.conformance.logs import Clock, Make
from tests.kafka_hosts import KafkaHosts
from tests.memory_log import MemoryLog


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite", "kafka"])
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Make]:
    made: list[Log] = []

    def one(
        *, record_bytes_max: int = 1000, retention_s: int = 3600, again: Log | None = None
    ) -> Log:
        log: Log
        if isinstance(again, MemoryLog):
            return again
        if isinstance(again, SqliteLog):
            again.close()
            log = pickle.loads(pickle.dumps(again))
        elif request.param == "memory":
            log = MemoryLog(
                record_bytes_max=record_bytes_max, retention_s=retention_s, clock_us=clock
            )
        elif request.param == "kafka":
            hosts: KafkaHosts = request.getfixturevalue("kafka_hosts")
            log = hosts.log(
                record_bytes_max=record_bytes_max, retention_s=retention_s, clock_us=clock
            )
        else:
            log = SqliteLog(
                tmp_path / f"{len(made)}.log",
                record_bytes_max=record_bytes_max,
                retention_s=retention_s,
                clock_us=clock,
            )
        made.append(log)
        return log

    yield one
    for log in made:
        log.close()


@pytest.fixture
def log(make: Make) -> Log:
    return make()
