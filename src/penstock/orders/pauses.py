"""Pauses: the requests that gateways refuse by an order, and the user, time and reason of each order.

`pauses.json` in the data directory holds every pause and resume in order. The pauses in force follow from
them, so the record and its effect cannot differ. The file survives restarts, and all gateways of the
data directory obey it within `EFFECTIVE_S`. It is replaced as a whole, by one writer at a time.

A pause closes admission only. Requests that are in the log run, and scheduled requests run when they are
due. Reads of entities, SQL and status are not paused.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from penstock.errors import Corrupt, RequestError
from penstock.files import shared_file
from penstock.files.layout import PAUSES
from penstock.files.roots import shared_root
from penstock.files.sealed import seal, unseal
from penstock.model.limit import EVERYTHING

EFFECTIVE_S: Final = 1.0
"""The seconds after which every gateway obeys a change of the file."""

TEXT_MAX: Final = 500
"""The most characters of a reason and of a name."""

_ACTIONS_MAX: Final = 10_000
_ACTIONS_KEPT: Final = 5_000


class PauseAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pause or a resume.

    Attributes:
        kind: Its kind; `skip` resumes a workflow without its failed atom.
        target: `*`, a class, `Class.method`, a function, `streams/NAME`, or `workflows/NAME` in a resume.
        time_us: Its time, in microseconds since the Unix epoch.
        by: The user of the command line, or the principal of the console.
        reason: The reason that was given.
    """

    kind: Literal["pause", "resume", "skip"]
    target: str
    time_us: int
    by: str
    reason: str = ""


class Pauses:
    """The pauses in force, by target."""

    def __init__(self, actions: Iterable[PauseAction] = ()) -> None:
        """Apply actions in their order."""
        in_force: dict[str, PauseAction] = {}
        for action in actions:
            in_force.pop(action.target, None)
            if action.kind == "pause":
                in_force[action.target] = action
        self.in_force: Mapping[str, PauseAction] = in_force

    def pause_of(self, entity: str, method: str) -> PauseAction | None:
        """Return the pause that covers a method, or a function if `entity` is empty."""
        in_force = self.in_force
        if not in_force:
            return None
        own = f"{entity}.{method}" if entity else method
        return in_force.get(EVERYTHING) or in_force.get(entity) or in_force.get(own)


class PauseFile:
    """The pauses of a data directory; each method reads the file again."""

    def __init__(self, data: Path) -> None:
        """Use a data directory; `pause` creates it if it does not exist."""
        self._data = data

    def actions(self) -> tuple[PauseAction, ...]:
        """Return all pauses and resumes, the oldest first."""
        return shared_file.read(shared_root(self._data), PAUSES, decode_actions)

    def pauses(self) -> Pauses:
        """Return the pauses in force; raises as `actions`."""
        return Pauses(self.actions())

    def pause(self, target: str, by: str, reason: str, time_us: int) -> PauseAction:
        """Pause a target durably; a target that is paused already gets the new reason.

        Args:
            target: `*`, a class, `Class.method`, or a function; the caller has checked it.
            by: The user or the principal.
            time_us: Microseconds since the Unix epoch.
        """
        return self._record(PauseAction("pause", target, time_us, by, reason))

    def resume(self, target: str, by: str, reason: str, time_us: int) -> PauseAction:
        """End the pause of exactly this target durably; other pauses stay in force.

        Args:
            time_us: Microseconds since the Unix epoch.
        """
        return self._record(PauseAction("resume", target, time_us, by, reason))

    def note(self, action: PauseAction) -> None:
        """Record the resume of a workflow; it ends no pause of this file."""
        _check_texts(action)
        self._change(lambda actions: (encode_actions((*_recent(actions), action)), action))

    def _record(self, action: PauseAction) -> PauseAction:
        _check_texts(action)

        def edit(actions: tuple[PauseAction, ...]) -> tuple[bytes, PauseAction]:
            in_force = Pauses(actions).in_force
            if action.kind == "resume" and action.target not in in_force:
                known = ", ".join(map(target_text, in_force)) or "nothing"
                raise RequestError(f"{target_text(action.target)} is not paused; paused: {known}")
            return encode_actions((*_recent(actions), action)), action

        return self._change(edit)

    def _change(
        self, edit: Callable[[tuple[PauseAction, ...]], tuple[bytes, PauseAction]]
    ) -> PauseAction:
        return shared_file.change(self._data, PAUSES, decode_actions, edit)


def _check_texts(action: PauseAction) -> None:
    for text in (action.by, action.reason):
        if len(text) > TEXT_MAX:
            raise RequestError(f"a reason or name has at most {TEXT_MAX} characters")


def target_text(target: str) -> str:
    """Return a target for people."""
    return "everything" if target == EVERYTHING else target


def describe(pause: PauseAction) -> str:
    """Return a pause for people: its target, its time, its user and its reason."""
    since = datetime.fromtimestamp(pause.time_us / 1_000_000, UTC)
    reason = f": {pause.reason}" if pause.reason else ""
    return (
        f"{target_text(pause.target)}, since {since:%Y-%m-%d %H:%M:%S} UTC, by {pause.by}{reason}"
    )


def encode_actions(actions: tuple[PauseAction, ...]) -> bytes:
    """Return the file that holds these actions."""
    return seal("actions", actions)


def decode_actions(data: bytes | None) -> tuple[PauseAction, ...]:
    """Return the actions that a file holds; none if `data` is None, because there is no file."""
    if data is None:
        return ()
    try:
        return unseal("actions", data, tuple[PauseAction, ...])
    except ValueError as error:
        raise Corrupt(f"the content {error}; remove the file to end all pauses") from error


def _recent(actions: tuple[PauseAction, ...]) -> tuple[PauseAction, ...]:
    """Return the actions to keep: the newest, and the older ones that are still in force."""
    if len(actions) < _ACTIONS_MAX:
        return actions
    older, newest = actions[:-_ACTIONS_KEPT], actions[-_ACTIONS_KEPT:]
    return (*Pauses(older).in_force.values(), *newest)
