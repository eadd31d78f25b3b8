"""A shop whose tasks run on two other hosts, over HTTP; an executor dies. `scripts/cluster` cuts hosts off, too.

Data are in an object store and the log is in Kafka, each on a host of its own.
"""

import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster.lab import lab, why_not
from tests.cluster.running import RunningApplication, equals_one_thread
from tests.kafka_server import KafkaMissing
from tests.object_store import StoreMissing

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

STOCK, BUYERS = 3, 5
OK, REFUSED = 200, 400


def checkouts(shop: httpx.Client) -> list[int]:
    """Let some buyers check out an item of which there are fewer, and return the answers."""

    def made(path: str) -> str:
        answer = shop.post(path)
        assert answer.status_code == OK, answer.text
        (key,) = answer.json().values()
        return str(key)

    item = made("/stock/item/create/1")
    assert shop.post(f"/stock/add/{item}/{STOCK}").status_code == OK
    statuses = []
    for _ in range(BUYERS):
        user = made("/payment/create_user")
        assert shop.post(f"/payment/add_funds/{user}/1").status_code == OK
        order = made(f"/orders/create/{user}")
        assert shop.post(f"/orders/addItem/{order}/{item}/1").status_code == OK
        statuses.append(shop.post(f"/orders/checkout/{order}").status_code)
    assert shop.get(f"/stock/find/{item}").json()["stock"] == 0
    return statuses


@pytest.mark.turns(
    1,
    *("runtime", "process", "engine", "exchange", "state", "log", "files"),
    of="faults of an application under load",
)
def test_checkouts_on_a_cluster_equal_one_thread(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Replies and state are those of one thread, also when the executor of the home dies under calls."""
    if reason := why_not():
        (pytest.fail if "CI" in os.environ else pytest.skip)(reason)
    expected = [OK] * STOCK + [REFUSED] * (BUYERS - STOCK)
    with lab(tmp_path, 3) as hosts:
        try:
            hosts.serve()
        except (StoreMissing, KafkaMissing) as missing:
            (pytest.fail if "CI" in os.environ else pytest.skip)(str(missing))
        hosts.start_spark([1, 2])
        # On a machine with other tests, a broker may need longer than the 2 s of the default for an acknowledgement.
        settings: dict[str, Any] = {"small_epoch": 1, "partitions": 2, "kafka.append_ms": 20_000}
        shop = RunningApplication(hosts, **settings)
        shop.await_tasks(2)
        assert shop.call(checkouts) == expected
        with shop.under_calls() as calls:
            executors = [host.executors() for host in hosts.hosts[1:]]
            assert all(executors), "each host has tasks"
            for executor in executors[0]:
                executor.kill()
            assert shop.call(checkouts) == expected
            shop.await_tasks(1)
        assert calls.statuses == {OK}
        shop.stop()
        assert equals_one_thread(hosts) > 2 * BUYERS
        host_data = {(host.root / "host.id").read_text() for host in hosts.hosts[1:]}
        assert len(host_data) == 2, "each has files of its own"
