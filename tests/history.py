"""Journals for tests of history: requests in, committed by the serial driver, in given epochs."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.base.ids import EntityKey, Lsn, RequestId
from penstock.engine.execute import Limits
from penstock.log.api import Entry
from penstock.process.config import Config
from tests.serial_driver import SerialDriver

Call = tuple[str, str | None, str, Sequence[Any] | dict[str, Any]]


def journal_of(
    spec: str,
    data: Path,
    epochs: Sequence[Sequence[Call]],
    *,
    damage: dict[str, bytes | dict[str, Any]] | None = None,
    limits: Limits | None = None,
    deploys: bool = False,
) -> None:
    """Process calls with the ids `r0`, `r1` …, each sequence as one epoch; continue a journal that exists.

    `damage` replaces the journal's state of an entity, by name or as it is stored.
    """
    wrong = damage or {}

    def break_state(key: EntityKey, state: bytes | None) -> bytes | None:
        other = wrong.get(key, state)
        kind = driver.app.entities[key.partition("/")[0]]
        return kind.encode({kind.key_name: "", **other}) if isinstance(other, dict) else other

    config = Config(data, limits=limits or Limits())
    driver = SerialDriver(spec, config, break_state=break_state, deploys=deploys)
    done = driver.log.end()
    driver.start()
    for epoch in epochs:
        entries = [
            Entry(RequestId(f"r{done + number}"), *_encoded(driver, call), time.time_ns() // 1_000)
            for number, call in enumerate(epoch)
        ]
        done = Lsn(driver.log.append(entries)[-1] + 1)
        assert driver.wait_until(done, 30_000)
    driver.stop()


def _encoded(driver: SerialDriver, call: Call) -> tuple[bytes, bytes]:
    entity, key, method, given = call
    signature = driver.app.signature(entity, method)
    positional, named = signature.of_json(msgspec.json.encode(given, enc_hook=_key_of))
    return driver.app.request(entity, key, method, positional, named)


def _key_of(reference: Any) -> str:
    """A reference travels as its key; its class may be one of another time when it was loaded."""
    key: str = type(reference).__reference__.key_of(reference)
    return key.partition("/")[2]
