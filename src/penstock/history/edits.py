"""Edits of recorded requests for a what-if, as JSON.

    {"request_id": "r17", "arguments": [2]}                     replaces the call of r17
    {"request_id": "new-1", "after": "r17", "entity": "Item", "key": "i1", "method": "add",
     "arguments": {"amount": 5}}                                inserts a request after r17
    {"request_id": "r18", "drop": true}                         drops r18

The text has one edit per line, or one array of edits. A replaced call keeps the fields that the edit
does not name. An inserted request has the time and the log position of the request that it follows;
it may follow an inserted or a dropped request.

All errors of all edits are reported at once, each with its line, before any request runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from penstock.base.ids import Epoch, RequestId, epochs_text
from penstock.engine.replay import RequestRow
from penstock.engine.what_if import InsertedRequest, RequestChanges
from penstock.errors import PenstockError, RequestError
from penstock.history.reader import HistoryReader, position_of
from penstock.model.application import App
from penstock.model.request import decode_request, rights_in, with_caller

_CALL: Final = ("entity", "key", "method", "arguments")


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One edit; the module's docstring describes its fields."""

    request_id: str
    after: str | None = None
    drop: bool = False
    entity: str | UnsetType | None = UNSET
    key: str | int | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    arguments: msgspec.Raw | UnsetType = UNSET

    @property
    def names_call(self) -> bool:
        """Whether the edit names any field of a call."""
        return any(getattr(self, name) is not UNSET for name in _CALL)


class LocatedEdit(NamedTuple):
    """An edit and its origin: `line 3`, or `--without`."""

    where: str
    edit: Edit


class ParsedEdits(NamedTuple):
    """The valid edits of a text, and the errors of the others."""

    edits: list[LocatedEdit]
    errors: list[str]


def read_edits(text: bytes) -> ParsedEdits:
    """Read edits from JSON."""
    parsed = ParsedEdits([], [])
    for line, raw in _split(text, parsed.errors):
        where = f"line {line}"
        try:
            edit = msgspec.json.decode(raw, type=Edit)
        except (msgspec.MsgspecError, ValueError) as error:
            parsed.errors.append(f"{where}: {error}")
            continue
        errors = [f"{where}: {error}" for error in _contradictions(edit)]
        parsed.errors.extend(errors)
        if not errors:
            parsed.edits.append(LocatedEdit(where, edit))
    return parsed


def drop_edits(request_ids: Sequence[str]) -> list[LocatedEdit]:
    """Return the edits that drop requests."""
    ids = dict.fromkeys(request_ids)
    return [LocatedEdit("--without", Edit(request_id, drop=True)) for request_id in ids]


def resolve_edits(
    parsed: ParsedEdits,
    history: HistoryReader,
    app_at: Callable[[Epoch], App],
    span: tuple[Epoch, Epoch],
) -> Mapping[Epoch, RequestChanges]:
    """Return the changes of each epoch that follow from edits.

    Args:
        history: The journal with the edited requests.
        app_at: Returns the application that will execute the requests of an epoch.
        span: The first and the last epoch.
    """
    resolver = _EditResolver(history, app_at, span)
    resolver.look_up(parsed.edits)
    for edit in parsed.edits:
        resolver.resolve(edit)
    errors = [*parsed.errors, *resolver.errors]
    if errors:
        count = "1 edit is" if len(errors) == 1 else f"{len(errors)} edits are"
        lines = "\n".join(f"  {error}" for error in errors)
        raise RequestError(f"{count} invalid:\n{lines}")
    return resolver.changes


