"""All cases of the programming model through a runtime with a log and a journal, and their comparison with one thread."""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from penstock.base.ids import RequestId
from penstock.engine.limits import Limits
from penstock.journal.api import Journal
from penstock.log.api import Entry, Log
from penstock.runtime.local.runtime import LocalRuntime
from tests.differential.committed import answers_of, state_of, streams_of
from tests.differential.simulation import Answer
from tests.streams.cases import CASES, app

WHOLE, CUT = Limits(), Limits(cascade_steps=1)
"""With `CUT`, each cascade is cut after each step, so that every wait for a reply is stored, and crosses records."""


def take_rounds(log: Log, settle: Callable[[], None]) -> None:
    """Append the rounds of all cases side by side; `settle` processes the log until no record is left."""
    for number, appends in enumerate(zip_longest(*(case.rounds for case in CASES.values()))):
        atoms = [append for of_case in appends if of_case is not None for append in of_case]
        log.append(
            [
                Entry(RequestId(f"{number}-{place}"), app.append(name, events), b"", number)
                for place, (name, events) in enumerate(atoms)
            ]
        )
        settle()


def check_cases(journal: Journal, log: Log, limits: Limits) -> None:
    """Check each case, and compare every reply, atom and row of the journal with one thread over the same log."""
    streams = streams_of(journal)

    def atoms(name: str) -> list[list[Any]]:
        decode = app.topology.streams[name].events.decode
        return [[decode(data) for data in atom] for atom in streams.get(name, [])]

    for case in CASES.values():
        case.check(atoms)
    serial = LocalRuntime(app, secret=journal.secret, limits=limits)
    replies = serial.replay(log.read(log.start(), log.end()))
    answers = [Answer(reply.request_id, reply.error, reply.data) for reply in replies]
    assert answers_of(journal) == answers
    assert streams == {name: atoms for name, atoms in serial.streams.items() if atoms}
    assert state_of(journal) == serial.state
