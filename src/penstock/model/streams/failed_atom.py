"""Failed atoms: the events of the stream of a workflow or a splitter on which failures are set aside."""

from dataclasses import dataclass, replace

from penstock.model.sealed_value import FIRST_BYTES, is_erased
from penstock.model.streams.event_type import EventType


@dataclass(frozen=True, slots=True)
class FailedAtom:
    """An atom that a workflow or a splitter has set aside, because a handler or a function failed.

    Attributes:
        source: The stream of the atom; `replies` if it was the replies of a portal; the task if an event in line for it failed.
        step: The id of the step, as `request_id()` gives it in a handler.
        code: The code of the failure.
        message: The class and the text of the exception.
        events: The encoded events of the atom, without those that refer to a person who was erased.
    """

    source: str
    step: str
    code: str
    message: str
    events: tuple[bytes, ...]


class FailedAtomType(EventType[FailedAtom]):
    """The type of failed atoms. The events inside are encrypted one by one, each with the key of its own person."""

    __slots__ = ()

    @property
    def is_personal(self) -> bool:
        """Whether events inside can be encrypted."""
        return self.keys is not None

    def has_erased(self, data: bytes) -> bool:
        """Say whether the failed atom lacks an event, because a person was erased."""
        return any(is_erased(self.keys, event) for event in self._readable(data).events)

    def opened(self, data: bytes) -> bytes:
        """Return the readable bytes of a failed atom; events of persons who were erased are left out.

        Raises:
            Corrupt, ConfigError: See `EventType.opened`.
        """
        atom = self._readable(data)
        if not any(event.startswith(FIRST_BYTES) for event in atom.events):
            return data
        readable = [event for event in atom.events if not is_erased(self.keys, event)]
        return self.encode(replace(atom, events=tuple(map(super().opened, readable))))

    def decode(self, data: bytes) -> FailedAtom:
        """Return a new failed atom, whose events are readable; raises as `EventType.decode`."""
        return self._readable(self.opened(data))