@dataclass(slots=True)
class _EditResolver:
    """Collects the changes and errors of edits."""

    history: HistoryReader
    app_at: Callable[[Epoch], App]
    span: tuple[Epoch, Epoch]
    errors: list[str] = field(default_factory=list)
    changes: dict[Epoch, RequestChanges] = field(default_factory=dict)
    _epochs: dict[str, Epoch] = field(default_factory=dict)
    _rows: dict[str, RequestRow] = field(default_factory=dict)
    _inserted: dict[str, tuple[Epoch, list[InsertedRequest]]] = field(default_factory=dict)
    _origins: dict[str, str] = field(default_factory=dict)

    def look_up(self, edits: Sequence[LocatedEdit]) -> None:
        """Find the requests that edits name."""
        wanted = {located.edit.request_id for located in edits}
        wanted |= {located.edit.after for located in edits if located.edit.after is not None}
        if not wanted:
            return
        self._epochs = self.history.among(wanted, *self.span)
        replaced = {located.edit.request_id for located in edits if located.edit.names_call}
        by_epoch: dict[Epoch, list[str]] = {}
        for request_id in sorted(replaced & self._epochs.keys()):
            by_epoch.setdefault(self._epochs[request_id], []).append(request_id)
        for epoch, ids in by_epoch.items():
            recorded = self.history.epoch(epoch)
            for request_id in ids:
                self._rows[request_id] = recorded.rows[position_of(recorded, request_id)]

    def resolve(self, located: LocatedEdit) -> None:
        """Add the change or the error of one edit."""
        where, edit = located
        former = self._origins.setdefault(edit.request_id, where)
        try:
            if former is not where:
                raise RequestError(f"{former} edits {edit.request_id} already")
            if edit.after is not None:
                self._insert(edit, edit.after)
            else:
                self._replace(edit)
        except PenstockError as error:
            self.errors.append(f"{where}: {error}")

    def _replace(self, edit: Edit) -> None:
        epoch = self._epoch_of(edit.request_id)
        body = None if edit.drop else self._body(epoch, edit, self._rows[edit.request_id])
        self._at(epoch).calls[RequestId(edit.request_id)] = body

    def _insert(self, edit: Edit, after: str) -> None:
        if edit.request_id in self._epochs:
            raise RequestError(
                f"the id {edit.request_id} belongs to a recorded request; choose another one"
            )
        if after in self._inserted:
            epoch, behind = self._inserted[after]
            place = 1 + [inserted.request_id for inserted in behind].index(RequestId(after))
        else:
            epoch = self._epoch_of(after)
            behind = self._at(epoch).inserted.get(RequestId(after), [])
            place = len(behind)
        new = InsertedRequest(RequestId(edit.request_id), self._body(epoch, edit, None))
        behind.insert(place, new)
        if after not in self._inserted:
            self._at(epoch).inserted[RequestId(after)] = behind
        self._inserted[edit.request_id] = epoch, behind

    def _epoch_of(self, request_id: str) -> Epoch:
        if request_id not in self._epochs:
            first, last = self.span
            raise RequestError(f"there is no request {request_id} in {epochs_text(first, last)}")
        return self._epochs[request_id]

    def _at(self, epoch: Epoch) -> RequestChanges:
        return self.changes.setdefault(epoch, RequestChanges())

    def _body(self, epoch: Epoch, edit: Edit, row: RequestRow | None) -> bytes:
        """Return the call of an edit in an epoch; fields that it does not name come from the recorded request."""
        app = self.app_at(epoch)
        former = None if row is None else app.opened(decode_request(row.body))
        entity = former.entity if former is not None else ""
        if edit.entity is not UNSET:
            entity = edit.entity or ""
        method = edit.method
        if method is UNSET:
            assert former is not None, "an edit without a method replaces a recorded call"
            method = former.method
        signature = app.signature(entity, method)
        positional: Sequence[Any]
        if edit.arguments is not UNSET:
            positional, named = signature.of_json(bytes(edit.arguments))
        elif former is not None:
            positional, named = signature.decode(former.positional, former.named)
        else:
            positional, named = (), {}
        key: object = edit.key
        if key is UNSET:
            key = None if former is None else former.key
        if isinstance(key, str) and entity:
            key = app.key_of(entity, key)
        body = app.request(entity, key, method, positional, named)[0]
        # The caller stays: a changed call needs the rights that the recorded one had.
        return body if row is None else with_caller(body, rights_in(row.body))


def _contradictions(edit: Edit) -> Iterator[str]:
    """Yield the errors of an edit that do not depend on the journal."""
    if not edit.request_id:
        yield "request_id is empty"
    if edit.drop and (edit.names_call or edit.after is not None):
        yield "an edit with drop has no other field than request_id"
    elif edit.after is not None and edit.method is UNSET:
        yield "an inserted request needs a method"
    elif not edit.drop and not edit.names_call and edit.after is None:
        yield f"the edit changes nothing: give one of {', '.join(_CALL)}, or after, or drop"


def _split(text: bytes, errors: list[str]) -> Iterator[tuple[int, bytes]]:
    """Yield the JSON text of each edit and the number of its first line."""
    if not text.lstrip().startswith(b"["):
        for line, piece in enumerate(text.splitlines(), start=1):
            if piece.strip():
                yield line, piece
        return
    try:
        edits = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, ValueError) as error:
        errors.append(f"the array cannot be read: {error}")
        return
    reached = 0
    for raw in edits:
        piece = bytes(raw)
        reached = text.index(piece, reached)
        yield 1 + text.count(b"\n", 0, reached), piece
        reached += len(piece)
