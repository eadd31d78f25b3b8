"""Orders about effects: retry and discard one; and the list of those that wait, run, or have failed for good.

Each order is a record of the log, which the engine obeys at its place in the order: a replay does the same.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

import msgspec

from penstock.base.ids import ONLY_PARTITION
from penstock.engine.streams.derived_ids import order_id
from penstock.errors import RequestError
from penstock.journal.replies import await_reply
from penstock.log.api import Entry
from penstock.log.clock import wall_clock_us
from penstock.model.waiting_effect import (
    Settlement,
    WaitingEffect,
    decode_waiting_effect,
    effect_key,
)
from penstock.orders.order import Place, Report, Way
from penstock.orders.paused_workflows import newest_rows
from penstock.orders.pauses import TEXT_MAX
from penstock.process.driver_claim import driver_runs
from penstock.process.effect_files import EffectsReport, queue_of, read_effects_report
from penstock.process.view_files import Held, held

LISTED_MAX: Final = 200
"""The most effects of a list: first the dead letters, then those that run or wait for their next try, then the others."""

_STATES: Final = {
    0: "ready",
    1: "waiting",
    2: "running",
    3: "dead",
    4: "lost",
    5: "ready",
    6: "settled",
}


class EffectStanding(msgspec.Struct, frozen=True):
    """An effect that has not ended, or has failed for good.

    Attributes:
        id: The id of the request that has sent it.
        function: The name of the function.
        owner: The entity that gets the outcome, or the request that sent it.
        state: `ready`, `running`, `waiting` for its next try, `settled`: the outcome is in the log, `lost` or `dead`.
        tries: The calls of the function until now.
        error: The last error.
        sent_us: When it was sent, microseconds since the Unix epoch.
        due_us: When it is tried again, microseconds since the Unix epoch; None if no time is set.
    """

    id: str
    function: str
    owner: str
    state: str
    tries: int
    error: str
    sent_us: int
    due_us: int | None = None


class EffectsState(msgspec.Struct, frozen=True):
    """The effects of an application.

    Attributes:
        process: The report of the process that calls them; None if none has run here.
        effects: The first of them; see `LISTED_MAX`.
        held: The hold of the data directory; None if it has none.
        left: The rest of the work, for the operator; usually empty.
    """

    process: EffectsReport | None
    effects: list[EffectStanding]
    held: Held | None = None
    left: str = ""


def effects_state(place: Place) -> EffectsState:
    """Show the effects that wait, run, or have failed for good."""
    data = place.settings.data
    return EffectsState(read_effects_report(data), [*_standings(queue_of(data))], held(data))


def _standings(path: Path) -> Iterator[EffectStanding]:
    if not path.exists():
        return
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as queue:
        left = LISTED_MAX
        # By parts of an index: a million that wait are not looked at.
        for status in (3, 4, 2, 1, 5, 0, 6):
            rows = queue.execute(
                "SELECT row, tries, error, due_us FROM effects WHERE status = ? LIMIT ?",
                (status, left),
            ).fetchall()
            for row, tries, error, due_us in rows:
                effect = decode_waiting_effect(row)
                yield EffectStanding(
                    effect.id,
                    effect.function,
                    effect.group,
                    _STATES[status],
                    effect.tries or tries,
                    effect.error if effect.state == "dead" else error,
                    effect.time_us,
                    due_us if status == 1 else None,
                )
            left -= len(rows)
            if not left:
                return


STATE: Final = Report(
    path="/effects",
    name="effects.list",
    answer=EffectsState,
    text="The effects that wait, run, or have failed for good.",
    at=effects_state,
)


class EffectOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Retry or discard an effect.

    A retry of a dead letter lets it wait again, with all its tries; its method gets another outcome. A retry of an effect that
    waits for its next try lets it be called at once. A discarded effect is not called again; if it has no outcome yet, its outcome
    is `failed`.

    Attributes:
        effect: The id of the request that has sent it.
    """

    kind: Literal["retry", "discard"]
    effect: Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]

    way: ClassVar[Way] = Way(
        noun="an order about an effect",
        path="/effects",
        name="effects.order",
        result=EffectsState,
        text="The effects afterwards.",
        example='{"kind": "retry", "effect": "order-7~~1"}',
        needs_key=False,
    )

    def carry_out(self, place: Place, timeout_s: float) -> EffectsState:
        """Append the record, and return the effects when it has run, or when no driver runs."""
        directory, app_name = place.directory()
        waiting = self._row(place)
        settlement = Settlement(waiting.id, waiting.round, self.kind)
        number = waiting.round * 1_000_000 + waiting.nudges
        entry = Entry(
            order_id(waiting.id, self.kind, number), settlement.body(), b"", wall_clock_us()
        )
        with closing(directory.open_log(place.settings)) as log:
            lsn = log.append([entry], limited=False)[0]
        left = ""
        if not driver_runs(place.settings.data):
            left = "the order is in the log, and takes effect when a driver runs"
        else:
            with closing(directory.open_journal_of(app_name)) as journal:
                if await_reply(journal, (ONLY_PARTITION, lsn), timeout_s) is None:
                    left = "the order is in the log, and no driver has reached it yet"
        return msgspec.structs.replace(effects_state(place), left=left)

    def _row(self, place: Place) -> WaitingEffect:
        key = effect_key(self.effect)
        (row,) = newest_rows(place.settings, [key])
        if row is None:
            raise RequestError(
                f"no effect with the id {self.effect} waits or has failed; penstock effects list shows the ids"
            )
        waiting = decode_waiting_effect(row)
        if self.kind == "retry" and waiting.state == "begun":
            raise RequestError(
                f"effect {self.effect} has begun, and is called once only; its outcome comes soon"
            )
        return waiting
