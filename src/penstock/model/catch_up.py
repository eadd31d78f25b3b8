"""Catch-up records: each gives earlier atoms of a stream to a workflow that subscribed to the stream late.

The body is a request whose method no function can have, and whose arguments name the workflow and the piece. The atoms
are in the body, so a replay needs no other source. The record that a piece causes has no atoms yet. They are
added when the record is appended to the log.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from penstock.base.ids import RequestId
from penstock.model.request import Cut, Request, cut_of, decode_request, encode_request
from penstock.model.streams.stream import Atom

PIECE_ATOMS: Final = 1_000
"""The most atoms that a record gives to a workflow."""

PIECE_BYTES: Final = 1 << 20
"""A piece ends with the atom that reaches this number of bytes."""

CATCH_UP: Final = "$catch-up"
"""The method of a catch-up record."""

_HEAD: Final = b"\x95\xa0\xc0" + msgspec.msgpack.encode(CATCH_UP)
_NO_NAMES: Final = msgspec.Raw(b"\x80")


class CatchUp(msgspec.Struct, frozen=True, array_like=True):
    """A piece of the atoms that a workflow has missed.

    Attributes:
        piece: The number of the piece, from 0.
        first: The number of the first atom.
        upto: The number of the atom after the last one that the workflow has missed.
        atoms: The encoded events of each atom, in order.
        former: How many atoms the record before has given to the workflow, because time was over behind them; so every
            other run ends there, too. None in the first piece, and in those of an earlier Penstock.
    """

    flow: str
    stream: str
    piece: int
    first: int
    upto: int
    atoms: tuple[Atom, ...] = ()
    former: int | None = None

    @property
    def record(self) -> RequestId:
        """The id of its record, so that the log takes each piece once; no caller may choose it."""
        return RequestId(f"catch-up~~{self.flow}~~{self.piece}")


Numbered = Iterable[tuple[int, Atom]]
"""Atoms of a stream, each with its number."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(CatchUp).decode


def encode_catch_up(piece: CatchUp) -> bytes:
    """Return the body of a record."""
    return encode_request(Request("", None, CATCH_UP, msgspec.Raw(_encode(piece)), _NO_NAMES))


def is_catch_up(body: bytes) -> bool:
    """Say whether a body is that of a catch-up record."""
    return body.startswith(_HEAD)


def decode_catch_up(body: bytes) -> CatchUp:
    """Read the body of a catch-up record."""
    return _decode(decode_request(body).positional)


def recorded_cut(body: bytes) -> Cut:
    """Return where the cascade of an earlier record was cut, from the body of the record that goes on with its work."""
    return Cut(steps=decode_catch_up(body).former) if is_catch_up(body) else cut_of(body)


def filled(body: bytes, read: Callable[[str, int], Numbered]) -> bytes:
    """Return the body of a record for the log: that of a catch-up record with its atoms, and another one unchanged.

    Args:
        read: Returns the atoms of a stream from a number on, or from the oldest atom that still exists.
    """
    if not is_catch_up(body):
        return body
    piece = decode_catch_up(body)
    atoms: list[Atom] = []
    first, size = piece.first, 0
    for number, events in read(piece.stream, piece.first) if piece.first < piece.upto else ():
        if number >= piece.upto or len(atoms) == PIECE_ATOMS or size >= PIECE_BYTES:
            break
        if not atoms:
            first = number
        elif number != first + len(atoms):  # retention has removed atoms meanwhile
            break
        atoms.append(events)
        size += sum(map(len, events))
    if not atoms:
        first = piece.upto
    return encode_catch_up(msgspec.structs.replace(piece, first=first, atoms=tuple(atoms)))


def catch_up_text(body: bytes) -> str:
    """Return a catch-up record as text: `workflow turnover catches up: atoms 0 to 999 of orders`."""
    piece = decode_catch_up(body)
    start = f"workflow {piece.flow} catches up"
    if not piece.atoms:
        return f"{start} with newer atoms of {piece.stream}"
    last = piece.first + len(piece.atoms) - 1
    return f"{start}: atoms {piece.first} to {last} of {piece.stream}"
