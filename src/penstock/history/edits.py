"""Edits: what somebody wants to be otherwise in the requests of a journal, as JSON.

    {"request_id": "r17", "arguments": [2]}                     another call instead of r17's
    {"request_id": "new-1", "after": "r17", "entity": "Item", "key": "i1", "method": "add",
     "arguments": {"amount": 5}}                                one more, behind r17
    {"request_id": "r18", "drop": true}                         none instead of r18

One to a line, or all in one array. Of a call that is replaced, what is not named stays. An inserted
request has the time of the one that it follows, and its place in the log; it may follow another
inserted one, and one that is left out.

Promises that everything wrong with all edits is reported at once, each with its line, before anything
runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from penstock.base.ids import Epoch, RequestId
from penstock.engine.replay import RequestRow
from penstock.engine.what_if import InsertedRequest, RequestChanges
from penstock.errors import PenstockError, RequestError
from penstock.history.reader import HistoryReader, position_of
from penstock.model.application import App
from penstock.model.request import decode_request

_CALL: Final = ("entity", "key", "method", "arguments")


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One edit; see the module for what its fields mean together."""

    request_id: str
    after: str | None = None
    drop: bool = False
    entity: str | UnsetType | None = UNSET
    key: str | int | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    arguments: msgspec.Raw | UnsetType = UNSET

    @property
    def names_call(self) -> bool:
        """Whether it says anything of a call."""
        return any(getattr(self, name) is not UNSET for name in _CALL)


class LocatedEdit(NamedTuple):
    """An edit, and where it stands: `line 3`, or `--without`."""

    where: str
    edit: Edit


class ParsedEdits(NamedTuple):
    """What was read: edits, and what is wrong with those that are none."""

    edits: list[LocatedEdit]
    complaints: list[str]


def read_edits(text: bytes) -> ParsedEdits:
    """Read edits from JSON."""
    found = ParsedEdits([], [])
    for line, raw in _pieces(text, found.complaints):
        where = f"line {line}"
        try:
            edit = msgspec.json.decode(raw, type=Edit)
        except (msgspec.MsgspecError, ValueError) as error:
            found.complaints.append(f"{where}: {error}")
            continue
        wrong = [f"{where}: {one}" for one in _contradictions(edit)]
        found.complaints.extend(wrong)
        if not wrong:
            found.edits.append(LocatedEdit(where, edit))
    return found


def drop_edits(request_ids: Sequence[str]) -> list[LocatedEdit]:
    """Return the edits that leave requests out."""
    return [LocatedEdit("--without", Edit(one, drop=True)) for one in dict.fromkeys(request_ids)]


def resolve_edits(
    read: ParsedEdits, past: HistoryReader, app: App, span: tuple[Epoch, Epoch]
) -> Mapping[Epoch, RequestChanges]:
    """Return what edits change in which epoch.

    Args:
        read: All edits.
        past: The journal, where the requests are looked for.
        app: The application that will run them.
        span: First and last epoch.

    Raises:
        RequestError: Some cannot be done: they are none, or name requests that are not in the span,
            calls that do not exist, or an id twice; says so of all.
        Corrupt: The journal is damaged.
    """
    resolving = _Resolving(past, app, span)
    resolving.look_up(read.edits)
    for one in read.edits:
        resolving.take(one)
    complaints = [*read.complaints, *resolving.complaints]
    if complaints:
        count = "1 edit" if len(complaints) == 1 else f"{len(complaints)} edits"
        listed = "\n".join(f"  {one}" for one in complaints)
        raise RequestError(f"{count} cannot be done:\n{listed}")
    return resolving.changes


