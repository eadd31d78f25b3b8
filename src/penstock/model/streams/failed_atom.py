"""Failed atoms: the events of the stream of a workflow or a splitter on which failures are set aside."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FailedAtom:
    """An atom that a workflow or a splitter has set aside, because a handler or a function failed.

    Attributes:
        source: The stream of the atom; `replies` if it was the replies of a portal.
        step: The id of the step, as `request_id()` gives it in a handler.
        code: The code of the failure.
        message: The class and the text of the exception.
        events: The encoded events of the atom.
    """

    source: str
    step: str
    code: str
    message: str
    events: tuple[bytes, ...]
