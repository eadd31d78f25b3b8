"""Epochs over a log in Kafka equal those over the embedded log, and a driver finds a log that has lost its end."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import Epoch, RequestId
from penstock.errors import Diverged
from penstock.journal.api import PartKind
from penstock.log.api import Entry
from tests.differential.inline import Inline
from tests.differential.machine import app
from tests.kafka_hosts import ONE_MACHINE, KafkaHosts


def committed(runtime: Inline) -> list[dict[str, Any]]:
    """Run requests, one of them twice and one at a later time, and return the rows of the journal."""
    for turn in range(3):
        requests = [request(f"{turn} {key}", key) for key in ("a", "b", "a")]
        runtime.log.append([*requests, request("0 a", "a")])
        runtime.log.schedule(request(f"later {turn}", "c"), 5)
        runtime.log.promote(5)
        runtime.advance(runtime.log.end())
        runtime.restart()
        runtime.driver.recover(app).result()
    return [
        row
        for _, table in runtime.journal.rows(
            PartKind.TRANSACTIONS, Epoch(-1), Epoch(2), ["lsn", "request_id", "request", "reply"]
        )
        for row in table.sort_by([("lsn", "ascending")]).to_pylist()
    ]


def request(name: str, key: str) -> Entry:
    body, hint = app.request(next(iter(app.entities)), key, "delete")
    return Entry(RequestId(name), body, hint, 0)


def test_epochs_do_not_know_where_their_log_is(kafka_hosts: KafkaHosts, tmp_path: Path) -> None:
    """The rows of the journal are the same, with the same positions; later starts go on."""
    place = kafka_hosts.following.place
    url = f"kafka://{place.servers}/{place.topic}-epochs"
    for folder in ("embedded", "kafka"):
        (tmp_path / folder).mkdir()
    with (
        closing(Inline(tmp_path / "embedded", 2)) as embedded,
        closing(Inline(tmp_path / "kafka", 2, log=url, kafka=ONE_MACHINE)) as spread,
    ):
        rows = committed(embedded)
        assert rows == committed(spread)
        assert len(rows) == spread.log.end() == 9
        last, embedded_last = spread.journal.last(), embedded.journal.last()
        assert last is not None
        assert embedded_last is not None
        assert last.record_checksum
        assert not embedded_last.record_checksum, "its commits are what they were"


def test_a_driver_finds_a_log_that_has_lost_its_end(
    kafka_hosts: KafkaHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No host has the records any more, and others have their positions: the commit of the newest epoch tells."""
    place = kafka_hosts.following.place
    url = f"kafka://{place.servers}/{place.topic}-lost"
    with closing(Inline(tmp_path, 1, log=url, kafka=ONE_MACHINE)) as runtime:
        runtime.log.append([request("a", "a")])
        runtime.advance(1)
        runtime.restart()
        runtime.driver.recover(app).result()
        monkeypatch.setattr(runtime.log, "checksum", lambda lsn: "0" * 16)
        with pytest.raises(Diverged, match="another record at 0 than epoch 0 has processed"):
            runtime.driver.recover(app)