@dataclass(slots=True)
class _Resolving:
    """What becomes of edits, one by one."""

    past: HistoryReader
    app: App
    span: tuple[Epoch, Epoch]
    complaints: list[str] = field(default_factory=list)
    changes: dict[Epoch, RequestChanges] = field(default_factory=dict)
    _epochs: dict[str, Epoch] = field(default_factory=dict)
    _rows: dict[str, RequestRow] = field(default_factory=dict)
    _inserted: dict[str, list[InsertedRequest]] = field(default_factory=dict)
    _met: dict[str, str] = field(default_factory=dict)

    def look_up(self, edits: Sequence[LocatedEdit]) -> None:
        """Find the requests that edits name."""
        wanted = {one.edit.request_id for one in edits}
        wanted |= {one.edit.after for one in edits if one.edit.after is not None}
        if not wanted:
            return
        self._epochs = self.past.among(wanted, *self.span)
        replaced = {one.edit.request_id for one in edits if one.edit.names_call}
        by_epoch: dict[Epoch, list[str]] = {}
        for request_id in sorted(replaced & self._epochs.keys()):
            by_epoch.setdefault(self._epochs[request_id], []).append(request_id)
        for epoch, ids in by_epoch.items():
            recorded = self.past.epoch(epoch)
            for request_id in ids:
                self._rows[request_id] = recorded.rows[position_of(recorded, request_id)]

    def take(self, placed: LocatedEdit) -> None:
        """Do one edit."""
        where, edit = placed
        former = self._met.setdefault(edit.request_id, where)
        try:
            if former is not where:
                raise RequestError(f"{edit.request_id} is edited already ({former})")
            if edit.after is not None:
                self._insert(edit, edit.after)
            else:
                self._replace(edit)
        except PenstockError as error:
            self.complaints.append(f"{where}: {error}")

    def _replace(self, edit: Edit) -> None:
        epoch = self._epoch_of(edit.request_id)
        body = None if edit.drop else self._body(edit, self._rows[edit.request_id])
        self._at(epoch).calls[RequestId(edit.request_id)] = body

    def _insert(self, edit: Edit, after: str) -> None:
        new = InsertedRequest(RequestId(edit.request_id), self._body(edit, None))
        if edit.request_id in self._epochs:
            raise RequestError(f"{edit.request_id} is the id of a request that is there")
        behind = self._inserted.get(after)
        if behind is None:
            epoch = self._epoch_of(after)
            behind = self._at(epoch).inserted.setdefault(RequestId(after), [])
            place = len(behind)
        else:
            place = 1 + [one.request_id for one in behind].index(RequestId(after))
        behind.insert(place, new)
        self._inserted[edit.request_id] = behind

    def _epoch_of(self, request_id: str) -> Epoch:
        if request_id not in self._epochs:
            first, last = self.span
            raise RequestError(f"there is no request {request_id} in the epochs {first} to {last}")
        return self._epochs[request_id]

    def _at(self, epoch: Epoch) -> RequestChanges:
        return self.changes.setdefault(epoch, RequestChanges())

    def _body(self, edit: Edit, row: RequestRow | None) -> bytes:
        """Return the call that an edit describes, the rest of it from a recorded one."""
        former = None if row is None else decode_request(row.body)
        entity = former.entity if former is not None else ""
        if edit.entity is not UNSET:
            entity = edit.entity or ""
        method = edit.method
        if method is UNSET:
            assert former is not None, "an edit without a method replaces something"
            method = former.method
        signature = self.app.signature(entity, method)
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
            key = self.app.key_of(entity, key)
        return self.app.request(entity, key, method, positional, named)[0]


def _contradictions(edit: Edit) -> Iterator[str]:
    """Yield what is wrong with an edit whatever the journal holds."""
    if not edit.request_id:
        yield "request_id is empty"
    if edit.drop and (edit.names_call or edit.after is not None):
        yield "drop stands alone: nothing runs in the request's place"
    elif edit.after is not None and edit.method is UNSET:
        yield "an inserted request has a method"
    elif not edit.drop and not edit.names_call and edit.after is None:
        yield f"says nothing: give one of {', '.join(_CALL)}, or after, or drop"


def _pieces(text: bytes, complaints: list[str]) -> Iterator[tuple[int, bytes]]:
    """Yield the JSON text of each edit, with the line on which it begins."""
    if not text.lstrip().startswith(b"["):
        for line, piece in enumerate(text.splitlines(), start=1):
            if piece.strip():
                yield line, piece
        return
    try:
        every = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, ValueError) as error:
        complaints.append(f"the array cannot be read: {error}")
        return
    reached = 0
    for one in every:
        piece = bytes(one)
        reached = text.index(piece, reached)
        yield 1 + text.count(b"\n", 0, reached), piece
        reached += len(piece)
