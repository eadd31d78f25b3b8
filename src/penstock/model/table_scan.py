"""Scans: records that bring the entities, or the rows, that are there already to a published table or to a workflow.

A scan goes through keys in their order, a piece at a time; each piece is a record of the log, and causes the next one. The
body of a piece has the keys, which are added when the record is appended to the log. It has no states: the
record reads them at its place in the order. So a key that has changed meanwhile is taken as it is then, and a scan
needs no copy of the state before it.

There are two scans. That of an entity class follows a deployment: the tables of the class make the rows of each entity
again, because the code may be other code, or the table may be new. That of a workflow gives it the rows of its table.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from penstock.base.ids import RequestId
from penstock.model.request import Request, decode_request, encode_request

PIECE_KEYS: Final = 1_000
"""The most keys of a piece."""

PIECE_BYTES: Final = 1 << 20
"""A piece ends with the key whose row reaches this number of bytes."""

SCAN: Final = "$scan"
"""The method of the record of a piece."""

_HEAD: Final = b"\x95\xa0\xc0" + msgspec.msgpack.encode(SCAN)
_NO_NAMES: Final = msgspec.Raw(b"\x80")


class ScannedKey(NamedTuple):
    """The text of a key behind its prefix, and the bytes of its row."""

    text: str
    size: int


class TableScan(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a scan.

    Attributes:
        entity: The stored name of the scanned class; empty for the scan of a workflow.
        flow: The workflow that takes rows; empty for the scan of a class.
        number: The number of the scan, which no earlier scan of this class or workflow has.
        piece: The number of the piece, from 0.
        prefixes: The prefixes of the scanned keys in the state; a text behind one of them is a key of the piece.
        after: The last key of the piece before; empty in the first one.
        keys: The keys, in order.
        is_last: Whether there were no keys behind them when the record was appended.
    """

    entity: str
    flow: str
    number: int
    piece: int
    prefixes: tuple[str, ...]
    after: str = ""
    keys: tuple[str, ...] = ()
    is_last: bool = False

    @property
    def subject(self) -> str:
        """The class or the workflow."""
        return f"class/{self.entity}" if self.entity else f"flow/{self.flow}"

    @property
    def record(self) -> RequestId:
        """The id of its record, so that the log takes each piece once; no caller may choose it."""
        return RequestId(f"scan~~{self.subject}~~{self.number}~~{self.piece}")

    def following(self) -> "TableScan":
        """Return the next piece, without keys."""
        after = self.keys[-1] if self.keys else self.after
        return msgspec.structs.replace(self, piece=self.piece + 1, after=after, keys=())


KeysAfter = Callable[[str, str], Iterable[ScannedKey]]
"""Yields the keys with a prefix whose text comes after another one, in order."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(TableScan).decode


def encode_scan(piece: TableScan) -> bytes:
    """Return the body of a record."""
    return encode_request(Request("", None, SCAN, msgspec.Raw(_encode(piece)), _NO_NAMES))


def is_scan(body: bytes) -> bool:
    """Say whether a body is that of a piece of a scan."""
    return body.startswith(_HEAD)


def decode_scan(body: bytes) -> TableScan:
    """Read the body of a piece."""
    return decode_piece(decode_request(body))


def decode_piece(request: Request) -> TableScan:
    """Read the request of a piece."""
    return _decode(request.positional)


def with_keys(body: bytes, keys_after: KeysAfter) -> bytes:
    """Return the body of a record for the log: that of a piece with its keys, and another one unchanged."""
    if not is_scan(body):
        return body
    piece = decode_scan(body)
    sizes: dict[str, int] = {}
    for prefix in piece.prefixes:
        for key in islice(keys_after(prefix, piece.after), PIECE_KEYS + 1):
            sizes[key.text] = max(key.size, sizes.get(key.text, 0))
    keys: list[str] = []
    size = 0
    for text in sorted(sizes):
        if len(keys) == PIECE_KEYS or size >= PIECE_BYTES:
            break
        keys.append(text)
        size += sizes[text]
    is_last = len(keys) == len(sizes)
    return encode_scan(msgspec.structs.replace(piece, keys=tuple(keys), is_last=is_last))


def scan_text(body: bytes) -> str:
    """Return a piece of a scan as text: `the tables of Order take 12 entities`."""
    piece = decode_scan(body)
    count = f"{len(piece.keys)} {'entities' if piece.entity else 'keys'}"
    if piece.entity:
        return f"the tables of {piece.entity} take {count} again"
    return f"workflow {piece.flow} takes the rows of {count}"
