"""The differences between the cascades of a what-if and the recorded ones: atoms, sent requests and later records."""

from collections import Counter
from typing import Any, NamedTuple

from penstock.base.ids import Epoch, RequestId
from penstock.base.subject_keys import SubjectKeys
from penstock.engine.replay import ValueDifference
from penstock.engine.streams.cascade import Cascade
from penstock.engine.streams.recorded_cascade import (
    NOTHING,
    AtomDifference,
    CascadeDifference,
    LaterDifference,
    RecordedCascade,
    SentDifference,
    cascade_differences,
    differing_atoms,
)
from penstock.engine.what_if import DifferenceList
from penstock.history.cascade_trace import described
from penstock.model.catch_up import is_catch_up


class CausedDifference(NamedTuple):
    """An event, a sent request or a later record that differs, and the record of the log that causes it."""

    epoch: Epoch
    request_id: RequestId
    finding: ValueDifference


class CascadeDifferences:
    """The cascades of a what-if, compared epoch by epoch.

    Attributes:
        atoms: How many atoms differ, by stream.
        events: The events that differ, and whole atoms that only one side has.
        sent: The sent requests that differ, in their call or their outcome.
        later: The later records that differ, in their call or their delay.
        calls: The calls of later records that differ in the what-if, by the id of the record; None if the record is not
            appended.
    """

    def __init__(self, keys: SubjectKeys | None) -> None:
        """Begin without differences; `keys` are those of the persons, None without personal classes."""
        self._keys = keys
        self.atoms: Counter[str] = Counter()
        self.events: DifferenceList[CausedDifference] = DifferenceList()
        self.sent: DifferenceList[CausedDifference] = DifferenceList()
        self.later: DifferenceList[CausedDifference] = DifferenceList()
        self.calls: dict[RequestId, bytes | None] = {}

    def compare(
        self,
        epoch: Epoch,
        request_id: RequestId,
        recorded: RecordedCascade,
        cascade: Cascade | None,
    ) -> None:
        """Compare the cascade of a record.

        Args:
            cascade: Its cascade in the what-if; None if it has caused nothing, or is left out.
        """
        if cascade is None and recorded is NOTHING:
            return
        self.atoms.update(differing_atoms(recorded, cascade, self._keys))
        for difference in cascade_differences(recorded, cascade, self._keys):
            differences = self._list_of(difference)
            if differences is not None and differences.next():
                caused = CausedDifference(epoch, request_id, described(difference))
                differences.shown.append(caused)

    def _list_of(self, difference: CascadeDifference) -> DifferenceList[CausedDifference] | None:
        """Return the list for a difference; None if only the number of an atom's step differs."""
        match difference:
            case AtomDifference(_, _, event, was, now):
                same_events = event is None and _events(was) == _events(now)
                return None if same_events else self.events
            case SentDifference():
                return self.sent
            case LaterDifference(name, _, after):
                if after is None or not is_catch_up(after.body):  # a catch-up has recorded atoms
                    self.calls[name] = None if after is None else after.body
                return self.later


def _events(atom: Any) -> Any:
    return None if atom is None else atom.events
